/* parent_win32.c - see parent.h. */
#include "cli/parent.h"

#include <windows.h>

#include <fcntl.h>
#include <io.h>

#include "base/os/thread.h"
#include "cli/main_win32.h"

static int from = -1;
static void (*on_end)(void);

static void watch_main(void *arg)
{
    char ignored[64];
    while (_read(from, ignored, sizeof ignored) > 0) continue;
    on_end();
}

/* A copy of a standard stream, which children do not inherit. */
static int copy_of(FILE *stream)
{
    const int copy = _dup(_fileno(stream));
    if (copy < 0) return -1;
    (void)SetHandleInformation((HANDLE)_get_osfhandle(copy), HANDLE_FLAG_INHERIT, 0);
    (void)_setmode(copy, _O_BINARY);
    return copy;
}

FILE *ls_parent_open(void (*ended)(void))
{
    ls_thread thread;
    const int to = copy_of(stdout), none = _open("NUL", _O_RDONLY | _O_NOINHERIT);
    FILE *out = to >= 0 ? _fdopen(to, "wb") : NULL;
    from = copy_of(stdin);
    on_end = ended;
    if (out == NULL || from < 0 || none < 0) return NULL; /* the process ends */
    if (_dup2(none, _fileno(stdin)) < 0 || _dup2(_fileno(stderr), _fileno(stdout)) < 0) return NULL;
    (void)setvbuf(stdout, NULL, _IONBF, 0); /* it is the log now */
    (void)_close(none);
    if (ls_thread_start(&thread, "ls-parent", watch_main, NULL) < 0) return NULL;
    ls_thread_detach(&thread);
    return out;
}

int ls_parent_program(char *path, size_t bytes)
{
    wchar_t wide[LS_COMMAND_CHARS_MAX];
    const DWORD len = GetModuleFileNameW(NULL, wide, LS_COMMAND_CHARS_MAX);
    if (len == 0 || len == LS_COMMAND_CHARS_MAX) return -1;
    return WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, (int)bytes, NULL, NULL) > 0 ? 0 : -1;
}
