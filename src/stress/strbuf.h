/* strbuf.h - a text that grows: what the reports are written into before they go to their file.
 *
 * A failed allocation is remembered and everything after it ignored, so that writers need not look after each line;
 * ls_strbuf_save() tells in the end. Numbers never follow the locale: a script may have called os.setlocale. One thread. */
#ifndef LS_STRESS_STRBUF_H
#define LS_STRESS_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* All zero is an empty text. */
typedef struct ls_strbuf {
    char *bytes; /* terminated by a zero that is not counted; NULL while nothing was added */
    size_t len;
    size_t space;
    bool failed; /* out of memory: something is missing */
} ls_strbuf;

void ls_strbuf_close(ls_strbuf *text);

void ls_strbuf_add(ls_strbuf *text, const char *bytes, size_t len);
void ls_strbuf_put(ls_strbuf *text, const char *string); /* up to its zero */

/* printf(3) formats; for those of floating point numbers use ls_strbuf_fixed(). */
LS_PRINTF(2, 3) void ls_strbuf_format(ls_strbuf *text, const char *format, ...);

/* `number` with so many decimals (0 to 9), rounded; "." whatever the locale. One that is infinite, not a number or of
 * more than 9.2e18 units of the last decimal is written as "-". The second form writes to a buffer and returns it. */
void ls_strbuf_fixed(ls_strbuf *text, double number, int decimals);
char *ls_fixed(char *buffer, size_t size, double number, int decimals);

/* A JSON string (RFC 8259 7) with its quotes. What is not UTF-8 becomes U+FFFD, and "<" an escape, so that the text may
 * stand inside an HTML script element. */
void ls_strbuf_json_string(ls_strbuf *text, const char *bytes, size_t len);

/* A JSON number with at most three decimals and no zeros behind them; null for what ls_strbuf_fixed() cannot write. */
void ls_strbuf_json_number(ls_strbuf *text, double number);

/* HTML's &, <, > and quotes as references; control characters but line breaks and tabs become "?". */
void ls_strbuf_html(ls_strbuf *text, const char *bytes, size_t len);

/* Write it to a file of that name, which is created or replaced. LS_OK, LS_ENOMEM when something is missing, or the code
 * of the system's refusal, and errno is what it said. */
int ls_strbuf_save(const ls_strbuf *text, const char *path);

#endif
