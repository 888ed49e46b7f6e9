/* utf8.h - UTF-8: sequences, text in parts, control characters. Pure. */
#ifndef LS_BASE_UTF8_H
#define LS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_UTF8_BYTES_MAX = 4 }; /* of one character */

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

/* Text that arrives in parts. Zeroed: between two characters. */
typedef struct ls_utf8 {
    uint8_t missing;   /* bytes of the character that has begun */
    uint8_t low, high; /* of its next byte; meaningful while bytes are missing */
} ls_utf8;

/* Check the next part. False: its bytes, after those of earlier parts, are not the beginning of any UTF-8 text; then
 * the text is invalid, and the state has no further use. A byte is refused as soon as no character can have it. */
bool ls_utf8_feed(ls_utf8 *state, const void *bytes, size_t len);

/* Whether the text may end here: no character lacks bytes. */
static inline bool ls_utf8_complete(const ls_utf8 *state)
{
    return state->missing == 0;
}

/* Whether the whole text is UTF-8. */
bool ls_utf8_valid(const void *bytes, size_t len);

/* Whether the character of n bytes at s, which ls_utf8_len has checked, may act on a terminal instead of being shown:
 * C0, DEL, C1 (U+0080 to U+009F), and the bidirectional controls U+061C, U+200E, U+200F, U+202A to U+202E and U+2066
 * to U+2069 (Unicode Standard Annex 9), which reorder the text around them. */
static inline bool ls_utf8_is_control(const unsigned char *s, size_t n)
{
    if (n == 1) return s[0] < 0x20 || s[0] == 0x7f;
    if (n == 2) return (s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c);
    if (n != 3 || s[0] != 0xe2) return false;
    if (s[1] == 0x80) return s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xaa && s[2] <= 0xae);
    return s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9;
}

#endif
