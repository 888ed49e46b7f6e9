/* console_win32.c - the console as src/stress/terminal_win32.c asks for it, of a program whose standard error is a pipe: Wine's own
 * console (8.0) takes escape sequences for text. Put in place of the system's calls when the program is linked (--wrap).
 *
 * CONSOLE in the environment names a file with its width in columns and its code page for output, "80 65001"; the one who
 * reads the pipe may write another width there at any time. Without it the calls are the system's. */
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
    const bool told = fscanf(file, "%hd %u", columns, code_page) == 2;
    fclose(file);
    return told;
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
