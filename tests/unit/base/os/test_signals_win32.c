/* test_signals_win32.c - the console events: which of them wait for the end of the process; the named events. */
#include "base/io/log.h"
#include "base/os/signals.h"
#include "base/os/signals_win32.h"

#include "support.h"

#include <wchar.h>

typedef struct calls {
    HANDLE called; /* signalled by each call */
    volatile LONG times;
} calls;

static void called(void *user)
{
    calls *h = user;
    InterlockedIncrement(&h->times);
    (void)SetEvent(h->called);
}

static DWORD WINAPI call_handler(void *event)
{
    return (DWORD)ls_signals_handle((DWORD)(uintptr_t)event);
}

static HANDLE system_calls(DWORD event)
{
    HANDLE thread = CreateThread(NULL, 0, call_handler, (void *)(uintptr_t)event, 0, NULL);
    assert_non_null(thread);
    return thread;
}

static DWORD result_of(HANDLE thread)
{
    DWORD result = 99;
    assert_int_equal(WaitForSingleObject(thread, 90000), WAIT_OBJECT_0);
    assert_true(GetExitCodeThread(thread, &result));
    CloseHandle(thread);
    return result;
}

static ls_signals *begin(calls *h)
{
    ls_signals *signals;
    h->times = 0;
    h->called = CreateEventW(NULL, FALSE, FALSE, NULL);
    assert_non_null(h->called);
    assert_int_equal(ls_signals_open(&(ls_signals_options){.on_stop = called, .user = h}, &signals), 0);
    assert_int_equal(ls_signals_take_stops(signals), 0);
    return signals;
}

TEST(ctrl_c_calls_and_returns_immediately)
{
    static const DWORD events[] = {CTRL_C_EVENT, CTRL_BREAK_EVENT, CTRL_C_EVENT};
    calls h;
    ls_signals *signals = begin(&h);
    for (LONG i = 0; i < 3; i++) {
        assert_int_equal(result_of(system_calls(events[i])), TRUE);
        assert_int_equal(h.times, i + 1);
    }
    ls_signals_close(signals);
    CloseHandle(h.called);
}

static char logged[256];

static void keep_line(int level, const char *line, size_t len, void *user)
{
    snprintf(logged, sizeof logged, "%.*s", (int)len, line);
}

/* The system ends the process when the handler returns: the handler returns neither while the server drains nor while
 * the program ends behind it. */
TEST(a_close_waits_for_the_end_of_the_process)
{
    static const DWORD events[] = {CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT};
    static const char *const why[] = {
        "the console window was closed: ", "the user logs off: ", "the system shuts down: "};
    ls_log_set_sink(keep_line, NULL);
    for (int i = 0; i < 3; i++) {
        calls h;
        ls_signals *signals = begin(&h);
        HANDLE thread = system_calls(events[i]);
        assert_int_equal(WaitForSingleObject(h.called, 90000), WAIT_OBJECT_0);
        assert_int_equal(WaitForSingleObject(thread, 100), WAIT_TIMEOUT); /* still draining */
        ls_signals_close(signals);
        assert_int_equal(WaitForSingleObject(thread, 0), WAIT_TIMEOUT);
        CloseHandle(thread);
        assert_int_equal(h.times, 1);
        assert_non_null(strstr(logged, why[i]));
        CloseHandle(h.called);
    }
    ls_log_set_sink(NULL, NULL);
}

static struct {
    bool exists;
    DWORD mode;
} console;

extern HANDLE(WINAPI *__real___imp_CreateFileW)(LPCWSTR, DWORD, DWORD, LPSECURITY_ATTRIBUTES, DWORD, DWORD, HANDLE);
extern BOOL(WINAPI *__real___imp_CloseHandle)(HANDLE);

static HANDLE WINAPI fake_open(LPCWSTR name, DWORD access, DWORD share, LPSECURITY_ATTRIBUTES security, DWORD how,
                               DWORD flags, HANDLE other)
{
    if (wcscmp(name, L"CONIN$") != 0)
        return __real___imp_CreateFileW(name, access, share, security, how, flags, other);
    return console.exists ? (HANDLE)&console : INVALID_HANDLE_VALUE;
}

static BOOL WINAPI fake_close(HANDLE handle)
{
    return handle == (HANDLE)&console || __real___imp_CloseHandle(handle);
}

static BOOL WINAPI fake_mode(HANDLE handle, LPDWORD mode)
{
    if (handle != (HANDLE)&console) return FALSE;
    *mode = console.mode;
    return TRUE;
}

static BOOL WINAPI fake_set_mode(HANDLE handle, DWORD mode)
{
    assert_ptr_equal(handle, &console);
    assert_true(mode & ENABLE_EXTENDED_FLAGS); /* without it the system ignores ENABLE_QUICK_EDIT_MODE */
    console.mode = mode;
    return TRUE;
}

