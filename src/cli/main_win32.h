/* cli/main_win32.h - shared by the files of the command line on Windows. */
#ifndef LS_CLI_MAIN_WIN32_H
#define LS_CLI_MAIN_WIN32_H

#include <stddef.h>
#include <wchar.h>

#include "cli/main.h"

enum { LS_COMMAND_CHARS_MAX = 32767 }; /* of a process, including the terminator (CreateProcess) */

/* The text in UTF-8, as base/os/wide_win32.h for the other direction; the caller frees it. NULL: invalid Unicode, or
 * out of memory. */
char *ls_main_utf8(const wchar_t *wide);

/* The complete path; the caller frees it. NULL: see GetLastError. */
wchar_t *ls_main_full_path(const char *path);

/* Append standard output and standard error to this file from now on; concurrent writes are not mixed. Other programs
 * may read, rename or delete the file meanwhile. 0, or the error of the system. */
unsigned long ls_main_log_to(const wchar_t *path);

/* Runs the service; returns when it has ended. */
int ls_main_run_service(const ls_arguments *args);

enum { LS_REASON_BYTES_MAX = 1100 };
/* Write the system's text for the error number and "(error NUMBER)" to `out`, which is the result. */
const char *ls_main_reason(unsigned long error, char *out, size_t bytes);

/* Print "luaserve: WHAT: " and the reason to standard error. Returns LS_STATUS_FAILED. */
int ls_main_fail(const char *what, unsigned long error);

#define LS_SERVICE_NAME "luaserve" /* the default of --name */

#endif
