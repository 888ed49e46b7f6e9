/* options_value.c - the values of options: numbers, times, files, and the texts that live as long as the options. See
 * options.h. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fopen.h"
#include "stress/options_internal.h"
#include "stress/strbuf.h"

/* Take ownership of an allocated text. False: out of memory, and the text is freed. */
static bool keep_text(ls_stress_options *o, char *text)
{
    if (text != NULL && o->text_count == o->text_room) {
        const size_t room = o->text_room > 0 ? 2 * o->text_room : 16;
        char **texts = realloc(o->texts, room * sizeof *texts);
        if (texts == NULL) {
            free(text);
            return false;
        }
        o->texts = texts;
        o->text_room = room;
    }
    if (text != NULL) o->texts[o->text_count++] = text;
    return text != NULL;
}

char *ls_stress_options_keep(ls_stress_options *o, const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return keep_text(o, copy) ? copy : NULL;
}

void ls_stress_why_set(ls_stress_why *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, why->bytes, format, args);
    va_end(args);
}

static bool parse_number(const char *text, double *out, const char **unit)
{
    char *end;
    if ((text[0] < '0' || text[0] > '9') && text[0] != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    errno = 0;
    *out = strtod(text, &end);
    *unit = end;
    return end != text && errno == 0 && isfinite(*out);
}

int ls_stress_options_count(const char *text, double *out)
{
    static const char units[] = "kMG";
    const char *unit;
    double value;
    if (!parse_number(text, &value, &unit)) return LS_EINVAL;
    if (unit[0] == 'K') unit = "k";
    for (size_t i = 0; unit[0] != '\0' && i < 3; i++) {
        value *= 1000;
        if (unit[0] == units[i]) {
            if (unit[1] != '\0') return LS_EINVAL;
            *out = value;
            return LS_OK;
        }
    }
    if (unit[0] != '\0') return LS_EINVAL;
    *out = value;
    return LS_OK;
}

int ls_stress_options_time_ns(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}};
    const char *unit;
    double value;
    if (!parse_number(text, &value, &unit)) return LS_EINVAL;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) != 0) continue;
        if (value * units[i].ns > 1e18) return LS_EINVAL;
        *out = (uint64_t)llround(value * units[i].ns);
        return LS_OK;
    }
    return LS_EINVAL;
}

int ls_stress_options_integer(const char *text, double min, double max, double *out)
{
    double value;
    if (ls_stress_options_count(text, &value) < 0 || value != floor(value) || value < min || value > max)
        return LS_EINVAL;
    *out = value;
    return LS_OK;
}

int ls_stress_options_read_file(ls_stress_options *o, const char *path, const char **bytes, size_t *len,
                                ls_stress_why *why)
{
    FILE *file = ls_fopen(path, "rb");
    ls_strbuf text = {0};
    char part[16384];
    int err = file == NULL ? errno : 0;
    if (file != NULL) {
        for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) ls_strbuf_add(&text, part, n);
        ls_strbuf_put(&text, ""); /* memory for an empty file as well */
        err = ferror(file) ? errno : text.failed ? ENOMEM : 0;
        (void)fclose(file);
    }
    if (err != 0)
        ls_strbuf_close(&text);
    else if (!keep_text(o, text.bytes))
        err = ENOMEM;
    if (err != 0) {
        ls_stress_why_set(why, "%s: %s", path, strerror(err));
        return 1;
    }
    *bytes = text.bytes;
    *len = text.len;
    return LS_OK;
}
