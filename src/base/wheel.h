/* wheel.h - a hierarchical timing wheel: many deadlines, each set and removed in constant time (G. Varghese, T. Lauck,
 * "Hashed and Hierarchical Timing Wheels", 1987). Times are 32-bit milliseconds that may wrap around: all deadlines
 * lie less than 2^31 ms after the time of the last ls_wheel_advance. Not thread-safe. */
#ifndef LS_BASE_WHEEL_H
#define LS_BASE_WHEEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

enum { LS_WHEEL_BITS = 6, LS_WHEEL_SLOTS = 1 << LS_WHEEL_BITS, LS_WHEEL_LEVELS = 6 };

typedef struct ls_wheel_entry {
    ls_node node; /* in a slot, or in the list of ls_wheel_advance; alone or zeroed: not in the wheel */
    uint32_t at_ms;
    _Atomic uint32_t armed_ms; /* of the user; the wheel does not touch it, it only fills the padding */
} ls_wheel_entry;

typedef struct ls_wheel {
    uint32_t now_ms;
    uint64_t used[LS_WHEEL_LEVELS]; /* bit i: slots[level][i] is not empty, or was not when it was last looked at */
    ls_node slots[LS_WHEEL_LEVELS][LS_WHEEL_SLOTS];
} ls_wheel;

void ls_wheel_open(ls_wheel *wheel, uint32_t now_ms);

/* Add an entry that is not in the wheel. One in the past is due at the next advance. */
void ls_wheel_add(ls_wheel *wheel, ls_wheel_entry *entry, uint32_t at_ms);
void ls_wheel_remove(ls_wheel_entry *entry); /* no effect on one that is not in the wheel */
bool ls_wheel_has(const ls_wheel_entry *entry);

/* Whether there is an entry; *at_ms receives a time at which ls_wheel_advance must be called: not later than the
 * earliest entry is due, and in steps towards it when it is far away. */
bool ls_wheel_next(ls_wheel *wheel, uint32_t *at_ms);

/* Move the time forward to now_ms, less than 2^31 ms unless the wheel is empty, and append the entries that are due to
 * `due`, removed from the wheel. */
void ls_wheel_advance(ls_wheel *wheel, uint32_t now_ms, ls_node *due);

#endif
