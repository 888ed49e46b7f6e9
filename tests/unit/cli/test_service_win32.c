/* test_service_win32.c - a service that cannot begin: the state that it reports to the service manager, and the
 * message in the event log, which no program can read under Wine. And a service that is asked to reload its site. The
 * calls of both are replaced. */
#include <winsock2.h>

#include <windows.h>

#include "cli/main_win32.h"
#include "support.h"

static struct {
    SERVICE_STATUS status; /* the last one reported */
    char text[4096];       /* of the last event */
    int events;
    LPHANDLER_FUNCTION_EX control;
    LPTHREAD_START_ROUTINE while_it_runs; /* NULL, or started when the service runs */
    HANDLE thread;
    DWORD accepted; /* by the running service */
} sys;

static BOOL WINAPI fake_dispatch(const SERVICE_TABLE_ENTRYW *table)
{
    table[0].lpServiceProc(0, NULL);
    return TRUE;
}

static SERVICE_STATUS_HANDLE WINAPI fake_register(LPCWSTR name, LPHANDLER_FUNCTION_EX control, LPVOID context)
{
    sys.control = control;
    assert_int_equal(wcscmp(name, L"the service"), 0);
    return (SERVICE_STATUS_HANDLE)&sys;
}

static BOOL WINAPI fake_status(SERVICE_STATUS_HANDLE handle, LPSERVICE_STATUS status)
{
    assert_ptr_equal(handle, &sys);
    sys.status = *status;
    if (status->dwCurrentState == SERVICE_RUNNING && sys.while_it_runs != NULL && sys.thread == NULL) {
        sys.accepted = status->dwControlsAccepted;
        sys.thread = CreateThread(NULL, 0, sys.while_it_runs, NULL, 0, NULL);
    }
    return TRUE;
}

static HANDLE WINAPI fake_source(LPCWSTR server, LPCWSTR name)
{
    assert_int_equal(wcscmp(name, L"the service"), 0);
    return &sys;
}

static BOOL WINAPI fake_report(HANDLE source, WORD type, WORD category, DWORD event, PSID user, WORD count, DWORD size,
                               LPCWSTR *texts, LPVOID data)
{
    (void)category, (void)event, (void)user, (void)size, (void)data;
    assert_ptr_equal(source, &sys);
    assert_int_equal(type, EVENTLOG_ERROR_TYPE);
    assert_int_equal(count, 1);
    char *text = ls_main_utf8(texts[0]);
    assert_non_null(text);
    (void)snprintf(sys.text, sizeof sys.text, "%s", text);
    free(text);
    sys.events++;
    return TRUE;
}

static BOOL WINAPI fake_source_end(HANDLE source)
{
    assert_ptr_equal(source, &sys);
    return TRUE;
}

BOOL(WINAPI *__wrap___imp_StartServiceCtrlDispatcherW)(const SERVICE_TABLE_ENTRYW *) = fake_dispatch;
SERVICE_STATUS_HANDLE(WINAPI *__wrap___imp_RegisterServiceCtrlHandlerExW)
(LPCWSTR, LPHANDLER_FUNCTION_EX, LPVOID) = fake_register;
BOOL(WINAPI *__wrap___imp_SetServiceStatus)(SERVICE_STATUS_HANDLE, LPSERVICE_STATUS) = fake_status;
HANDLE(WINAPI *__wrap___imp_RegisterEventSourceW)(LPCWSTR, LPCWSTR) = fake_source;
BOOL(WINAPI *__wrap___imp_ReportEventW)
(HANDLE, WORD, WORD, DWORD, PSID, WORD, DWORD, LPCWSTR *, LPVOID) = fake_report;
BOOL(WINAPI *__wrap___imp_DeregisterEventSource)(HANDLE) = fake_source_end;

static void run(const char *site, const char *log)
{
    ls_arguments args = {.name = "the service", .log = log, .server.site = site};
    memset(&sys, 0, sizeof sys);
    assert_int_equal(ls_main_run_service(&args), LS_STATUS_OK); /* the manager receives the error */
    assert_int_equal(sys.status.dwCurrentState, SERVICE_STOPPED);
    assert_int_equal(sys.events, 1);
    print_message("  %.200s\n", sys.text);
}

static void the_text_ends_with(const char *end)
{
    const size_t len = strlen(sys.text), end_len = strlen(end);
    assert_true(len >= end_len);
    assert_string_equal(sys.text + len - end_len, end);
}