HANDLE(WINAPI *__wrap___imp_CreateFileW)
(LPCWSTR, DWORD, DWORD, LPSECURITY_ATTRIBUTES, DWORD, DWORD, HANDLE) = fake_open;
BOOL(WINAPI *__wrap___imp_CloseHandle)(HANDLE) = fake_close;
BOOL(WINAPI *__wrap___imp_GetConsoleMode)(HANDLE, LPDWORD) = fake_mode;
BOOL(WINAPI *__wrap___imp_SetConsoleMode)(HANDLE, DWORD) = fake_set_mode;

TEST(a_click_into_the_window_does_not_stop_the_output)
{
    const DWORD others = ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT | ENABLE_EXTENDED_FLAGS;
    for (int quick = 0; quick <= 1; quick++) {
        const DWORD before = others | (quick ? ENABLE_QUICK_EDIT_MODE : 0);
        calls h;
        console.exists = true;
        console.mode = before;
        ls_signals *signals = begin(&h);
        assert_int_equal(console.mode, others);
        console.mode |= ENABLE_PROCESSED_INPUT; /* changed since by another part of the program: it stays */
        ls_signals_close(signals);
        assert_int_equal(console.mode, before | ENABLE_PROCESSED_INPUT);
        CloseHandle(h.called);
    }
    console.exists = false;
}

TEST(without_a_server_the_system_decides)
{
    calls h;
    assert_int_equal(result_of(system_calls(CTRL_C_EVENT)), FALSE);
    ls_signals_close(begin(&h));
    assert_int_equal(result_of(system_calls(CTRL_CLOSE_EVENT)), FALSE);
    assert_int_equal(h.times, 0);
    CloseHandle(h.called);
}

/* The system's routine calls the handler under a lock that SetConsoleCtrlHandler takes as well. The last test, because
 * the handler holds that lock from here on. */
TEST(the_server_can_be_closed_while_the_handler_waits)
{
    const FARPROC found = GetProcAddress(GetModuleHandleW(L"kernelbase"), "CtrlRoutine");
    LPTHREAD_START_ROUTINE routine;
    calls h;
    if (found == NULL) {
        print_message("skipped: of another system: CtrlRoutine is exported\n");
        skip();
    }
    memcpy(&routine, &found, sizeof routine);
    ls_signals *signals = begin(&h);
    const HANDLE thread = CreateThread(NULL, 0, routine, (void *)(uintptr_t)CTRL_CLOSE_EVENT, 0, NULL);
    assert_non_null(thread);
    assert_int_equal(WaitForSingleObject(h.called, 90000), WAIT_OBJECT_0);
    ls_signals_close(signals);
    assert_int_equal(WaitForSingleObject(thread, 0), WAIT_TIMEOUT); /* the close has not waited for it */
    CloseHandle(thread);
    CloseHandle(h.called);
}

static void other_called(void *user, const char *name)
{
    if (strcmp(name, "SIGHUP") == 0) called(user);
}

static void set_named(const wchar_t *format)
{
    wchar_t name[LS_EVENT_NAME_CHARS_MAX];
    (void)_snwprintf(name, LS_EVENT_NAME_CHARS_MAX, format, (unsigned long)GetCurrentProcessId());
    const HANDLE event = OpenEventW(EVENT_MODIFY_STATE, FALSE, name);
    assert_non_null(event);
    assert_true(SetEvent(event));
    CloseHandle(event);
}

TEST(named_events_stop_and_reload)
{
    calls stops = {CreateEventW(NULL, FALSE, FALSE, NULL), 0}, reloads = {CreateEventW(NULL, FALSE, FALSE, NULL), 0};
    ls_signals *signals, *second;
    assert_int_equal(ls_signals_open(&(ls_signals_options){.on_stop = called, .user = &stops}, &signals), LS_OK);
    assert_int_equal(ls_signals_open(&(ls_signals_options){.on_stop = called}, &second), LS_EBUSY);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    set_named(LS_RELOAD_EVENT); /* without on_other it has no effect */
    for (int n = 1; n <= 2; n++) {
        set_named(LS_STOP_EVENT);
        assert_int_equal(WaitForSingleObject(stops.called, 90000), WAIT_OBJECT_0);
        assert_int_equal(stops.times, n);
    }
    ls_signals_close(signals);

    assert_int_equal(ls_signals_open(&(ls_signals_options){.on_other = other_called, .user = &reloads}, &signals),
                     LS_OK);
    for (int n = 1; n <= 2; n++) {
        set_named(LS_RELOAD_EVENT);
        assert_int_equal(WaitForSingleObject(reloads.called, 90000), WAIT_OBJECT_0);
        assert_int_equal(reloads.times, n);
    }
    ls_signals_close(signals);
    CloseHandle(stops.called);
    CloseHandle(reloads.called);
}
