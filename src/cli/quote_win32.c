/* quote_win32.c - arguments to a command line. Windows hands a program one string; each program splits it, by the rules
 * of "Parsing C command-line arguments" (Microsoft C documentation): backslashes are themselves, but for those before
 * a quotation mark, of which two make one. */
#include <string.h>

#include "cli/main_win32.h"

typedef struct writer {
    wchar_t *to;
    size_t used, room; /* one more is kept for the terminator */
} writer;

static void put(writer *w, wchar_t c, size_t count)
{
    for (; count > 0; count--, w->used++)
        if (w->used < w->room) w->to[w->used] = c;
}

int ls_main_quote(wchar_t *line, size_t room, const wchar_t *argument)
{
    const size_t before = wcslen(line);
    const int plain = argument[0] != L'\0' && wcspbrk(argument, L" \t\n\v\"") == NULL;
    writer w = {line, before, room - 1};
    if (before > 0) put(&w, L' ', 1);
    if (!plain) put(&w, L'"', 1);
    size_t backslashes = 0;
    for (const wchar_t *at = argument; *at != L'\0'; at++) {
        if (*at == L'\\') {
            backslashes++;
            continue;
        }
        put(&w, L'\\', *at == L'"' ? 2 * backslashes + 1 : backslashes);
        put(&w, *at, 1);
        backslashes = 0;
    }
    put(&w, L'\\', plain ? backslashes : 2 * backslashes); /* those before the mark that ends it */
    if (!plain) put(&w, L'"', 1);
    line[w.used <= w.room ? w.used : before] = L'\0';
    return w.used <= w.room ? 0 : -1;
}
