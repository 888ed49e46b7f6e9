/* slots.h - a table of slots of equal size, identified by number, that never move and are freed with the table only.
 *
 * A back end passes (number, generation) to the kernel instead of a pointer. The user of a slot keeps the generation
 * in it and increments it for each use, so a late event of an earlier use is recognised. Memory is allocated in chunks
 * and zeroed once, not for each use. While a slot is free, its first four bytes belong to the table, and it keeps the
 * rest, which late events read.
 *
 * Threads: any thread may call take, give, at and count at the same time. */
#ifndef LS_PORT_SLOTS_H
#define LS_PORT_SLOTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_slots ls_slots;

enum { LS_SLOTS_PER_CHUNK = 256 };

/* A table of at most count_max slots of slot_bytes each, a multiple of 4. LS_OK or LS_ENOMEM. */
int ls_slots_open(uint32_t count_max, size_t slot_bytes, ls_slots **out);
void ls_slots_close(ls_slots *slots);

/* Take a free slot; *number and *out receive its number and address. LS_OK; LS_ELIMIT: all are taken; LS_ENOMEM. */
int ls_slots_take(ls_slots *slots, uint32_t *number, void **out);
void ls_slots_give(ls_slots *slots, uint32_t number);

/* The slot of this number, in use or free, or NULL: no slot near it was ever taken. */
void *ls_slots_at(const ls_slots *slots, uint32_t number);

/* The number of slots in use. */
uint32_t ls_slots_count(const ls_slots *slots);

#endif
