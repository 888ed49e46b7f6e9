/* delivery.h - the messages of fan-out runs: their head, and the account of what a subscriber received of one
 * publisher. Pure.
 *
 * A message begins with LS_DELIVERY_HEAD_BYTES letters and digits, so that it may be text, a line or the data of an
 * event: "LS" and the fields of ls_delivery_head in hexadecimal. */
#ifndef LS_STRESS_DELIVERY_H
#define LS_STRESS_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_DELIVERY_HEAD_BYTES = 48, LS_DELIVERY_PUBLISHERS_MAX = 65535, LS_DELIVERY_WINDOW = 64 };

#define LS_DELIVERY_NUMBER_MAX ((UINT64_C(1) << 40) - 1)

typedef struct ls_delivery_head {
    uint32_t run;       /* random: messages of another run differ */
    uint16_t publisher; /* from 0 */
    uint64_t number;    /* from 1, for each publisher; 0: a probe before the run. At most LS_DELIVERY_NUMBER_MAX */
    uint64_t sent_ns;   /* since a moment that the receiver knows: at most about two years */
    uint64_t late_ns;   /* open loop: how long after its due time it was sent; at most about 18 minutes */
} ls_delivery_head;

void ls_delivery_write(const ls_delivery_head *head, char out[LS_DELIVERY_HEAD_BYTES]);

/* False: not such a message. */
bool ls_delivery_read(const char *bytes, size_t len, ls_delivery_head *out);

/* What a subscriber has received of one publisher. All zero at first. */
typedef struct ls_delivery_track {
    uint64_t newest; /* the highest number received */
    uint64_t seen;   /* bit i: the number newest - i was received */
} ls_delivery_track;

typedef enum ls_delivery_kind {
    LS_DELIVERY_IN_ORDER, /* the highest number so far; numbers before it may be missing */
    LS_DELIVERY_REORDERED,
    LS_DELIVERY_DUPLICATED /* or more than LS_DELIVERY_WINDOW after the newest one: such a number may be new or not */
} ls_delivery_kind;

ls_delivery_kind ls_delivery_take(ls_delivery_track *track, uint64_t number);

#endif
