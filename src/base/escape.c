/* escape.c - see escape.h. */
#include "base/escape.h"

#include <stdio.h>
#include <string.h>

size_t ls_escape_character(char out[LS_ESCAPE_BYTES_MAX + 1], const char *text, size_t len, size_t *taken)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const size_t n = ls_utf8_len(bytes, len);
    size_t used = 0;
    *taken = n > 0 ? n : 1;
    if (n > 0 && !ls_utf8_is_control(bytes, n)) {
        memcpy(out, text, n);
        out[n] = '\0';
        return n;
    }
    for (size_t i = 0; i < *taken; i++) used += (size_t)snprintf(out + used, 5, "\\x%02x", (unsigned)bytes[i]);
    return used;
}

size_t ls_escape_json(char out[LS_ESCAPE_BYTES_MAX + 1], const char *text, size_t len, size_t *taken)
{
    const size_t n = ls_utf8_len((const unsigned char *)text, len);
    const unsigned char first = (unsigned char)*text;
    *taken = n > 0 ? n : 1;
    if (n == 0) return (size_t)snprintf(out, 4, "\xef\xbf\xbd");
    if (first < 0x20) return (size_t)snprintf(out, 7, "\\u%04x", (unsigned)first);
    if (first == '"' || first == '\\') return (size_t)snprintf(out, 3, "\\%c", first);
    memcpy(out, text, n);
    out[n] = '\0';
    return n;
}
