/* child_win32.c - see child.h.
 *
 * The tree of a child is a job: a process joins the job of its parent, and the job ends its processes when its handle
 * is closed, also because the server has ended. There are no signals: the end of a child is the end of its job.
 *
 * The input is a temporary file, which the system deletes with its last handle. The outputs are pipes, which notify.h
 * watches; a read takes what PeekNamedPipe has seen, so that it does not block.
 *
 * The child inherits the handles of PROC_THREAD_ATTRIBUTE_HANDLE_LIST alone. A batch file is refused: CreateProcess
 * runs it by cmd.exe, which parses the command line by other rules, so that an argument could become a command. */
#include "port/child.h"

#include <windows.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/err_win32.h"
#include "base/os/wide_win32.h"

enum {
    STREAMS = LS_CHILD_ERR + 1,
    PATH_CHARS = 32768,
    ENDED = 137, /* as on POSIX after SIGKILL */
    LOOK_MS = 2  /* an anonymous pipe has no wait with a time limit */
};

char **ls_child_environment(void)
{
    return _environ;
}

static int last_error(void)
{
    return ls_err_from_win32(GetLastError());
}

static void close_fd(ls_fd *fd)
{
    if (*fd != LS_FD_NONE) (void)CloseHandle((HANDLE)*fd);
    *fd = LS_FD_NONE;
}

/* ---- the arguments of CreateProcess ---------------------------------------------------------------------------- */

/* Append an argument so that "Parsing C command-line arguments" (Microsoft C/C++ language reference) gives it back: in
 * quotes, with the backslashes before a quote doubled and the quote escaped. */
static wchar_t *append_quoted(wchar_t *to, const wchar_t *argument)
{
    size_t slashes = 0;
    *to++ = L'"';
    for (;; argument++) {
        if (*argument == L'\\') {
            slashes++;
        } else {
            if (*argument == L'"' || *argument == 0) /* those before it are in `to` once already */
                for (size_t n = slashes + (*argument == L'"'); n > 0; n--) *to++ = L'\\';
            slashes = 0;
        }
        if (*argument == 0) break;
        *to++ = *argument;
    }
    *to++ = L'"';
    return to;
}

/* A list of texts as one, which the caller frees: the arguments quoted and with blanks between them, or (`quoted`
 * false) each with a NUL after it. NULL with errno set. */
static wchar_t *join(const char *const *list, bool quoted)
{
    size_t chars = 2;
    for (const char *const *text = list; *text != NULL; text++) chars += 2 * strlen(*text) + 3;
    wchar_t *all = calloc(chars, sizeof *all), *to = all;
    for (size_t at = 0; all != NULL && list[at] != NULL; at++) {
        wchar_t *wide = ls_wide_of(list[at]);
        if (wide == NULL) {
            free(all);
            return NULL;
        }
        if (quoted && at > 0) *to++ = L' ';
        to = quoted ? append_quoted(to, wide) : wcscpy(to, wide) + wcslen(wide) + 1;
        free(wide);
    }
    return all;
}

/* The file of a program, as CreateProcess opens it: without the blanks and dots at the end of a name. A name without a
 * slash is looked for in PATH alone, not in the directory of the server. */
static int find_program(const wchar_t *name, const wchar_t *cwd, wchar_t found[PATH_CHARS])
{
    const bool bare = wcspbrk(name, L"\\/:") == NULL;
    const bool relative = !bare && name[0] != L'\\' && name[0] != L'/' && name[1] != L':';
    const wchar_t *path = bare ? _wgetenv(L"PATH") : NULL, *type = L"";
    wchar_t *start = malloc(PATH_CHARS * sizeof *start);
    DWORD len = 0;
    if (start == NULL) return LS_ENOMEM;
    if (swprintf(start, PATH_CHARS, L"%ls%ls%ls", relative ? cwd : L"", relative ? L"\\" : L"", name) > 0)
        len = SearchPathW(bare && path == NULL ? L"" : path, start, L".exe", PATH_CHARS, found, NULL);
    if (len > 0 && len < PATH_CHARS) len = GetFullPathNameW(wcscpy(start, found), PATH_CHARS, found, NULL);
    const int err = len > 0 && len < PATH_CHARS ? LS_OK : LS_ENOENT;
    if (err == LS_OK && wcsrchr(found, L'.') != NULL) type = wcsrchr(found, L'.');
    free(start);
    return _wcsicmp(type, L".bat") == 0 || _wcsicmp(type, L".cmd") == 0 ? LS_ENOTSUP : err;
}

