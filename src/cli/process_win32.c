/* process_win32.c - see process.h: CreateProcess with two anonymous pipes. Only the handles of the pipes and standard
 * error are inherited. */
#include "cli/process.h"

#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <stdlib.h>

#include "cli/main_win32.h"

enum { POLL_MS = 2 }; /* an anonymous pipe has no wait with a time limit */

struct ls_process {
    HANDLE process;
    HANDLE to, from; /* ends of the pipes; NULL: closed */
};

static HANDLE close_handle(HANDLE handle)
{
    if (handle != NULL) (void)CloseHandle(handle);
    return NULL;
}

/* Make a pipe whose end `child` is inherited. 0, or the error of the system. */
static DWORD open_pipe(HANDLE *read_end, HANDLE *write_end, HANDLE *child)
{
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
    if (!CreatePipe(read_end, write_end, &inherited, 0)) return GetLastError();
    (void)SetHandleInformation(child == read_end ? *write_end : *read_end, HANDLE_FLAG_INHERIT, 0);
    return 0;
}

/* The command line: the path of this program and the arguments. The caller frees it; NULL: it is too long, or memory is
 * out. */
static wchar_t *command_line(int argc, const char *const argv[], wchar_t *program, DWORD room)
{
    wchar_t *line = calloc(LS_COMMAND_CHARS_MAX, sizeof *line);
    const DWORD len = GetModuleFileNameW(NULL, program, room);
    int failed = line == NULL || len == 0 || len == room || ls_main_quote(line, LS_COMMAND_CHARS_MAX, program) < 0;
    for (int i = 0; i < argc && !failed; i++) {
        wchar_t *wide = ls_main_wide(argv[i]);
        failed = wide == NULL || ls_main_quote(line, LS_COMMAND_CHARS_MAX, wide) < 0;
        free(wide);
    }
    if (!failed) return line;
    free(line);
    return NULL;
}

static DWORD spawn(ls_process *process, wchar_t *program, wchar_t *line, HANDLE in, HANDLE out)
{
    HANDLE inherited[3] = {in, out, GetStdHandle(STD_ERROR_HANDLE)};
    STARTUPINFOEXW start = {.StartupInfo = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES}};
    PROCESS_INFORMATION started;
    SIZE_T bytes = 0;
    DWORD err = 0;
    start.StartupInfo.hStdInput = in;
    start.StartupInfo.hStdOutput = out;
    start.StartupInfo.hStdError = inherited[2];
    const DWORD count = inherited[2] != NULL && inherited[2] != INVALID_HANDLE_VALUE ? 3 : 2;
    if (count == 3) (void)SetHandleInformation(inherited[2], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    (void)InitializeProcThreadAttributeList(NULL, 1, 0, &bytes);
    start.lpAttributeList = malloc(bytes);
    if (start.lpAttributeList == NULL) return ERROR_NOT_ENOUGH_MEMORY;
    if (!InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &bytes)) {
        err = GetLastError();
        free(start.lpAttributeList);
        return err;
    }
    if (!UpdateProcThreadAttribute(start.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, inherited,
                                   count * sizeof inherited[0], NULL, NULL) ||
        !CreateProcessW(program, line, NULL, NULL, TRUE, EXTENDED_STARTUPINFO_PRESENT, NULL, NULL, &start.StartupInfo,
                        &started))
        err = GetLastError();
    DeleteProcThreadAttributeList(start.lpAttributeList);
    free(start.lpAttributeList);
    if (err != 0) return err;
    (void)CloseHandle(started.hThread);
    process->process = started.hProcess;
    return 0;
}

ls_process *ls_process_start(int argc, const char *const argv[], char *message, size_t message_bytes)
{
    ls_process *process = calloc(1, sizeof *process);
    wchar_t *program = calloc(LS_COMMAND_CHARS_MAX, sizeof *program);
    wchar_t *line = program != NULL ? command_line(argc, argv, program, LS_COMMAND_CHARS_MAX) : NULL;
    HANDLE in = NULL, out = NULL;
    DWORD err = ERROR_NOT_ENOUGH_MEMORY;
    if (process == NULL || line == NULL) goto fail;
    if ((err = open_pipe(&in, &process->to, &in)) != 0) goto fail;
    if ((err = open_pipe(&process->from, &out, &out)) != 0) goto fail;
    if ((err = spawn(process, program, line, in, out)) != 0) goto fail;
    (void)CloseHandle(in);
    (void)CloseHandle(out);
    free(line);
    free(program);
    return process;

fail:
    (void)ls_main_reason(err, message, message_bytes);
    (void)close_handle(in);
    (void)close_handle(out);
    if (process != NULL) {
        (void)close_handle(process->to);
        (void)close_handle(process->from);
    }
    free(process);
    free(line);
    free(program);
    return NULL;
}

