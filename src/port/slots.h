/* slots.h - a table of equal-sized slots that never move and are never unmapped, named by a number.
 *
 * A back end gives the kernel (number, generation) instead of a pointer: whatever the kernel still reports about a slot
 * after it was given back is recognised by its generation, which the slot keeps across its lives. Memory is taken in
 * chunks and zeroed once.
 *
 * ls_slots_at may run in any thread; take and give are serialised inside. */
#ifndef LS_PORT_SLOTS_H
#define LS_PORT_SLOTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_slots ls_slots;

enum { LS_SLOTS_PER_CHUNK = 256 };

/* Room for count_max slots of slot_bytes each. LS_OK or LS_ENOMEM. */
int ls_slots_open(uint32_t count_max, size_t slot_bytes, ls_slots **out);
void ls_slots_close(ls_slots *slots);

/* A free slot and its number. LS_OK; LS_ELIMIT: all are taken; LS_ENOMEM. */
int ls_slots_take(ls_slots *slots, uint32_t *number, void **out);
void ls_slots_give(ls_slots *slots, uint32_t number);

/* The slot of a number that was taken at some time, or NULL. */
void *ls_slots_at(const ls_slots *slots, uint32_t number);

/* Slots taken now. */
uint32_t ls_slots_count(const ls_slots *slots);

#endif
