/* sd_notify.h - tell the service manager what the process does, by the protocol of sd_notify(3): one datagram for each
 * state to the Unix socket $NOTIFY_SOCKET. sd_notify_posix.c implements it; on Windows nothing is sent
 * (cli/service_win32.c reports to the system). */
#ifndef LS_BASE_SD_NOTIFY_H
#define LS_BASE_SD_NOTIFY_H

#include "base/compiler.h"

/* Remember $NOTIFY_SOCKET, and remove it from the environment: it is not for child processes. While no other thread
 * reads the environment. */
void ls_sd_open(void);

/* Send "READY=1" or another assignment of sd_notify(3), "" for none, and STATUS= with the rest, a printf(3) format. It
 * has no effect without a socket. A manager that does not read delays it by a second at most. Any thread. */
LS_PRINTF(2, 3) void ls_sd_tell(const char *state, const char *format, ...);
void ls_sd_tell_reloading(void); /* RELOADING=1, with the time */

#endif
