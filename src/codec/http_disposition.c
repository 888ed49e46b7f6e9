/* http_disposition.c - see http_disposition.h. */
#include "codec/http_disposition.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/http_chars.h"

#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

/* attr-char of RFC 8187 3.2.1: tchar without * ' % */
static bool is_attr_char(char c)
{
    return ls_char_is(c, LS_CHAR_TOKEN) && c != '*' && c != '\'' && c != '%';
}

static bool is_utf8(const unsigned char *name, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if ((n = ls_utf8_len(name + at, len - at)) == 0) return false;
    return true;
}

size_t ls_disposition(const char *name, size_t len, char out[LS_DISPOSITION_BYTES])
{
    static const char digits[] = "0123456789ABCDEF";
    bool extended = false;
    if (len == 0 || len > LS_DISPOSITION_NAME_MAX || !is_utf8((const unsigned char *)name, len)) return 0;
    char *to = PUT(out, "attachment; filename=\"");
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f || c == '/' || c == '\\') return 0;
        if (c >= 0x80 || c == '%') extended = true; /* some clients decode a % in a quoted name */
        if ((c & 0xc0) == 0x80) continue;           /* one "_" for a character */
        if (c == '"') *to++ = '\\';
        *to++ = (char)(c < 0x80 ? c : '_');
    }
    *to++ = '"';
    if (!extended) return (size_t)(to - out);
    to = PUT(to, "; filename*=UTF-8''");
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (is_attr_char(name[i])) {
            *to++ = name[i];
        } else {
            *to++ = '%';
            *to++ = digits[c >> 4];
            *to++ = digits[c & 15];
        }
    }
    return (size_t)(to - out);
}
