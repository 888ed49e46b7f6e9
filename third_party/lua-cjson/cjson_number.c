/* cjson_number.c - see cjson_number.h. */
#include "cjson_number.h"

#include <float.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Powers of ten that a double represents exactly. One multiplication or division by them is rounded correctly. */
enum { POWERS_MAX = 22 };
static const double powers[POWERS_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const uint64_t exact_max = (uint64_t)1 << 53; /* a double represents all integers up to this one */

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
static const bool rounds_once = true;
#else
static const bool rounds_once = false; /* the x87 rounds to its own precision first */
#endif

static size_t write_digits(char *to, uint64_t left)
{
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    memcpy(to, digits + at, sizeof digits - at);
    return sizeof digits - at;
}

size_t ls_cjson_write_integer(char *to, lua_Integer number)
{
    if (number >= 0) return write_digits(to, (uint64_t)number);
    *to = '-';
    return 1 + write_digits(to + 1, 0 - (uint64_t)number);
}

/* A number with at most 6 decimals and 15 digits, which is what most floats are: digits / 10^decimals is rounded
 * correctly, so if it equals the number the text reads back as the number. A decimal of 15 digits with this property is
 * the only one, so no shorter text exists. Returns 0 for any other number. */
static size_t write_short(char *to, double number)
{
    enum { DECIMALS_MAX = 6 };
    const double size = fabs(number);
    char *const begin = to;
    if (!rounds_once) return 0;
    for (unsigned decimals = 0; decimals <= DECIMALS_MAX; decimals++) {
        const double scaled = size * powers[decimals];
        if (!(scaled < 1e15)) return 0;
        const uint64_t digits = (uint64_t)(scaled + 0.5);
        if ((double)digits / powers[decimals] != size) continue;
        if (signbit(number)) *to++ = '-';
        const uint64_t unit = (uint64_t)powers[decimals];
        to += write_digits(to, digits / unit);
        *to++ = '.';
        /* A leading 1 keeps the zeros after the point; the point then replaces it. */
        if (decimals > 0) {
            to += write_digits(to - 1, digits % unit + unit) - 1;
            to[-(ptrdiff_t)decimals - 1] = '.';
        } else {
            *to++ = '0';
        }
        return (size_t)(to - begin);
    }
    return 0;
}

/* printf in the current locale, without a NUL. Replaces the decimal point of the locale, which is any byte that is not
 * part of a number. */
static size_t write_printf(char *to, double number, int precision, bool as_float)
{
    char text[64];
    size_t len = 0;
    bool point = false, exponent = false;
    (void)snprintf(text, sizeof text, "%.*g", precision, number);
    for (const char *from = text; *from != '\0'; from++) {
        if (strchr("0123456789+-einfa", *from) != NULL) {
            exponent = exponent || *from == 'e' || *from == 'n';
            to[len++] = *from;
        } else if (!point) {
            point = true;
            to[len++] = '.';
        }
    }
    if (as_float && !point && !exponent) {
        to[len++] = '.';
        to[len++] = '0';
    }
    return len;
}

static bool reads_back(double number, int precision)
{
    char text[64]; /* in the locale that strtod reads */
    (void)snprintf(text, sizeof text, "%.*g", precision, number);
    return strtod(text, NULL) == number;
}

size_t ls_cjson_write_float(char *to, double number, int precision)
{
    if (precision < FPCONV_SHORTEST || !isfinite(number)) return write_printf(to, number, precision, false);
    const size_t len = write_short(to, number);
    if (len > 0) return len;
    /* A normal number has no text of fewer than 15 digits that %.15g does not find. */
    precision = fabs(number) < DBL_MIN ? 1 : 15;
    while (precision < FPCONV_SHORTEST && !reads_back(number, precision)) precision++;
    return write_printf(to, number, precision, true);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* strtod of the number from `text` to `end`, whose decimal point is '.' in any locale. */
static double read_slow(const char *text, const char *end, strbuf_t *tmp)
{
    char *stop;
    double number = strtod(text, &stop);
    if (stop == end) return number;
    const char *const point = memchr(text, '.', (size_t)(end - text)), *const local = localeconv()->decimal_point;
    tmp->length = 0;
    strbuf_ensure_empty_length(tmp, (size_t)(end - text) + strlen(local) + 1);
    if (point != NULL) {
        strbuf_append_mem_unsafe(tmp, text, (size_t)(point - text));
        strbuf_append_mem_unsafe(tmp, local, strlen(local));
        text = point + 1;
    }
    strbuf_append_mem_unsafe(tmp, text, (size_t)(end - text));
    strbuf_append_char_unsafe(tmp, '\0');
    number = strtod(tmp->buf, NULL);
    strbuf_release(tmp);
    return number;
}

int ls_cjson_read_number(const char *text, const char **end, lua_Integer *integer, double *number, strbuf_t *tmp)
{
    enum { DIGITS_MAX = 19, EXPONENT_MAX = 99999 }; /* 19 digits fit into 64 bits */
    const char *p = text;
    const bool negative = *p == '-';
    uint64_t digits = 0;
    long count = 0, exponent = 0, written = 0; /* the number is digits * 10^exponent if count <= DIGITS_MAX */
    bool minus = false;
    p += negative;
    if (!is_digit(*p)) return FPCONV_INVALID;
    if (*p == '0') {
        if (is_digit(*++p)) return FPCONV_INVALID;
    } else {
        for (; is_digit(*p); p++)
            if (++count <= DIGITS_MAX) digits = digits * 10 + (unsigned)(*p - '0');
    }
    if (*p != '.' && *p != 'e' && *p != 'E') {
        *end = p;
        if (count <= DIGITS_MAX && digits <= (uint64_t)INT64_MAX + negative) {
            *integer = (lua_Integer)(negative ? 0 - digits : digits);
            return FPCONV_INTEGER;
        }
        *number = read_slow(text, p, tmp);
        return isfinite(*number) ? FPCONV_FLOAT : FPCONV_INVALID;
    }
    if (*p == '.') {
        if (!is_digit(*++p)) return FPCONV_INVALID;
        for (; is_digit(*p); p++) {
            if (count == 0 && *p == '0') {
                exponent -= exponent > -EXPONENT_MAX;
                continue;
            }
            if (++count > DIGITS_MAX) continue;
            digits = digits * 10 + (unsigned)(*p - '0');
            exponent--;
        }
    }
    if (*p == 'e' || *p == 'E') {
        if (*++p == '+' || *p == '-') minus = *p++ == '-';
        if (!is_digit(*p)) return FPCONV_INVALID;
        for (; is_digit(*p); p++)
            if (written <= EXPONENT_MAX) written = written * 10 + (*p - '0');
        exponent += minus ? -written : written;
    }
    *end = p;
    if (rounds_once && count <= DIGITS_MAX && digits <= exact_max && exponent >= -POWERS_MAX &&
        exponent <= POWERS_MAX) {
        const double size = exponent < 0 ? (double)digits / powers[-exponent] : (double)digits * powers[exponent];
        *number = negative ? -size : size;
    } else {
        *number = read_slow(text, p, tmp);
    }
    return isfinite(*number) ? FPCONV_FLOAT : FPCONV_INVALID;
}
