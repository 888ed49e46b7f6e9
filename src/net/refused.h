/* refused.h - the log of refused clients: requests that no handler gets or whose body is refused, TLS handshakes and
 * PROXY headers that fail. One line each, such as "refused 192.0.2.1 400: invalid header name", with the level info,
 * for all servers of the process. Called only when a client is refused. Any thread. */
#ifndef LS_NET_REFUSED_H
#define LS_NET_REFUSED_H

#include "base/compiler.h"

/* A second; the others are counted, and the log says how many. With the level debug there is no limit. */
enum { LS_REFUSED_LINES_MAX = 20 };

LS_PRINTF(1, 2) void ls_refused_log(const char *format, ...); /* format: after "refused "; the address comes first */
void ls_refused_report(void);                                 /* log the number of lines that were left out, if any */

#endif
