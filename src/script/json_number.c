/* json_number.c - the numbers that lua-cjson writes.
 *
 * lua-cjson writes every number by snprintf("%.14g"), which costs more than all the rest of a small answer. The linker puts
 * the function here in the place of its fpconv_g_fmt (ld's --wrap; a macro, where the program is built with lua-cjson's sources):
 * whole numbers become their digits, the same ones, and all others go the old way. It is left out of the shared library, whose
 * lua-cjson is a library of its own. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker makes these names */
int __real_fpconv_g_fmt(char *text, double number, int precision);
int __wrap_fpconv_g_fmt(char *text, double number, int precision);

/* Write `number` as printf's %.<precision>g does. `text` has room for 32 bytes. Returns the length; no NUL counts. */
__attribute__((used)) int __wrap_fpconv_g_fmt(char *text, double number, int precision)
{
    enum { DIGITS_MAX = 14 }; /* lua-cjson's own limit of the precision */
    static const double powers[DIGITS_MAX + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    char digits[DIGITS_MAX];
    char *to = text;
    size_t at = sizeof digits;
    /* From the power on, %g writes an exponent. NaN fails the comparison. */
    if (precision < 1 || precision > DIGITS_MAX || !(fabs(number) < powers[precision]) || number != trunc(number))
        return __real_fpconv_g_fmt(text, number, precision);
    uint64_t left = (uint64_t)fabs(number);
    do digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (signbit(number)) *to++ = '-';
    memcpy(to, digits + at, sizeof digits - at);
    to += sizeof digits - at;
    *to = '\0';
    return (int)(to - text);
}
/* NOLINTEND(bugprone-reserved-identifier) */
