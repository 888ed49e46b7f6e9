/* utf8_files.c - fopen and related functions for Lua, with file names, commands and the environment in UTF-8. Lua's
 * sources are compiled to call these instead of the functions of the C library, which use the system's code page. Its
 * line buffering waits until the buffer is full; line_setvbuf makes such a stream unbuffered, so each write is
 * immediate and whole. */
#include "utf8_files.h"

#include <errno.h>
#include <stdlib.h>
#include <wchar.h>
#include <windows.h>

#if defined(_MSC_VER) /* it does not know C11's _Thread_local */
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL _Thread_local
#endif

enum { PATH_CHARS = 4096 };

/* 0 with errno set: invalid UTF-8, or too long. */
static int widen(const char *name, wchar_t *out)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, out, PATH_CHARS) > 0) return 1;
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : EILSEQ;
    return 0;
}

FILE *utf8_fopen(const char *name, const char *mode)
{
    wchar_t wide[PATH_CHARS], wide_mode[PATH_CHARS];
    return widen(name, wide) && widen(mode, wide_mode) ? _wfopen(wide, wide_mode) : NULL;
}

FILE *utf8_freopen(const char *name, const char *mode, FILE *file)
{
    wchar_t wide[PATH_CHARS], wide_mode[PATH_CHARS];
    if (name == NULL) return freopen(NULL, mode, file);
    return widen(name, wide) && widen(mode, wide_mode) ? _wfreopen(wide, wide_mode, file) : NULL;
}

int line_setvbuf(FILE *file, char *buffer, int mode, size_t size)
{
    return mode == _IOLBF ? setvbuf(file, NULL, _IONBF, 0) : setvbuf(file, buffer, mode, size);
}

int utf8_remove(const char *name)
{
    wchar_t wide[PATH_CHARS];
    return widen(name, wide) ? _wremove(wide) : -1;
}

int utf8_rename(const char *from, const char *to)
{
    wchar_t wide_from[PATH_CHARS], wide_to[PATH_CHARS];
    return widen(from, wide_from) && widen(to, wide_to) ? _wrename(wide_from, wide_to) : -1;
}

FILE *utf8_popen(const char *command, const char *mode)
{
    wchar_t wide[PATH_CHARS], wide_mode[PATH_CHARS];
    return widen(command, wide) && widen(mode, wide_mode) ? _wpopen(wide, wide_mode) : NULL;
}

int utf8_system(const char *command)
{
    wchar_t wide[PATH_CHARS];
    if (command == NULL) return system(NULL);
    return widen(command, wide) ? _wsystem(wide) : -1;
}

/* The string is valid until the next call of this thread. */
char *utf8_getenv(const char *name)
{
    static THREAD_LOCAL char *last;
    wchar_t wide[PATH_CHARS];
    const wchar_t *value = widen(name, wide) ? _wgetenv(wide) : NULL;
    const int bytes = value != NULL ? WideCharToMultiByte(CP_UTF8, 0, value, -1, NULL, 0, NULL, NULL) : 0;
    free(last);
    last = bytes > 0 ? malloc((size_t)bytes) : NULL;
    if (last != NULL) (void)WideCharToMultiByte(CP_UTF8, 0, value, -1, last, bytes, NULL, NULL);
    return last;
}
