/* utf8.c - see utf8.h. ASCII is skipped 64 bytes, then 8 bytes at a time. */
#include "base/utf8.h"

#include <string.h>

static uint64_t word_at(const unsigned char *s)
{
    uint64_t word;
    memcpy(&word, s, sizeof word);
    return word;
}

static uint64_t four_words_at(const unsigned char *s) /* their bits together */
{
    return word_at(s) | word_at(s + 8) | word_at(s + 16) | word_at(s + 24);
}

/* The first byte at or after s that is not ASCII, or `end`. */
static const unsigned char *skip_ascii(const unsigned char *s, const unsigned char *end)
{
    const uint64_t high_bits = 0x8080808080808080u;
    while (end - s >= 64 && ((four_words_at(s) | four_words_at(s + 32)) & high_bits) == 0) s += 64;
    while (end - s >= 8 && (word_at(s) & high_bits) == 0) s += 8;
    while (s < end && *s < 0x80) s++;
    return s;
}

/* Enter the character that begins with this byte of at least 0x80; false: none does (RFC 3629 section 4). */
static bool begin(ls_utf8 *state, unsigned char first)
{
    if (first < 0xc2 || first > 0xf4) return false; /* 0xc0 and 0xc1 begin overlong forms */
    state->missing = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    state->low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;  /* below: overlong */
    state->high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf; /* above: surrogates, and U+110000 and later */
    return true;
}

bool ls_utf8_feed(ls_utf8 *state, const void *bytes, size_t len)
{
    const unsigned char *s = bytes;
    const unsigned char *const end = s + len;
    while (s < end) {
        if (state->missing > 0) {
            if (*s < state->low || *s > state->high) return false;
            state->low = 0x80;
            state->high = 0xbf;
            state->missing--;
            s++;
        } else if (*s < 0x80) {
            s = skip_ascii(s, end);
        } else {
            size_t n;
            while (end - s >= LS_UTF8_BYTES_MAX && *s >= 0x80) { /* whole characters */
                if ((n = ls_utf8_len(s, LS_UTF8_BYTES_MAX)) == 0) return false;
                s += n;
            }
            if (s < end && *s >= 0x80 && !begin(state, *s++)) return false;
        }
    }
    return true;
}

bool ls_utf8_valid(const void *bytes, size_t len)
{
    ls_utf8 state = {0};
    return ls_utf8_feed(&state, bytes, len) && ls_utf8_complete(&state);
}
