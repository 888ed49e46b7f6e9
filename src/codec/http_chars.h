/* http_chars.h - the table of character classes for the parsers of this layer. Constant; any thread. */
#ifndef LS_CODEC_HTTP_CHARS_H
#define LS_CODEC_HTTP_CHARS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum ls_char_class {
    LS_CHAR_TOKEN = 0x01,  /* tchar (RFC 9110 5.6.2) */
    LS_CHAR_TARGET = 0x02, /* request target: VCHAR and 0x80-0xff, without '#' (see http1_parse.c) */
    LS_CHAR_VALUE = 0x04,  /* field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5) */
    LS_CHAR_HOST = 0x08,   /* in names of hosts and IPv4 addresses: letters, digits, "-", "." and "_" */
    LS_CHAR_HEX = 0x10,
    LS_CHAR_LOWER = 0x20, /* LS_CHAR_TOKEN without A to Z: the names of fields in HTTP/2 (RFC 9113 8.2.1) */
    LS_CHAR_PATH = 0x40,  /* LS_CHAR_TARGET without '?' */
    LS_CHAR_NAME = 0x80   /* in a file name of any system: printable ASCII without / and those that Windows refuses */
};

extern const uint8_t ls_char_classes[256];

static inline bool ls_char_is(char c, enum ls_char_class wanted)
{
    return (ls_char_classes[(unsigned char)c] & wanted) != 0;
}

static inline bool ls_char_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

static inline char ls_char_lower(char c)
{
    return (char)((unsigned char)(c - 'A') < 26 ? c | 0x20 : c);
}

/* The value of a hex digit; `c` must be LS_CHAR_HEX. */
static inline unsigned ls_char_hex_value(char c)
{
    return ls_char_digit(c) ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
}

static inline uint64_t ls_load8(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Return the first byte that a field value cannot contain. The first loop skips eight bytes at a time while none of
 * them is below 0x20 or DEL. A subtraction borrows only from a byte that is itself such a byte, so a word without one
 * gives no false match. */
static inline const char *ls_char_skip_value(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    for (; end - at >= 8; at += 8) {
        uint64_t word = ls_load8(at), del = word ^ (ones * 0x7f);
        if ((((word - ones * 0x20) & ~word) | ((del - ones) & ~del)) & (ones * 0x80)) break;
    }
    while (at < end && ls_char_is(*at, LS_CHAR_VALUE)) at++;
    return at;
}

#endif
