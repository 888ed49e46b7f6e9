/* service_win32.c - luaserve run-as-service, the command that the service manager starts. It follows "Service
 * programs" in Microsoft's documentation of services.
 *
 * The manager calls two functions on its own threads: service_main, which serves, and control, which receives stop
 * requests. While the service starts or drains, the thread pool calls report_progress once a second. So a drain may
 * take as long as the site allows, and the manager ends only a service that hangs.
 *
 * A stop drains, as Ctrl-C does on a console. SERVICE_CONTROL_PARAMCHANGE reloads the site, on the thread pool: the
 * manager waits for control() to return. A service installs no handler for console events: it would receive the
 * log-off event of every user.
 *
 * service_main has no user argument, so its state is the static variable `running`. */
#include "cli/main_win32.h"

#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/wide_win32.h"

enum {
    PROGRESS_MS = 1000,
    HINT_MS = 10000, /* the manager considers the service hung after this time without a report */
    EVENT_FAILED = 1,
};

static struct {
    const ls_arguments *args;
    wchar_t *name;
    SERVICE_STATUS_HANDLE handle;
    SRWLOCK lock; /* guards the fields below */
    SERVICE_STATUS status;
    ls_server *server; /* NULL: not open yet, or closed */
    PTP_WORK reload;   /* NULL: out of memory, or no server */
    int reload_asked, reload_runs;
    int stop_requested;
    wchar_t *log; /* complete path; NULL: none; not guarded: set before the server opens */
    int failed;   /* service_main's result: a handler may still run */
} running = {.lock = SRWLOCK_INIT};

/* ---- the log
 * ----------------------------------------------------------------------------------------------------- */

/* Makes the file the descriptor of a standard stream. A service starts without standard handles, and the streams of
 * its C library have no descriptor; _wfreopen gives them one. (Wine's library refuses that: there printed output is
 * lost, but not the log, which is written to the descriptor.) */
static int redirect(FILE *stream, int number, int file)
{
    if (_fileno(stream) < 0) (void)_wfreopen(L"NUL", L"w", stream);
    const int own = _fileno(stream);
    if (own >= 0 && own != number && _dup2(file, own) < 0) return -1;
    return file == number ? 0 : _dup2(file, number);
}

