/* readable.h - the state of pipes and the console, which cannot be polled and are checked at intervals
 * by iocp_notify.c. */
#ifndef LS_PORT_WIN32_READABLE_H
#define LS_PORT_WIN32_READABLE_H

#include <windows.h>

#include <stdint.h>

#include "port/fd.h"

enum { LS_CHECK_MS = 50 }; /* interval of the checks; short enough for key presses */

typedef enum ls_readable { LS_READABLE_NONE, LS_READABLE_PIPE, LS_READABLE_CONSOLE } ls_readable;

/* The handle of a descriptor: 0, 1 and 2 are descriptors of the C library, other values are handles. */
ls_fd ls_readable_fd(ls_fd fd);

/* The type of a handle. NONE: a file, a device, or an invalid handle. */
ls_readable ls_readable_kind(HANDLE handle);

/* The LS_EVENT_* that hold now: IN when a read does not block (a console has a line or a key, by its mode), HANGUP
 * when the other end is closed, OUT on the write end of a pipe, ERR on it when the read end is closed. *amount: the
 * data available, in bytes of a pipe or keys of a console. */
uint32_t ls_readable_now(HANDLE handle, ls_readable kind, uint32_t *amount);

#endif
