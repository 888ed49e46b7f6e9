/* readable.h - pipes and the console: what no poll of the system covers is looked at from time to time. For
 * iocp_notify.c. */
#ifndef LS_PORT_WIN32_READABLE_H
#define LS_PORT_WIN32_READABLE_H

#include <windows.h>

#include <stdint.h>

#include "port/fd.h"

enum { LS_LOOK_MS = 50 }; /* between two looks: nobody watchers that of a key */

typedef enum ls_readable { LS_READABLE_NONE, LS_READABLE_PIPE, LS_READABLE_CONSOLE } ls_readable;

/* The handle that is meant: 0, 1 and 2, which are no handles, are those of the C library. */
ls_fd ls_readable_fd(ls_fd fd);

/* What it is. NONE: a file, a device, or nothing at all. */
ls_readable ls_readable_kind(HANDLE handle);

/* LS_EVENT_* that hold now: IN when a read does not block (a console: a line or a key is there, by its mode), HANGUP when
 * the other end is closed, OUT on the writing end of a pipe, ERR there when nobody can read any more. *amount: how much there
 * is to be read, in any unit. */
uint32_t ls_readable_now(HANDLE handle, ls_readable kind, uint32_t *amount);

#endif
