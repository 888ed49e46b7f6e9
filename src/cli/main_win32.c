/* main_win32.c - where the program begins on Windows: arguments in UTF-8, and no box on the screen that waits for a click.
 *
 * The wide arguments are what the user wrote; those of main would have lost what is not in the system's code page. */
#include "cli/main_win32.h"

#include <windows.h>

#include <crtdbg.h>
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int wmain(int argc, wchar_t **wide); /* the C library calls it in the place of main */

/* mingw-w64's start-up code would replace "*.lua" by the names of files (its documentation: _dowildcard); programs on
 * Windows get what was written, and pass it on to the site. */
int _dowildcard = 0;

/* abort, in the place of the library's report to the system: why was said on standard error. */
static void end_at_once(int number)
{
    enum { STATUS_ABORTED = 3 }; /* as the library has it */
    (void)number;
    _exit(STATUS_ABORTED);
}

/* No box, whoever would show one: the system for what is fatal or a drive without a disk, the C library for a failed
 * assertion, abort, or an argument that it does not like. All of that goes to standard error. */
static void show_no_box(void)
{
    (void)SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
    (void)_set_error_mode(_OUT_TO_STDERR);
    (void)signal(SIGABRT, end_at_once);
    (void)_CrtSetReportMode(_CRT_ASSERT,
                            _CRTDBG_MODE_FILE); /* the last four are the debug library's, nothing elsewhere */
    (void)_CrtSetReportFile(_CRT_ASSERT, _CRTDBG_FILE_STDERR);
    (void)_CrtSetReportMode(_CRT_ERROR, _CRTDBG_MODE_FILE);
    (void)_CrtSetReportFile(_CRT_ERROR, _CRTDBG_FILE_STDERR);
}

int wmain(int argc, wchar_t **wide)
{
    char **argv = calloc((size_t)argc + 1, sizeof *argv);

    show_no_box();
    (void)SetConsoleOutputCP(CP_UTF8); /* fails without a console */
    (void)_setmode(_fileno(stdout), _O_BINARY);
    (void)_setmode(_fileno(stderr), _O_BINARY);
    (void)setvbuf(stderr, NULL, _IONBF, 0); /* it is not so with every C library */

    for (int i = 0; argv != NULL && i < argc; i++)
        if ((argv[i] = ls_main_utf8(wide[i])) == NULL) {
            fprintf(stderr, "luaserve: argument %d is no Unicode text, or there is no memory for it\n", i);
            return LS_STATUS_FAILED;
        }
    if (argv == NULL) {
        fprintf(stderr, "luaserve: no memory for the arguments\n");
        return LS_STATUS_FAILED;
    }
    return ls_command_line(argc, argv);
}