/* ---- the streams ----------------------------------------------------------------------------------------------- */

static int open_input(const ls_child_options *options, ls_fd *theirs)
{
    wchar_t folder[MAX_PATH + 1], path[MAX_PATH + 1] = L"NUL";
    DWORD flags = FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, written;
    size_t at = 0;
    if (options->input_len == 0)
        flags = 0;
    else if (GetTempPathW(MAX_PATH + 1, folder) == 0 || GetTempFileNameW(folder, L"ls", 0, path) == 0)
        return last_error();
    const HANDLE file = CreateFileW(path, GENERIC_READ | (flags != 0 ? GENERIC_WRITE | DELETE : 0), 0, NULL,
                                    flags != 0 ? CREATE_ALWAYS : OPEN_EXISTING, flags, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        const int err = last_error();
        if (flags != 0) (void)DeleteFileW(path);
        return err;
    }
    *theirs = (ls_fd)file;
    for (; at < options->input_len; at += written) {
        const size_t left = options->input_len - at;
        if (!WriteFile(file, options->input + at, left < (1u << 30) ? (DWORD)left : 1u << 30, &written, NULL))
            return last_error();
    }
    return at == 0 || SetFilePointerEx(file, (LARGE_INTEGER){0}, NULL, FILE_BEGIN) ? LS_OK : last_error();
}

static int open_pipe(ls_fd *reads, ls_fd *writes)
{
    HANDLE from, to;
    if (!CreatePipe(&from, &to, NULL, 65536)) return last_error();
    *reads = (ls_fd)from;
    *writes = (ls_fd)to;
    return LS_OK;
}

static int share_err(ls_fd *theirs)
{
    HANDLE copy;
    const HANDLE self = GetCurrentProcess();
    if (!DuplicateHandle(self, GetStdHandle(STD_ERROR_HANDLE), self, &copy, 0, TRUE, DUPLICATE_SAME_ACCESS))
        return last_error();
    *theirs = (ls_fd)copy;
    return LS_OK;
}

static int open_streams(const ls_child_options *options, ls_child *child, ls_fd theirs[STREAMS])
{
    int err = options->feed ? open_pipe(&theirs[LS_CHILD_IN], &child->fds[LS_CHILD_IN])
                            : open_input(options, &theirs[LS_CHILD_IN]);
    if (err == LS_OK) err = open_pipe(&child->fds[LS_CHILD_OUT], &theirs[LS_CHILD_OUT]);
    if (err == LS_OK)
        err = options->shares_err ? share_err(&theirs[LS_CHILD_ERR])
                                  : open_pipe(&child->fds[LS_CHILD_ERR], &theirs[LS_CHILD_ERR]);
    for (int n = 0; n < STREAMS && err == LS_OK; n++)
        if (!SetHandleInformation((HANDLE)theirs[n], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT)) err = last_error();
    return err;
}

/* ---- the process ----------------------------------------------------------------------------------------------- */

typedef struct strings {
    wchar_t *name, *cwd, *line, *env, *program;
} strings;

/* Create the process, suspended until it is in its job. */
static int create(const strings *s, DWORD flags, ls_fd theirs[STREAMS], ls_child *child)
{
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {.BasicLimitInformation.LimitFlags =
                                                       JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    PROCESS_INFORMATION made;
    SIZE_T bytes = 0;
    int err = LS_OK;
    const HANDLE job = CreateJobObjectW(NULL, NULL);
    if (job == NULL) return last_error();
    (void)InitializeProcThreadAttributeList(NULL, 1, 0, &bytes);
    LPPROC_THREAD_ATTRIBUTE_LIST list = malloc(bytes);
    if (list == NULL || !InitializeProcThreadAttributeList(list, 1, 0, &bytes)) {
        err = LS_ENOMEM;
        goto fail_job;
    }
    STARTUPINFOEXW start = {.StartupInfo = {.cb = sizeof start,
                                            .dwFlags = STARTF_USESTDHANDLES,
                                            .hStdInput = (HANDLE)theirs[LS_CHILD_IN],
                                            .hStdOutput = (HANDLE)theirs[LS_CHILD_OUT],
                                            .hStdError = (HANDLE)theirs[LS_CHILD_ERR]},
                            .lpAttributeList = list};
    if (!SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits) ||
        !UpdateProcThreadAttribute(list, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, theirs, STREAMS * sizeof *theirs, NULL,
                                   NULL) ||
        !CreateProcessW(s->program, s->line, NULL, NULL, TRUE,
                        CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT | flags, s->env,
                        s->cwd, &start.StartupInfo, &made)) {
        err = GetLastError() == ERROR_DIRECTORY ? LS_ENOENT : last_error();
    } else {
        if (!AssignProcessToJobObject(job, made.hProcess) || ResumeThread(made.hThread) == (DWORD)-1) {
            err = last_error();
            (void)TerminateProcess(made.hProcess, ENDED);
            (void)CloseHandle(made.hProcess);
        }
        (void)CloseHandle(made.hThread);
    }
    DeleteProcThreadAttributeList(list);
    if (err == LS_OK) {
        child->pid = (int)made.dwProcessId;
        child->leader = (ls_fd)made.hProcess;
        child->job = (ls_fd)job;
    }

fail_job:
    free(list);
    if (err != LS_OK) (void)CloseHandle(job);
    return err;
}

