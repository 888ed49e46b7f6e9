/* json_number.c - fast formatting of whole numbers for lua-cjson.
 *
 * lua-cjson formats every number with snprintf("%.14g"), which costs more than all the rest of a small response. The
 * linker replaces its fpconv_g_fmt by the function below (ld's --wrap; a macro where the program is built from the
 * sources of lua-cjson). It writes the digits of a whole number itself, with the same result, and passes every other
 * number to the original function. The shared library does not contain it: there lua-cjson is a separate library. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* NOLINTBEGIN(bugprone-reserved-identifier): ld's --wrap prescribes these names */
int __real_fpconv_g_fmt(char *text, double number, int precision);
int __wrap_fpconv_g_fmt(char *text, double number, int precision);

/* Write `number` as printf's %.<precision>g does. `text` has room for 32 bytes. Returns the length without the NUL. */
__attribute__((used)) int __wrap_fpconv_g_fmt(char *text, double number, int precision)
{
    enum { DIGITS_MAX = 14 }; /* the largest precision of lua-cjson */
    static const double powers[DIGITS_MAX + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    char digits[DIGITS_MAX];
    char *to = text;
    size_t at = sizeof digits;
    /* %g writes an exponent for numbers >= powers[precision]. NaN fails the comparison. */
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