long ls_process_read(ls_process *process, char *to, size_t bytes, unsigned ms)
{
    const ULONGLONG end = GetTickCount64() + ms;
    DWORD n = 0;
    if (process->from == NULL) return 0;
    for (;;) {
        if (!PeekNamedPipe(process->from, NULL, 0, NULL, &n, NULL)) return 0;
        if (n > 0) return ReadFile(process->from, to, bytes < n ? (DWORD)bytes : n, &n, NULL) ? (long)n : 0;
        if (GetTickCount64() >= end) return -1;
        Sleep(POLL_MS);
    }
}

void ls_process_stop(ls_process *process)
{
    process->to = close_handle(process->to);
}

static void kill_process(ls_process *process)
{
    (void)TerminateProcess(process->process, LS_STATUS_FAILED); /* without effect on a process that has ended */
}

enum ls_process_end ls_process_wait(ls_process *process, int *number)
{
    DWORD status = 0;
    (void)WaitForSingleObject(process->process, INFINITE);
    (void)GetExitCodeProcess(process->process, &status);
    *number = (int)status;
    return status >= 0xC0000000u ? LS_PROCESS_SIGNAL : LS_PROCESS_EXIT; /* an exception: NTSTATUS of severity error */
}

void ls_process_close(ls_process *process)
{
    int number;
    ls_process_stop(process);
    process->from = close_handle(process->from);
    kill_process(process);
    (void)ls_process_wait(process, &number);
    (void)CloseHandle(process->process);
    free(process);
}

typedef struct watch {
    HANDLE from;
    void (*ended)(void *user);
    void *user;
} watch;

static DWORD WINAPI watch_main(void *arg)
{
    const watch w = *(watch *)arg;
    char ignored[64];
    DWORD n;
    free(arg);
    while (ReadFile(w.from, ignored, sizeof ignored, &n, NULL) && n > 0) continue;
    w.ended(w.user);
    return 0;
}

FILE *ls_process_channel(void (*ended)(void *user), void *user)
{
    watch *w = malloc(sizeof *w);
    const int to = _dup(_fileno(stdout));
    const int none = _open("NUL", _O_RDONLY | _O_NOINHERIT);
    const HANDLE self = GetCurrentProcess();
    HANDLE from = NULL, thread;
    FILE *out = NULL;
    if (w == NULL || to < 0 || none < 0) goto fail;
    (void)SetHandleInformation((HANDLE)_get_osfhandle(to), HANDLE_FLAG_INHERIT, 0);
    (void)_setmode(to, _O_BINARY);
    if ((out = _fdopen(to, "wb")) == NULL) goto fail;
    if (!DuplicateHandle(self, (HANDLE)_get_osfhandle(_fileno(stdin)), self, &from, 0, FALSE, DUPLICATE_SAME_ACCESS))
        goto fail;
    if (_dup2(none, _fileno(stdin)) < 0 || _dup2(_fileno(stderr), _fileno(stdout)) < 0) goto fail;
    (void)setvbuf(stdout, NULL, _IONBF, 0); /* it is the log now */
    *w = (watch){from, ended, user};
    if ((thread = CreateThread(NULL, 0, watch_main, w, 0, NULL)) == NULL) goto fail;
    (void)CloseHandle(thread);
    (void)_close(none);
    return out;

fail:
    if (out != NULL)
        (void)fclose(out); /* and `to` */
    else if (to >= 0)
        (void)_close(to);
    (void)close_handle(from);
    if (none >= 0) (void)_close(none);
    free(w);
    return NULL;
}

int ls_process_is_terminal(void)
{
    const HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE);
    DWORD mode;
    return GetConsoleMode(out, &mode) && SetConsoleMode(out, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

const char *ls_process_signal_name(int number)
{
    switch ((DWORD)number) {
    case EXCEPTION_ACCESS_VIOLATION: return "EXCEPTION_ACCESS_VIOLATION";
    case EXCEPTION_STACK_OVERFLOW: return "EXCEPTION_STACK_OVERFLOW";
    case EXCEPTION_ILLEGAL_INSTRUCTION: return "EXCEPTION_ILLEGAL_INSTRUCTION";
    case EXCEPTION_INT_DIVIDE_BY_ZERO: return "EXCEPTION_INT_DIVIDE_BY_ZERO";
    default: return NULL;
    }
}
