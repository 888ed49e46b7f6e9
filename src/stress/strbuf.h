/* strbuf.h - a growing string: the reports are composed in it and then written to their file.
 *
 * A failed allocation sets `failed`, and later calls have no effect, so writers need not check each call;
 * ls_strbuf_save() returns the error. Numbers ignore the locale, which a script may have set with os.setlocale(). One
 * thread. */
#ifndef LS_STRESS_STRBUF_H
#define LS_STRESS_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* All zero is an empty string. */
typedef struct ls_strbuf {
    char *bytes; /* zero-terminated; NULL while empty */
    size_t len;
    size_t space;
    bool failed; /* out of memory: the text is incomplete */
} ls_strbuf;

void ls_strbuf_close(ls_strbuf *text);

void ls_strbuf_add(ls_strbuf *text, const char *bytes, size_t len);
void ls_strbuf_put(ls_strbuf *text, const char *string); /* a zero-terminated string */

/* printf(3) formats, except floating point: use ls_strbuf_fixed(). */
LS_PRINTF(2, 3) void ls_strbuf_format(ls_strbuf *text, const char *format, ...);

/* `number` rounded to `decimals` (0 to 9), with "." in every locale. A number that is infinite, not a number, or above
 * 9.2e18 units of the last decimal becomes "-". ls_stress_fixed_text() writes to a buffer and returns it. */
void ls_strbuf_fixed(ls_strbuf *text, double number, int decimals);
char *ls_stress_fixed_text(char *buffer, size_t size, double number, int decimals);

/* A JSON string (RFC 8259 section 7) with its quotes. Invalid UTF-8 becomes U+FFFD, and "<" an escape, so that the
 * text may stand inside an HTML script element. */
void ls_strbuf_json_string(ls_strbuf *text, const char *bytes, size_t len);

/* A JSON number with at most `decimals` decimals, without trailing zeros; null where ls_strbuf_fixed() writes "-". */
void ls_strbuf_json_number(ls_strbuf *text, double number, int decimals);

/* HTML text: &, <, > and quotes become references; control characters except line breaks and tabs become "?". */
void ls_strbuf_html(ls_strbuf *text, const char *bytes, size_t len);

/* Write the text to the file `path`, which is created or replaced. LS_OK; LS_ENOMEM if the text is incomplete; or the
 * code of the system error, with errno set. */
int ls_strbuf_save(const ls_strbuf *text, const char *path);

#endif
