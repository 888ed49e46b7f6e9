/* wheel.c - the wheel of wheel.h.
 *
 * Level n has slots of 64^n ms. An entry lies at the level of the highest group of 6 bits in which its time differs
 * from now_ms, in the slot of that group:
 *
 *     all groups above it are those of now_ms   =>   the slots of a level are all after those of the levels below it
 *     group n of an entry at level n > 0 differs from that of now_ms, until the time reaches its slot; then the entry
 *     moves to a lower level
 *
 * So the earliest entry lies in the first occupied slot of the lowest occupied level, and level 0 has one slot per
 * millisecond. The top level has the 2 upper bits of the time. Their order is that of a ring, which starts at now_ms:
 * deadlines lie less than 2^31 ms ahead, which is at most 2 of its 4 slots. */
#include "base/wheel.h"

#include "base/compiler.h"

static unsigned lowest_bit(uint64_t n)
{
    return ls_high_bit(n & (~n + 1));
}

static unsigned slot_of(unsigned level, uint32_t ms)
{
    return ms >> (LS_WHEEL_BITS * level) & (LS_WHEEL_SLOTS - 1);
}

void ls_wheel_open(ls_wheel *wheel, uint32_t now_ms)
{
    wheel->now_ms = now_ms;
    for (unsigned level = 0; level < LS_WHEEL_LEVELS; level++) {
        wheel->used[level] = 0;
        for (unsigned slot = 0; slot < LS_WHEEL_SLOTS; slot++) ls_node_init(&wheel->slots[level][slot]);
    }
}

/* Put an entry into its slot; one in the past into that of now_ms. */
static void wheel_put(ls_wheel *wheel, ls_wheel_entry *entry)
{
    const uint32_t at_ms = (int32_t)(entry->at_ms - wheel->now_ms) > 0 ? entry->at_ms : wheel->now_ms;
    unsigned level = 0;
    for (uint32_t differs = (at_ms ^ wheel->now_ms) >> LS_WHEEL_BITS; differs != 0; differs >>= LS_WHEEL_BITS) level++;
    const unsigned slot = slot_of(level, at_ms);
    ls_list_push(&wheel->slots[level][slot], &entry->node);
    wheel->used[level] |= (uint64_t)1 << slot;
}

void ls_wheel_add(ls_wheel *wheel, ls_wheel_entry *entry, uint32_t at_ms)
{
    entry->at_ms = at_ms;
    wheel_put(wheel, entry);
}

bool ls_wheel_has(const ls_wheel_entry *entry)
{
    return entry->node.next != NULL && !ls_list_empty(&entry->node);
}

void ls_wheel_remove(ls_wheel_entry *entry)
{
    if (ls_wheel_has(entry)) ls_list_remove(&entry->node);
}

bool ls_wheel_next(ls_wheel *wheel, uint32_t *at_ms)
{
    for (unsigned level = 0; level < LS_WHEEL_LEVELS; level++) {
        const unsigned shift = LS_WHEEL_BITS * level, now_slot = slot_of(level, wheel->now_ms);
        while (wheel->used[level] != 0) {
            const uint64_t ahead =
                wheel->used[level] >> now_slot; /* 0: only slots past the end of the top level's ring */
            const unsigned slot = ahead != 0 ? now_slot + lowest_bit(ahead) : lowest_bit(wheel->used[level]);
            if (!ls_list_empty(&wheel->slots[level][slot])) {
                const uint32_t upper = level == LS_WHEEL_LEVELS - 1 ? 0 : ~(uint32_t)0 << (shift + LS_WHEEL_BITS);
                *at_ms = (wheel->now_ms & upper) | (uint32_t)slot << shift;
                return true;
            }
            wheel->used[level] &= ~((uint64_t)1 << slot); /* its entries were removed */
        }
    }
    return false;
}

void ls_wheel_advance(ls_wheel *wheel, uint32_t now_ms, ls_node *due)
{
    uint32_t at_ms;
    while (ls_wheel_next(wheel, &at_ms) && (int32_t)(now_ms - at_ms) >= 0) {
        wheel->now_ms = at_ms;
        for (unsigned level = LS_WHEEL_LEVELS; level-- > 1;) {
            ls_node slot;
            ls_list_move(&slot, &wheel->slots[level][slot_of(level, at_ms)]);
            while (!ls_list_empty(&slot)) {
                ls_node *node = slot.next;
                ls_list_remove(node);
                wheel_put(wheel, LS_CONTAINER(node, ls_wheel_entry, node));
            }
        }
        ls_node *now = &wheel->slots[0][slot_of(0, at_ms)];
        while (!ls_list_empty(now)) {
            ls_node *node = now->next;
            ls_list_remove(node);
            ls_list_push(due, node);
        }
    }
    wheel->now_ms = now_ms;
}
