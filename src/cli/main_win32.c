/* main_win32.c - the entry point on Windows: UTF-8 arguments, and no dialog box that waits for a click.
 *
 * It uses the wide arguments, because those of main lose every character outside the system's code page. */
#include "cli/main_win32.h"

#include <windows.h>

#include <crtdbg.h>
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

int wmain(int argc, wchar_t **wide); /* the C library calls it instead of main */

/* The start-up code of mingw-w64 would expand "*.lua" to file names (its documentation: _dowildcard); this program
 * passes its arguments to the site unchanged. */
int _dowildcard = 0;

/* Replaces the handler of abort, which would report to the system: the reason is already on standard error. */
static void end_at_once(int number)
{
    enum { STATUS_ABORTED = 3 }; /* as in the C library */
    _exit(STATUS_ABORTED);
}

WINBASEAPI HRESULT WINAPI WerSetFlags(DWORD flags); /* werapi.h, which mingw-w64 has without the flag */
enum { WER_NO_UI = 0x20 };                          /* WER_FAULT_REPORTING_NO_UI */

/* Disable the dialog boxes of the system (fatal errors, a drive without a disk) and of the C library (a failed
 * assertion, abort, an invalid parameter). Their messages go to standard error. */
static void disable_dialogs(void)
{
    /* SEM_NOGPFAULTERRORBOX would turn off error reporting as well: no dump of a crash, no event in the system's
     * log. */
    const UINT reports = WerSetFlags(WER_NO_UI) == S_OK ? 0 : SEM_NOGPFAULTERRORBOX;
    (void)SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX | reports);
    (void)_set_error_mode(_OUT_TO_STDERR);
    (void)signal(SIGABRT, end_at_once);
    /* the last four have an effect only with the debug library */
    (void)_CrtSetReportMode(_CRT_ASSERT, _CRTDBG_MODE_FILE);
    (void)_CrtSetReportFile(_CRT_ASSERT, _CRTDBG_FILE_STDERR);
    (void)_CrtSetReportMode(_CRT_ERROR, _CRTDBG_MODE_FILE);
    (void)_CrtSetReportFile(_CRT_ERROR, _CRTDBG_FILE_STDERR);
}

enum { STATUS_OF_SYSTEM = -1 }; /* until ls_command_end_within: the system or a server handles console events */
static atomic_int status_on_signal = STATUS_OF_SYSTEM;

/* Called after the handlers that were registered later. It is registered at the start, because SetConsoleCtrlHandler
 * waits while a handler runs, and that of a server runs until the process ends when the console is closed. */
static BOOL WINAPI end_on_console_event(DWORD event)
{
    const int status = atomic_load(&status_on_signal);
    if (status == STATUS_OF_SYSTEM) return FALSE;
    (void)TerminateProcess(GetCurrentProcess(), (UINT)status); /* ExitProcess may wait for locks */
    return TRUE;
}

static void CALLBACK end_late(void *user, BOOLEAN fired)
{
    (void)TerminateProcess(GetCurrentProcess(), LS_STATUS_FAILED);
}

void ls_command_end_within(unsigned seconds, int status)
{
    HANDLE timer;
    atomic_store(&status_on_signal, status);
    (void)CreateTimerQueueTimer(&timer, NULL, end_late, NULL, seconds * 1000, 0, WT_EXECUTEONLYONCE);
}

/* The console outlives this program, and others may write to it in the user's code page. */
static UINT code_page; /* 0: no console */

static void restore_code_page(void)
{
    (void)SetConsoleOutputCP(code_page);
}

int wmain(int argc, wchar_t **wide)
{
    char **argv = calloc((size_t)argc + 1, sizeof *argv);

    disable_dialogs();
    (void)SetConsoleCtrlHandler(end_on_console_event, TRUE);
    if ((code_page = GetConsoleOutputCP()) != 0 && SetConsoleOutputCP(CP_UTF8)) (void)atexit(restore_code_page);
    (void)_setmode(_fileno(stdout), _O_BINARY);
    (void)_setmode(_fileno(stderr), _O_BINARY);
    (void)setvbuf(stderr, NULL, _IONBF, 0); /* some C libraries buffer it */

    for (int i = 0; argv != NULL && i < argc; i++)
        if ((argv[i] = ls_main_utf8(wide[i])) == NULL) {
            fprintf(stderr, "luaserve: argument %d is invalid Unicode, or memory is out\n", i);
            return LS_STATUS_FAILED;
        }
    if (argv == NULL) {
        fprintf(stderr, "luaserve: out of memory\n");
        return LS_STATUS_FAILED;
    }
    return ls_command_line(argc, argv);
}
