/* escape.h - text of unknown origin for a terminal. Pure. */
#ifndef LS_BASE_ESCAPE_H
#define LS_BASE_ESCAPE_H

#include <stddef.h>

#include "base/utf8.h"

enum { LS_ESCAPE_BYTES_MAX = 4 * LS_UTF8_BYTES_MAX };

/* Write the form of the first character of `text` that a terminal shows without any other effect: the character
 * itself, or \xNN for each byte of a control character (ls_utf8_is_control) and of invalid UTF-8. len >= 1. *taken
 * receives the number of bytes read. Returns the number of bytes written; the terminating zero follows them. */
size_t ls_escape_character(char out[LS_ESCAPE_BYTES_MAX + 1], const char *text, size_t len, size_t *taken);

/* The same as a part of a string of JSON (RFC 8259 section 7); an invalid byte becomes U+FFFD. */
size_t ls_escape_json(char out[LS_ESCAPE_BYTES_MAX + 1], const char *text, size_t len, size_t *taken);

#endif
