/* base64.c - see base64.h. */
#include "codec/base64.h"

#include <stdint.h>

static const char digits[2][65] = {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"};

size_t ls_base64_write(const void *bytes, size_t len, bool url, char *out)
{
    const uint8_t *from = bytes;
    const char *const set = digits[url], *const begin = out;
    for (; len >= 3; len -= 3, from += 3) {
        *out++ = set[from[0] >> 2];
        *out++ = set[(from[0] & 0x3) << 4 | from[1] >> 4];
        *out++ = set[(from[1] & 0xf) << 2 | from[2] >> 6];
        *out++ = set[from[2] & 0x3f];
    }
    if (len > 0) {
        const unsigned second = len > 1 ? from[1] : 0;
        *out++ = set[from[0] >> 2];
        *out++ = set[(from[0] & 0x3) << 4 | second >> 4];
        if (len > 1) *out++ = set[(second & 0xf) << 2];
        for (size_t n = len; n < 3 && !url; n++) *out++ = '=';
    }
    return (size_t)(out - begin);
}

/* The value of a digit; -1: none. */
static int value_of(char c, bool url)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == digits[url][62]) return 62;
    return c == digits[url][63] ? 63 : -1;
}

ptrdiff_t ls_base64_read(const char *text, size_t len, bool url, void *out)
{
    uint8_t *to = out;
    uint32_t bits = 0;
    unsigned count = 0; /* of bits that are not written */
    if (len % 4 == 0 && len > 0 && text[len - 1] == '=') len -= text[len - 2] == '=' ? 2 : 1;
    if (len % 4 == 1) return -1;
    for (size_t n = 0; n < len; n++) {
        const int value = value_of(text[n], url);
        if (value < 0) return -1;
        bits = bits << 6 | (unsigned)value;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        *to++ = (uint8_t)(bits >> count);
    }
    return (bits & ((1U << count) - 1)) == 0 ? to - (uint8_t *)out : -1;
}

void ls_hex_write(const void *bytes, size_t len, char *out)
{
    const uint8_t *from = bytes;
    for (; len > 0; len--, from++) {
        *out++ = "0123456789abcdef"[*from >> 4];
        *out++ = "0123456789abcdef"[*from & 0xf];
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool ls_hex_read(const char *text, size_t len, void *out)
{
    uint8_t *to = out;
    if (len % 2 != 0) return false;
    for (size_t n = 0; n < len; n += 2) {
        const int high = hex_value(text[n]), low = hex_value(text[n + 1]);
        if (high < 0 || low < 0) return false;
        *to++ = (uint8_t)(high << 4 | low);
    }
    return true;
}
