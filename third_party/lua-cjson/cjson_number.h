/* cjson_number.h - numbers of JSON as text, in place of lua-cjson's fpconv.h. The locale has no influence. */
#ifndef LS_CJSON_NUMBER_H
#define LS_CJSON_NUMBER_H

#include <lua.h>

#include "cjson_buffer.h"

#define FPCONV_G_FMT_BUFSIZE 40 /* room that the two functions below need */

#define FPCONV_SHORTEST 17 /* a precision: the fewest digits that read back as the same float */

/* Write the digits of an integer. Returns the length; there is no NUL. */
size_t ls_cjson_write_integer(char *to, lua_Integer number);

/* Write a float. With FPCONV_SHORTEST it reads back as the same float, never as an integer: 2.0, 1e+300. With a smaller
 * precision as %.<precision>g does. NaN and infinity: as printf does. Returns the length; there is no NUL. */
size_t ls_cjson_write_float(char *to, double number, int precision);

enum { FPCONV_INVALID, FPCONV_INTEGER, FPCONV_FLOAT };

/* Read the longest prefix of the NUL-terminated `text` that is a number of JSON (RFC 8259, section 6). A number without
 * fraction and exponent is an integer if it is within -2^63 to 2^63-1; any other number is the nearest float. *end is
 * set to the end of the number. `tmp`: an empty buffer for a copy. FPCONV_INVALID: there is no number at `text`. */
int ls_cjson_read_number(const char *text, const char **end, lua_Integer *integer, double *number, strbuf_t *tmp);

#endif