static void the_text_begins_with(const char *start)
{
    assert_int_equal(strncmp(sys.text, start, strlen(start)), 0);
}

TEST(a_log_in_a_folder_that_does_not_exist)
{
    run("C:\\site.lua", "C:\\nowhere \xc3\xbc\\the.log");
    assert_int_equal(sys.status.dwWin32ExitCode, ERROR_PATH_NOT_FOUND);
    the_text_begins_with("cannot write the log C:\\nowhere \xc3\xbc\\the.log: ");
    the_text_ends_with(" (error 3)");
    assert_null(strstr(sys.text, ": (error")); /* the text of the system lies between */
    assert_null(strstr(sys.text, "icacls"));
}

TEST(a_log_that_the_account_may_not_write)
{
    run("C:\\site.lua", "C:\\windows"); /* a folder: access denied to every account */
    assert_int_equal(sys.status.dwWin32ExitCode, ERROR_ACCESS_DENIED);
    the_text_begins_with("cannot write the log C:\\windows: ");
    the_text_ends_with(" (error 5): the service must have the right to write to that folder; run: icacls \"FOLDER\" "
                       "/grant \"NT SERVICE\\the service:(OI)(CI)M\"");
}

TEST(a_folder_of_the_site_that_does_not_exist)
{
    run("C:\\nowhere\\site.lua", NULL);
    assert_int_not_equal(sys.status.dwWin32ExitCode, 0);
    the_text_begins_with("cannot enter the folder of C:\\nowhere\\site.lua: ");
}

/* A path longer than the message: the message is cut, and the service ends all the same. */
TEST(a_message_longer_than_its_buffer)
{
    static char log[4000];
    memset(log, 'x', sizeof log - 1);
    memcpy(log, "C:\\", 3);
    run("C:\\site.lua", log);
    assert_int_not_equal(sys.status.dwWin32ExitCode, 0);
    the_text_begins_with("cannot write the log C:\\xxx");
    assert_int_equal(strlen(sys.text), 2047);
}

static HANDLE reloaded;
static int reload_result;

static void on_reloaded(void *user, int result, const char *message)
{
    (void)user, (void)message;
    reload_result = result;
    (void)SetEvent(reloaded);
}

static DWORD WINAPI reload_and_stop(void *unused)
{
    const DWORD asked = sys.control(SERVICE_CONTROL_PARAMCHANGE, 0, NULL, NULL);
    const DWORD waited = WaitForSingleObject(reloaded, 60000);
    const DWORD stopped = sys.control(SERVICE_CONTROL_STOP, 0, NULL, NULL);
    return asked == NO_ERROR && waited == WAIT_OBJECT_0 && stopped == NO_ERROR;
}

TEST(a_change_of_parameters_reloads_the_site)
{
    char path[MAX_PATH], folder[MAX_PATH];
    DWORD done = 0;
    assert_in_range(GetTempPathA(sizeof folder, folder), 1, sizeof folder - 1);
    assert_int_not_equal(GetTempFileNameA(folder, "ls", 0, path), 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs("require('luaserve').every(3600, function() end)\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_non_null(reloaded = CreateEventW(NULL, FALSE, FALSE, NULL));
    reload_result = 1;

    ls_arguments args = {.name = "the service",
                         .server = {.size = sizeof args.server, .site = path, .reloaded = on_reloaded}};
    memset(&sys, 0, sizeof sys);
    sys.while_it_runs = reload_and_stop;
    assert_int_equal(ls_main_run_service(&args), LS_STATUS_OK);
    assert_int_equal(sys.status.dwCurrentState, SERVICE_STOPPED);
    assert_int_equal(sys.status.dwWin32ExitCode, NO_ERROR);
    assert_int_equal(sys.events, 0);
    assert_true(sys.accepted & SERVICE_ACCEPT_PARAMCHANGE);
    assert_non_null(sys.thread);
    assert_int_equal(WaitForSingleObject(sys.thread, 60000), WAIT_OBJECT_0);
    assert_true(GetExitCodeThread(sys.thread, &done) && done);
    assert_int_equal(reload_result, 0);
    CloseHandle(sys.thread);
    CloseHandle(reloaded);
    assert_int_equal(SetCurrentDirectoryA("C:\\"), TRUE);
    assert_int_equal(DeleteFileA(path), TRUE);
}
