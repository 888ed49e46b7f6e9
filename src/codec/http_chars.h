/* http_chars.h - the table of character classes for the parsers of this layer. Constant; any thread. */
#ifndef LS_CODEC_HTTP_CHARS_H
#define LS_CODEC_HTTP_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum ls_char_class {
    LS_CHAR_TOKEN = 0x01,  /* tchar (RFC 9110 5.6.2) */
    LS_CHAR_TARGET = 0x02, /* request target: VCHAR and 0x80-0xff, without '#' (see http1_parse.c) */
    LS_CHAR_VALUE = 0x04,  /* field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5) */
    LS_CHAR_HOST = 0x08,   /* reg-name without percent escapes: unreserved, sub-delims (RFC 3986 3.2.2) */
    LS_CHAR_HEX = 0x10,
    LS_CHAR_PATH = 0x40, /* LS_CHAR_TARGET without '?' */
    LS_CHAR_NAME = 0x80  /* in a file name of any system: printable ASCII without / and those that Windows refuses */
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

#endif
