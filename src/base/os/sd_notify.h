/* sd_notify.h - tell the service manager what the process does, by the protocol of sd_notify(3): one datagram for each
 * state to the Unix socket $NOTIFY_SOCKET. sd_notify_posix.c implements it; on Windows nothing is sent
 * (cli/service_win32.c reports to the system). */
#ifndef LS_BASE_SD_NOTIFY_H
#define LS_BASE_SD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* Remember $NOTIFY_SOCKET, $FDSTORE and $WATCHDOG_USEC, and remove them from the environment: they are not for child
 * processes. While no other thread reads the environment. */
void ls_sd_open(void);

/* Send "READY=1" or another assignment of sd_notify(3), "" for none, and STATUS= with the rest, a printf(3) format, of
 * which some 1,000 bytes are sent. It has no effect without a socket. A manager that does not read delays it by a second at most. Any thread. */
LS_PRINTF(2, 3) void ls_sd_tell(const char *state, const char *format, ...);
void ls_sd_tell_reloading(void); /* RELOADING=1, with the time */

/* Have the manager keep the descriptor, and pass it to the process that it starts when this one has ended, by its name.
 * false: it keeps none, or $FDSTORE are kept. */
bool ls_sd_store(intptr_t fd, const char *name);
void ls_sd_remove(const char *name);

/* The process is the main one of the service from now on. */
void ls_sd_tell_main(long process);
/* What ls_sd_open has taken, for a process that replaces this one: sets out[] to texts NAME=value, which stay. Returns
 * their number. */
enum { LS_SD_VARIABLES = 3 };
unsigned ls_sd_variables(char *out[LS_SD_VARIABLES]);

/* WatchdogSec=: the manager ends a process that has not called ls_sd_feed for so long. 0: it has no watchdog. */
uint64_t ls_sd_watchdog_ms(void);
void ls_sd_feed(void);

#endif
