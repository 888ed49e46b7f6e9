/* utf8.h - length of UTF-8 sequences. Pure. */
#ifndef LS_BASE_UTF8_H
#define LS_BASE_UTF8_H

#include <stddef.h>

/* The length of the UTF-8 sequence at s (RFC 3629 section 4: no surrogates, no overlong forms, at most U+10FFFF); 0 if
 * the sequence is invalid. len >= 1. */
static inline size_t ls_utf8_len(const unsigned char *s, size_t len)
{
    unsigned low = 0x80, high = 0xbf; /* of the second byte */
    size_t more;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        more = 1;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        more = 2;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        more = 3;
    else
        return 0;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    if (len <= more || s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
    }
    return more + 1;
}

#endif
