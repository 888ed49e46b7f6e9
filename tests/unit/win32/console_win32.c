/* console_win32.c - a fake console for src/base/io/terminal_win32.c, in a program whose standard error is a pipe: the
 * console of Wine 8.0 prints escape sequences as text. Replaces the system's calls at link time (--wrap).
 *
 * CONSOLE in the environment names a file with the width in columns and the output code page, "80 65001"; the reader
 * of the pipe may write another width at any time. Without CONSOLE the system's calls run. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <windows.h>

extern BOOL(WINAPI *__real___imp_GetConsoleMode)(HANDLE, DWORD *);
extern BOOL(WINAPI *__real___imp_SetConsoleMode)(HANDLE, DWORD);
extern BOOL(WINAPI *__real___imp_GetConsoleScreenBufferInfo)(HANDLE, CONSOLE_SCREEN_BUFFER_INFO *);
extern UINT(WINAPI *__real___imp_GetConsoleOutputCP)(void);

static DWORD console_mode = ENABLE_PROCESSED_OUTPUT | ENABLE_WRAP_AT_EOL_OUTPUT;

static bool console_is(SHORT *columns, UINT *code_page)
{
    const char *path = getenv("CONSOLE");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL) return false;
    const bool valid = fscanf(file, "%hd %u", columns, code_page) == 2;
    fclose(file);
    return valid;
}

static BOOL WINAPI get_mode(HANDLE handle, DWORD *mode)
{
    SHORT columns;
    UINT code_page;
    if (!console_is(&columns, &code_page)) return __real___imp_GetConsoleMode(handle, mode);
    *mode = console_mode;
    return TRUE;
}

static BOOL WINAPI set_mode(HANDLE handle, DWORD mode)
{
    SHORT columns;
    UINT code_page;
    if (!console_is(&columns, &code_page)) return __real___imp_SetConsoleMode(handle, mode);
    console_mode = mode;
    return TRUE;
}

static BOOL WINAPI get_info(HANDLE handle, CONSOLE_SCREEN_BUFFER_INFO *info)
{
    SHORT columns;
    UINT code_page;
    if (!console_is(&columns, &code_page)) return __real___imp_GetConsoleScreenBufferInfo(handle, info);
    *info = (CONSOLE_SCREEN_BUFFER_INFO){.dwSize = {columns, 300}, .srWindow = {0, 0, (SHORT)(columns - 1), 23}};
    return TRUE;
}

static UINT WINAPI get_code_page(void)
{
    SHORT columns;
    UINT code_page;
    return console_is(&columns, &code_page) ? code_page : __real___imp_GetConsoleOutputCP();
}

BOOL(WINAPI *__wrap___imp_GetConsoleMode)(HANDLE, DWORD *) = get_mode;
BOOL(WINAPI *__wrap___imp_SetConsoleMode)(HANDLE, DWORD) = set_mode;
BOOL(WINAPI *__wrap___imp_GetConsoleScreenBufferInfo)(HANDLE, CONSOLE_SCREEN_BUFFER_INFO *) = get_info;
UINT(WINAPI *__wrap___imp_GetConsoleOutputCP)(void) = get_code_page;
