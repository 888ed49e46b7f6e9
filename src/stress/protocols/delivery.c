/* delivery.c - see delivery.h. */
#include "stress/protocols/delivery.h"

/* Digits of the fields, in order. */
enum { RUN = 8, PUBLISHER = 4, NUMBER = 10, SENT = 14, LATE = 10 };

static char *put(char *to, uint64_t value, unsigned digits)
{
    for (unsigned i = digits; i > 0; value >>= 4) to[--i] = "0123456789abcdef"[value & 15];
    return to + digits;
}

void ls_delivery_write(const ls_delivery_head *head, char out[LS_DELIVERY_HEAD_BYTES])
{
    const uint64_t late_max = (UINT64_C(1) << 4 * LATE) - 1;
    *out++ = 'L';
    *out++ = 'S';
    out = put(out, head->run, RUN);
    out = put(out, head->publisher, PUBLISHER);
    out = put(out, head->number, NUMBER);
    out = put(out, head->sent_ns, SENT);
    (void)put(out, head->late_ns < late_max ? head->late_ns : late_max, LATE);
}

/* Read digits at *at, and move *at after them. Sets *bad if one is not a digit. */
static uint64_t get(const char **at, unsigned digits, bool *bad)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < digits; i++) {
        const unsigned c = (unsigned char)*(*at)++;
        const unsigned digit = c - '0' < 10 ? c - '0' : c - 'a' < 6 ? c - 'a' + 10 : 16;
        *bad |= digit > 15;
        value = value << 4 | (digit & 15);
    }
    return value;
}

bool ls_delivery_read(const char *bytes, size_t len, ls_delivery_head *out)
{
    bool bad = false;
    if (len < LS_DELIVERY_HEAD_BYTES || bytes[0] != 'L' || bytes[1] != 'S') return false;
    const char *at = bytes + 2;
    out->run = (uint32_t)get(&at, RUN, &bad);
    out->publisher = (uint16_t)get(&at, PUBLISHER, &bad);
    out->number = get(&at, NUMBER, &bad);
    out->sent_ns = get(&at, SENT, &bad);
    out->late_ns = get(&at, LATE, &bad);
    return !bad;
}

ls_delivery_kind ls_delivery_take(ls_delivery_track *track, uint64_t number)
{
    if (number > track->newest) {
        const uint64_t ahead = number - track->newest;
        track->seen = (ahead < LS_DELIVERY_WINDOW ? track->seen << ahead : 0) | 1;
        track->newest = number;
        return LS_DELIVERY_IN_ORDER;
    }
    const uint64_t age = track->newest - number;
    if (age >= LS_DELIVERY_WINDOW || (track->seen >> age & 1) != 0) return LS_DELIVERY_DUPLICATED;
    track->seen |= UINT64_C(1) << age;
    return LS_DELIVERY_REORDERED;
}
