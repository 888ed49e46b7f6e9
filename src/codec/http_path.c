/* http_path.c - see http_path.h. */
#include "codec/http_path.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/http_chars.h"
#include "codec/http_text.h"

enum { SHORT_BASE_MAX = 8, SHORT_EXTENSION_MAX = 3 }; /* of a short (8.3) name */

/* Whether the name, of at least one byte, is one of `names`, in any case. */
static bool is_one_of(const char *name, size_t len, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ls_char_lower(name[0]) == names[i][0] && ls_text_same(name, len, names[i], strlen(names[i]))) return true;
    return false;
}

/* `base`: the length of the name up to its first dot; this part, without trailing spaces, decides. */
static bool is_device(const char *name, size_t base)
{
    static const char *const whole[] = {"con", "prn", "aux", "nul", "clock$", "conin$", "conout$"};
    static const char *const numbered[] = {"com", "lpt"};
    static const char *const raised[] = {"\xc2\xb9", "\xc2\xb2", "\xc2\xb3"}; /* superscript digits count as digits */
    size_t n = base;
    while (n > 0 && name[n - 1] == ' ') n--;
    if (n == 0) return false;
    if (is_one_of(name, n, whole, sizeof whole / sizeof whole[0])) return true;
    if (n < 4 || !is_one_of(name, 3, numbered, 2)) return false;
    if (n == 4) return ls_char_digit(name[3]);
    return n == 5 && is_one_of(name + 3, 2, raised, 3);
}

/* Windows gives a file with a long name a short name as well. The file would have a second path. */
static bool is_short_name(const char *name, size_t base, size_t len)
{
    size_t digits = 0;
    if (base > SHORT_BASE_MAX || len > base + 1 + SHORT_EXTENSION_MAX) return false;
    while (digits < base && ls_char_digit(name[base - 1 - digits])) digits++;
    return digits > 0 && digits < base && name[base - 1 - digits] == '~';
}

static const char *name_wrong(const char *name, size_t len)
{
    if (len == 0) return "it contains an empty name";
    if (len > LS_PATH_SEGMENT_BYTES_MAX) return "it contains a name longer than 255 bytes";
    if (name[len - 1] == '.' || name[len - 1] == ' ') return "it contains a name that ends in a dot or a space";
    for (size_t i = 0; i < len;) {
        if (ls_char_is(name[i], LS_CHAR_NAME)) {
            i++;
            continue;
        }
        const size_t n = ls_utf8_len((const unsigned char *)name + i, len - i);
        if (n == 0) return "it is not valid UTF-8";
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return "it contains a control character";
        if (n == 1) return "it contains one of \\ : * ? \" < > |";
        i += n;
    }
    const char *dot = memchr(name, '.', len);
    const size_t base = dot != NULL ? (size_t)(dot - name) : len;
    if (is_device(name, base)) return "it contains the name of a device";
    if (is_short_name(name, base, len)) return "it contains a short (8.3) file name";
    return NULL;
}

const char *ls_http_path_wrong(const char *path, size_t len)
{
    const char *wrong = NULL;
    if (len > LS_PATH_BYTES_MAX) return "it is longer than 4096 bytes";
    for (size_t at = 0; at <= len && wrong == NULL;) {
        const char *slash = memchr(path + at, '/', len - at);
        const size_t n = slash != NULL ? (size_t)(slash - path) - at : len - at;
        wrong = name_wrong(path + at, n);
        at += n + 1;
    }
    return wrong;
}
