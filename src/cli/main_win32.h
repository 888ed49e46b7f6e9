/* cli/main_win32.h - what the files of the command line share on Windows. */
#ifndef LS_CLI_MAIN_WIN32_H
#define LS_CLI_MAIN_WIN32_H

#include <stddef.h>
#include <wchar.h>

#include "cli/main.h"

enum { LS_COMMAND_CHARS_MAX = 32767 }; /* of a process's command line, its terminator included (CreateProcess) */

/* UTF-16 and UTF-8, in memory that is the caller's to free. NULL: it is no Unicode, or there is no memory. */
char *ls_main_utf8(const wchar_t *wide);
wchar_t *ls_main_wide(const char *utf8);

/* Append an argument to a command line of `room` characters, after a space if it is not the first, quoted so that
 * CommandLineToArgvW and the C library give it back as it is. 0, or -1 when it does not fit: the line is as it was. */
int ls_main_quote(wchar_t *line, size_t room, const wchar_t *argument);

/* The path, complete, in memory that is the caller's to free. NULL: GetLastError says why. */
wchar_t *ls_main_full_path(const char *path);

/* From now on standard output and standard error are appended to this file, whole writes of several threads one after the
 * other. Others may read it, rename it or delete it meanwhile. 0, or the error of the system. */
unsigned long ls_main_log_to(const wchar_t *path);

/* run-as-service: returns when the service has ended. */
int ls_main_run_service(const ls_arguments *args);

/* A line on standard error: "luaserve: WHAT: " and the system's text for its error number. LS_STATUS_FAILED. */
int ls_main_fail(const char *what, unsigned long error);

enum { LS_SERVICE_NAME_CHARS_MAX = 256 };
#define LS_SERVICE_NAME "luaserve" /* without a --name */

#endif
