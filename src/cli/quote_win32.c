/* quote_win32.c - builds a command line from arguments. Windows passes a program one string, which the program splits
 * by the rules of "Parsing C command-line arguments" (Microsoft C documentation): a backslash is literal, except
 * before a quotation mark, where two backslashes stand for one. */
#include <string.h>

#include "cli/main_win32.h"

typedef struct writer {
    wchar_t *to;
    size_t used, room; /* room: without the terminator */
} writer;

static void put(writer *w, wchar_t c, size_t count)
{
    for (; count > 0; count--, w->used++)
        if (w->used < w->room) w->to[w->used] = c;
}

int ls_main_quote(wchar_t *line, size_t room, const wchar_t *argument)
{
    const size_t before = wcslen(line);
    const int unquoted = argument[0] != L'\0' && wcspbrk(argument, L" \t\n\v\"") == NULL;
    writer w = {line, before, room - 1};
    if (before > 0) put(&w, L' ', 1);
    if (!unquoted) put(&w, L'"', 1);
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
    put(&w, L'\\', unquoted ? backslashes : 2 * backslashes); /* those before the closing quotation mark */
    if (!unquoted) put(&w, L'"', 1);
    line[w.used <= w.room ? w.used : before] = L'\0';
    return w.used <= w.room ? 0 : -1;
}
