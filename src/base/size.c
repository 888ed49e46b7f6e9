/* size.c - digits and a unit. */
#include "base/size.h"

#include <stddef.h>

#include "base/err.h"

static int unit_shift(char unit)
{
    switch (unit) {
    case '\0': return 0;
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    default: return -1;
    }
}

int ls_size_parse(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    int overflow = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');
        overflow |= value > (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    const int shift = unit_shift(text[i]);
    if (i == 0 || shift < 0 || (shift > 0 && text[i + 1] != '\0')) return LS_EINVAL;
    if (overflow || value > UINT64_MAX >> shift) return LS_ELIMIT;
    *out = value << shift;
    return LS_OK;
}