int ls_child_start(const ls_child_options *options, ls_child *out)
{
    ls_fd theirs[STREAMS] = {LS_FD_NONE, LS_FD_NONE, LS_FD_NONE};
    ls_child child = {.fds = {LS_FD_NONE, LS_FD_NONE, LS_FD_NONE, LS_FD_NONE}};
    errno = 0;
    strings s = {.name = ls_wide_of(options->argv[0]),
                 .cwd = ls_wide_of(options->cwd),
                 .line = join(options->argv, true),
                 .env = options->env != NULL ? join(options->env, false) : NULL,
                 .program = malloc(PATH_CHARS * sizeof *s.program)};
    int err = LS_OK;
    if (s.name == NULL || s.cwd == NULL || s.line == NULL || s.program == NULL ||
        (s.env == NULL && options->env != NULL))
        err = errno == EINVAL ? LS_EINVAL : LS_ENOMEM;
    if (err == LS_OK) err = find_program(s.name, s.cwd, s.program);
    if (err == LS_OK) err = open_streams(options, &child, theirs);
    if (err == LS_OK) err = create(&s, options->shares_err ? 0 : CREATE_NO_WINDOW, theirs, &child);
    for (int n = 0; n < STREAMS; n++) {
        close_fd(&theirs[n]);
        if (err != LS_OK) close_fd(&child.fds[n]);
    }
    free(s.name);
    free(s.cwd);
    free(s.line);
    free(s.env);
    free(s.program);
    if (err == LS_OK) *out = child;
    return err;
}

long ls_child_read(const ls_child *child, int stream, char *to, size_t len)
{
    const HANDLE pipe = (HANDLE)child->fds[stream];
    DWORD ready = 0, count = 0;
    if (PeekNamedPipe(pipe, NULL, 0, NULL, &ready, NULL)) {
        if (ready == 0) return LS_EAGAIN;
        if (ReadFile(pipe, to, len < ready ? (DWORD)len : ready, &count, NULL)) return (long)count;
    }
    return GetLastError() == ERROR_BROKEN_PIPE ? 0 : last_error();
}

/* Not called: the input is a file. */
long ls_child_write(const ls_child *child, const char *bytes, size_t len)
{
    return LS_EPIPE;
}

void ls_child_close(ls_child *child, int fd)
{
    close_fd(&child->fds[fd]);
}

void ls_child_end(const ls_child *child, bool kill)
{
    if (child->job != 0) {
        (void)TerminateJobObject((HANDLE)child->job, ENDED);
        return;
    }
    const HANDLE leader = OpenProcess(PROCESS_TERMINATE, FALSE, (DWORD)child->pid);
    if (leader == NULL) return;
    (void)TerminateProcess(leader, ENDED);
    (void)CloseHandle(leader);
}

bool ls_child_reap(ls_child *child, int ms)
{
    DWORD code = 0;
    if (child->pid == 0) return true;
    if (WaitForSingleObject((HANDLE)child->leader, (DWORD)ms) == WAIT_TIMEOUT) return false;
    (void)GetExitCodeProcess((HANDLE)child->leader, &code);
    child->code = (int)code;
    ls_child_end(child, true);
    (void)CloseHandle((HANDLE)child->leader);
    (void)CloseHandle((HANDLE)child->job);
    child->pid = 0;
    return true;
}

void ls_child_wait(const ls_child *child, int ms)
{
    (void)WaitForSingleObject((HANDLE)child->leader, (DWORD)(ms < LOOK_MS ? ms : LOOK_MS));
}
