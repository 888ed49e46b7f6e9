/* pid_win32.c - see pid.h. The server keeps its file open, and lets others only read it: the system refuses a second
 * writer until the server has ended. The server waits for the named events of luaserve.h (.signals), which the
 * commands set; an event exists as long as its process, in the session of its user. */
#include "cli/pid.h"

#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#include "cli/main_win32.h"

enum { EVENT_NAME_CHARS_MAX = 48, SHARE_ALL = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE };

#define RELOAD_EVENT L"Local\\luaserve-reload-%lu"
#define STOP_EVENT   L"Local\\luaserve-stop-%lu"

static HANDLE pid_file;   /* NULL: none */
static wchar_t *pid_path; /* complete paths: the site may change the directory */
static wchar_t *log_path; /* NULL: standard error */

static int fail_path(const char *what, const char *path, DWORD error)
{
    char reason[LS_REASON_BYTES_MAX];
    fprintf(stderr, "luaserve: cannot %s %s: %s\n", what, path, ls_main_reason(error, reason, sizeof reason));
    return -1;
}

/* The number in the file; 0: it has none. */
static long read_pid(const wchar_t *path)
{
    char text[32];
    DWORD len = 0;
    const HANDLE file = CreateFileW(path, GENERIC_READ, SHARE_ALL, NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) return 0;
    if (!ReadFile(file, text, sizeof text - 1, &len, NULL)) len = 0;
    (void)CloseHandle(file);
    text[len] = '\0';
    return strtol(text, NULL, 10);
}

int ls_pid_file_open(const char *path)
{
    char text[32];
    DWORD written;
    wchar_t *wide = ls_main_full_path(path);
    if (wide == NULL) return fail_path("write", path, GetLastError());
    const HANDLE file =
        CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        const DWORD error = GetLastError();
        const long owner = error == ERROR_SHARING_VIOLATION ? read_pid(wide) : 0;
        if (owner != 0)
            fprintf(stderr, "luaserve: the server with the process id %ld owns %s; give another --pid\n", owner, path);
        else
            (void)fail_path("write", path, error);
        free(wide);
        return -1;
    }
    const int len = snprintf(text, sizeof text, "%lu\n", (unsigned long)GetCurrentProcessId());
    if (!WriteFile(file, text, (DWORD)len, &written, NULL)) {
        (void)fail_path("write", path, GetLastError());
        (void)CloseHandle(file);
        free(wide);
        return -1;
    }
    pid_file = file;
    pid_path = wide;
    return 0;
}

void ls_pid_file_remove(int ok)
{
    /* ls_pid_stop reads the status of the process */
    if (pid_file == NULL) return;
    (void)CloseHandle(pid_file);
    (void)DeleteFileW(pid_path); /* without effect on the file of a server that has begun meanwhile: it is open */
    free(pid_path);
    pid_file = NULL;
    pid_path = NULL;
}

/* ---- the log ------------------------------------------------------------------------------------------------ */

int ls_pid_file_take(const char *path)
{
    return ls_pid_file_open(path);
}

int ls_log_file_open(const char *path)
{
    wchar_t *wide = ls_main_full_path(path);
    const DWORD error = wide != NULL ? ls_main_log_to(wide) : GetLastError();
    if (error != 0) {
        free(wide);
        return fail_path("write the log", path, error);
    }
    log_path = wide;
    return 0;
}

void ls_log_file_reopen(void)
{
    const DWORD error = log_path != NULL ? ls_main_log_to(log_path) : 0;
    if (error != 0) (void)ls_main_fail("cannot open the log again; the one in use stays", error);
}

/* ---- the owner ---------------------------------------------------------------------------------------------- */

static HANDLE open_event(const wchar_t *format, long pid)
{
    wchar_t name[EVENT_NAME_CHARS_MAX];
    (void)_snwprintf(name, EVENT_NAME_CHARS_MAX, format, (unsigned long)pid);
    return OpenEventW(EVENT_MODIFY_STATE, FALSE, name);
}

static int set_event(const wchar_t *format, long pid)
{
    const HANDLE event = open_event(format, pid);
    if (event == NULL) return -1;
    const BOOL done = SetEvent(event);
    (void)CloseHandle(event);
    return done ? 0 : -1;
}

/* The file of a live server cannot be opened by those who share only reads, because the server writes to it. The event
 * is tested first: so only a file whose process id is used again is opened in this way, which a server that begins at
 * that moment would take for another server. */
long ls_pid_file_owner(const char *path)
{
    wchar_t *wide = ls_main_full_path(path);
    const long pid = wide != NULL ? read_pid(wide) : 0;
    const HANDLE event = pid != 0 ? open_event(STOP_EVENT, pid) : NULL;
    int owned = 0;
    if (event != NULL) {
        const HANDLE file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
        owned = file == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION;
        if (file != INVALID_HANDLE_VALUE) (void)CloseHandle(file);
        (void)CloseHandle(event);
    }
    free(wide);
    return owned ? pid : 0;
}

void ls_pid_take_reload(void)
{
    /* The server always has its event. */
}

int ls_pid_upgrade(long pid)
{
    return -1;
}

int ls_pid_reload(long pid)
{
    return set_event(RELOAD_EVENT, pid);
}

int ls_pid_stop(long pid, const char *path)
{
    const DWORD rights = SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION;
    const HANDLE process = OpenProcess(rights, FALSE, (DWORD)pid); /* before it can end */
    DWORD status = 0;
    if (process == NULL) return -1;
    const int err = set_event(STOP_EVENT, pid);
    if (err == 0) (void)WaitForSingleObject(process, INFINITE);
    if (err == 0) (void)GetExitCodeProcess(process, &status);
    (void)CloseHandle(process);
    return err == 0 ? status != 0 : err;
}
