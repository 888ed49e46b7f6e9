/* strbuf.c - a string that doubles its space; numbers are formatted as integers. */
#include "stress/strbuf.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fopen.h"
#include "base/utf8.h"

void ls_strbuf_close(ls_strbuf *text)
{
    free(text->bytes);
    *text = (ls_strbuf){0};
}

/* Make room for len more bytes and the terminating zero. */
static bool grow(ls_strbuf *text, size_t len)
{
    if (text->failed) return false;
    if (text->space - text->len > len) return true;
    size_t space = text->space > 0 ? text->space : 1024;
    while (space - text->len <= len) space *= 2;
    char *bytes = realloc(text->bytes, space);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->space = space;
    return true;
}

void ls_strbuf_add(ls_strbuf *text, const char *bytes, size_t len)
{
    if (!grow(text, len)) return;
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
    text->bytes[text->len] = '\0';
}

void ls_strbuf_put(ls_strbuf *text, const char *string)
{
    ls_strbuf_add(text, string, strlen(string));
}

void ls_strbuf_format(ls_strbuf *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0 || !grow(text, (size_t)len)) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text->bytes + text->len, (size_t)len + 1, format, args);
    va_end(args);
    text->len += (size_t)len;
}

char *ls_stress_fixed_text(char *buffer, size_t size, double number, int decimals)
{
    long long scale = 1;
    for (int i = 0; i < decimals; i++) scale *= 10;
    double scaled = fabs(number) * (double)scale;
    if (!(scaled < 9.2e18)) {
        snprintf(buffer, size, "-");
        return buffer;
    }
    long long units = llround(scaled);
    const char *sign = number < 0 && units > 0 ? "-" : "";
    if (decimals == 0)
        snprintf(buffer, size, "%s%lld", sign, units);
    else
        snprintf(buffer, size, "%s%lld.%0*lld", sign, units / scale, decimals, units % scale);
    return buffer;
}

void ls_strbuf_fixed(ls_strbuf *text, double number, int decimals)
{
    char buffer[48];
    ls_strbuf_put(text, ls_stress_fixed_text(buffer, sizeof buffer, number, decimals));
}

void ls_strbuf_json_number(ls_strbuf *text, double number, int decimals)
{
    char buffer[48];
    ls_stress_fixed_text(buffer, sizeof buffer, number, decimals);
    if (strcmp(buffer, "-") == 0) {
        ls_strbuf_put(text, "null");
        return;
    }
    size_t len = strlen(buffer);
    while (decimals > 0 && buffer[len - 1] == '0') len--;
    if (buffer[len - 1] == '.') len--;
    ls_strbuf_add(text, buffer, len);
}

void ls_strbuf_json_string(ls_strbuf *text, const char *bytes, size_t len)
{
    const unsigned char *s = (const unsigned char *)bytes;
    ls_strbuf_put(text, "\"");
    for (size_t i = 0; i < len;) {
        size_t n = ls_utf8_len(s + i, len - i);
        if (n == 0) {
            ls_strbuf_put(text, "\\ufffd");
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            ls_strbuf_format(text, "\\%c", s[i]);
        } else if (s[i] < 0x20 || s[i] == 0x7f || s[i] == '<') {
            ls_strbuf_format(text, "\\u%04x", s[i]);
        } else {
            ls_strbuf_add(text, bytes + i, n);
        }
        i += n;
    }
    ls_strbuf_put(text, "\"");
}

void ls_strbuf_html(ls_strbuf *text, const char *bytes, size_t len)
{
    const unsigned char *s = (const unsigned char *)bytes;
    for (size_t i = 0; i < len;) {
        size_t n = ls_utf8_len(s + i, len - i);
        if (n == 0 || (s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7f)
            ls_strbuf_put(text, "?");
        else if (s[i] == '&')
            ls_strbuf_put(text, "&amp;");
        else if (s[i] == '<')
            ls_strbuf_put(text, "&lt;");
        else if (s[i] == '>')
            ls_strbuf_put(text, "&gt;");
        else if (s[i] == '"')
            ls_strbuf_put(text, "&quot;");
        else
            ls_strbuf_add(text, bytes + i, n);
        i += n > 0 ? n : 1;
    }
}

int ls_strbuf_save(const ls_strbuf *text, const char *path)
{
    if (text->failed) return LS_ENOMEM;
    FILE *to = ls_fopen(path, "wb");
    if (to == NULL) return ls_err_from_errno(errno);
    errno = EIO; /* for a library that sets no errno */
    int failed = fwrite(text->bytes, 1, text->len, to) != text->len ? errno : 0;
    /* A full disk may be reported only here; not every fclose() reports it. */
    if (fflush(to) != 0 && failed == 0) failed = errno;
    if (fclose(to) != 0 && failed == 0) failed = errno;
    errno = failed;
    return failed != 0 ? ls_err_from_errno(failed) : LS_OK;
}