unsigned long ls_main_log_to(const wchar_t *path)
{
    /* Append access without write access: every write goes to the end of the file, also between other writers. */
    const HANDLE handle =
        CreateFileW(path, FILE_APPEND_DATA | SYNCHRONIZE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    if (handle == INVALID_HANDLE_VALUE) return GetLastError();
    const int file = _open_osfhandle((intptr_t)handle, _O_WRONLY | _O_APPEND | _O_BINARY);
    if (file < 0) {
        CloseHandle(handle);
        return ERROR_TOO_MANY_OPEN_FILES;
    }
    (void)fflush(stdout);
    const int err = redirect(stdout, 1, file) < 0 || redirect(stderr, 2, file) < 0;
    (void)setvbuf(stderr, NULL, _IONBF, 0);
    if (file > 2) (void)_close(file);
    return err ? ERROR_TOO_MANY_OPEN_FILES : 0;
}

/* Write to the system's event log, where an administrator looks when a service does not start, and to the log. */
static void report_failure(const char *message)
{
    wchar_t *wide = ls_wide_of(message);
    HANDLE source = RegisterEventSourceW(NULL, running.name);
    const wchar_t *texts[] = {wide != NULL ? wide : L"luaserve cannot serve"};
    char line[2176];
    const int len = snprintf(line, sizeof line, "luaserve: %s\n", message);
    (void)_write(2, line, (unsigned)(len < (int)sizeof line ? len : (int)sizeof line - 1));
    if (source != NULL) {
        (void)ReportEventW(source, EVENTLOG_ERROR_TYPE, 0, EVENT_FAILED, NULL, 1, 0, texts, NULL);
        (void)DeregisterEventSource(source);
    }
    free(wide);
}

/* ---- reports to the manager
 * -------------------------------------------------------------------------------------- */

/* The caller holds the lock. */
static void report(DWORD state, DWORD error)
{
    SERVICE_STATUS *status = &running.status;
    const int pending = state == SERVICE_START_PENDING || state == SERVICE_STOP_PENDING;
    status->dwServiceType = SERVICE_WIN32_OWN_PROCESS;
    status->dwCheckPoint = pending ? (status->dwCurrentState == state ? status->dwCheckPoint + 1 : 1) : 0;
    status->dwWaitHint = pending ? HINT_MS : 0;
    status->dwCurrentState = state;
    status->dwControlsAccepted = state == SERVICE_RUNNING ? SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN |
                                                                SERVICE_ACCEPT_PRESHUTDOWN | SERVICE_ACCEPT_PARAMCHANGE
                                                          : 0;
    if (state == SERVICE_STOPPED) {
        status->dwWin32ExitCode = error;
        status->dwServiceSpecificExitCode = error == ERROR_SERVICE_SPECIFIC_ERROR ? LS_STATUS_FAILED : 0;
    }
    (void)SetServiceStatus(running.handle, status);
}

static void CALLBACK report_progress(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_TIMER timer)
{
    AcquireSRWLockExclusive(&running.lock);
    const DWORD state = running.status.dwCurrentState;
    if (state == SERVICE_START_PENDING || state == SERVICE_STOP_PENDING) report(state, 0);
    ReleaseSRWLockExclusive(&running.lock);
}

/* Requests that arrive during a reload are one further reload. */
static void CALLBACK reload(PTP_CALLBACK_INSTANCE instance, PVOID server, PTP_WORK work)
{
    char message[2048];
    AcquireSRWLockExclusive(&running.lock);
    while (running.reload_asked) {
        running.reload_asked = 0;
        ReleaseSRWLockExclusive(&running.lock);
        (void)ls_server_reload(server, message, sizeof message); /* it logs the result */
        AcquireSRWLockExclusive(&running.lock);
    }
    running.reload_runs = 0;
    ReleaseSRWLockExclusive(&running.lock);
}

static DWORD WINAPI control(DWORD code, DWORD type, LPVOID data, LPVOID context)
{
    switch (code) {
    case SERVICE_CONTROL_STOP:
    case SERVICE_CONTROL_SHUTDOWN:
    case SERVICE_CONTROL_PRESHUTDOWN:
        AcquireSRWLockExclusive(&running.lock);
        /* Only the first request counts: a second ls_server_stop would end the drain. */
        if (!running.stop_requested && running.status.dwCurrentState != SERVICE_STOPPED) {
            running.stop_requested = 1;
            report(SERVICE_STOP_PENDING, 0);
            if (running.server != NULL) ls_server_stop(running.server);
        }
        ReleaseSRWLockExclusive(&running.lock);
        return NO_ERROR;
    case SERVICE_CONTROL_PARAMCHANGE:
        AcquireSRWLockExclusive(&running.lock);
        if (running.server != NULL && running.reload != NULL) {
            running.reload_asked = 1;
            if (!running.reload_runs) SubmitThreadpoolWork(running.reload);
            running.reload_runs = 1;
        }
        ReleaseSRWLockExclusive(&running.lock);
        return NO_ERROR;
    case SERVICE_CONTROL_INTERROGATE: return NO_ERROR; /* the manager knows the state already */
    default: return ERROR_CALL_NOT_IMPLEMENTED;
    }
}

/* ---- serving
 * ----------------------------------------------------------------------------------------------------- */

/* Change to the folder of the site: a service starts in the system folder. */
static unsigned long enter_folder(void)
{
    wchar_t *path = ls_main_full_path(running.args->server.site);
    wchar_t *last = path != NULL ? wcsrchr(path, L'\\') : NULL;
    if (last == NULL) return ERROR_BAD_PATHNAME;
    last[1] = L'\0';
    const unsigned long error = SetCurrentDirectoryW(path) ? 0 : GetLastError();
    free(path);
    return error;
}

static void serving(void *user)
{
    AcquireSRWLockExclusive(&running.lock);
    if (!running.stop_requested) report(SERVICE_RUNNING, 0);
    ReleaseSRWLockExclusive(&running.lock);
}

static void reopen_log(void *user)
{
    if (running.log != NULL) (void)ls_main_log_to(running.log); /* if it fails, the one in use stays */
}

/* 0, or the error to report to the manager. */
static DWORD serve(void)
{
    ls_server_options options = running.args->server;
    char message[2048], reason[LS_REASON_BYTES_MAX];
    ls_server *server;
    unsigned long error = 0;
    if (running.args->log != NULL) {
        running.log = ls_main_full_path(running.args->log);
        error = running.log != NULL ? ls_main_log_to(running.log) : ERROR_BAD_PATHNAME;
        const int len = snprintf(message, sizeof message, "cannot write the log %s: %s", running.args->log,
                                 ls_main_reason(error, reason, sizeof reason));
        if (error == ERROR_ACCESS_DENIED && len < (int)sizeof message)
            snprintf(message + len, sizeof message - (size_t)len,
                     ": the service must have the right to write to that folder; run: icacls \"FOLDER\" /grant "
                     "\"NT SERVICE\\%s:(OI)(CI)M\"",
                     running.args->name);
    }
    if (error == 0 && (error = enter_folder()) != 0)
        snprintf(message, sizeof message, "cannot enter the folder of %s: %s", running.args->server.site,
                 ls_main_reason(error, reason, sizeof reason));
    if (error != 0) {
        report_failure(message);
        return error;
    }
    options.serving = serving;
    options.reopen_logs = reopen_log;
    if (ls_server_open(&options, &server, message, sizeof message) < 0) {
        const size_t len = strlen(message);
        snprintf(message + len, sizeof message - len, "%s", ls_main_site_hint(options.site));
        report_failure(message);
        return ERROR_SERVICE_SPECIFIC_ERROR;
    }
    AcquireSRWLockExclusive(&running.lock);
    running.server = server;
    running.reload = CreateThreadpoolWork(reload, server, NULL);
    if (running.stop_requested) ls_server_stop(server);
    ReleaseSRWLockExclusive(&running.lock);

    const int err = ls_server_run(server);

    AcquireSRWLockExclusive(&running.lock);
    running.server = NULL;
    if (!running.stop_requested) report(SERVICE_STOP_PENDING, 0); /* the site called ls.stop */
    running.stop_requested = 1;
    ReleaseSRWLockExclusive(&running.lock);
    if (err < 0) { /* a handler may still run in its Lua state, so nothing is freed */
        snprintf(message, sizeof message, "ended early: %s", ls_error_text(err));
        report_failure(message);
        running.failed = 1;
        return ERROR_SERVICE_SPECIFIC_ERROR;
    }
    if (running.reload != NULL) { /* no further request is submitted: running.server is NULL */
        WaitForThreadpoolWorkCallbacks(running.reload, FALSE);
        CloseThreadpoolWork(running.reload);
    }
    ls_server_close(server);
    return NO_ERROR;
}

static void WINAPI service_main(DWORD argc, LPWSTR *argv)
{
    /* the arguments of "sc start", in addition to the service's command line */
    running.handle = RegisterServiceCtrlHandlerExW(running.name, control, NULL);
    if (running.handle == NULL) return; /* the manager detects the end of the process */
    AcquireSRWLockExclusive(&running.lock);
    report(SERVICE_START_PENDING, 0);
    ReleaseSRWLockExclusive(&running.lock);

    /* Every PROGRESS_MS, first after PROGRESS_MS (negative: relative to now, in 100 ns). */
    ULARGE_INTEGER due = {.QuadPart = 0 - (ULONGLONG)PROGRESS_MS * 10000};
    FILETIME first = {due.LowPart, due.HighPart};
    /* Without the timer the service has HINT_MS to start and to drain. */
    PTP_TIMER timer = CreateThreadpoolTimer(report_progress, NULL, NULL);
    if (timer != NULL) SetThreadpoolTimer(timer, &first, PROGRESS_MS, 0);

    const DWORD error = serve();

    if (timer != NULL) {
        SetThreadpoolTimer(timer, NULL, 0, 0);
        WaitForThreadpoolTimerCallbacks(timer, TRUE);
        CloseThreadpoolTimer(timer);
    }
    (void)fflush(NULL);
    AcquireSRWLockExclusive(&running.lock);
    report(SERVICE_STOPPED, error); /* the last call: the process may end at any moment after it */
    ReleaseSRWLockExclusive(&running.lock);
}

int ls_main_run_service(const ls_arguments *args)
{
    running.args = args;
    running.name = ls_wide_of(args->name);
    if (running.name == NULL) return ls_main_fail("run-as-service", ERROR_INVALID_NAME);
    const SERVICE_TABLE_ENTRYW table[] = {{running.name, service_main}, {NULL, NULL}};
    if (!StartServiceCtrlDispatcherW(table)) {
        const DWORD error = GetLastError();
        if (error != ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) return ls_main_fail("run-as-service", error);
        fprintf(
            stderr,
            "luaserve: run-as-service is for the service manager, which did not start this program (error %lu); run: "
            "luaserve %s\nor install a service: luaserve install %s\n",
            error, args->server.site, args->server.site);
        return LS_STATUS_USAGE;
    }
    if (running.failed) _Exit(LS_STATUS_FAILED);
    return LS_STATUS_OK;
}
