/* httpsys.h - HTTP through the HTTP Server API of Windows (the kernel driver http.sys), for a listener with
 * engine = "http.sys". httpsys_win32.c implements it; on other systems httpsys_posix.c reports LS_ENOTSUP.
 *
 * http.sys owns the connections: it accepts, parses, keeps alive and times out. It delivers complete request heads.
 * Each request becomes an exchange, as with http1.h, so that the layers above see no difference. Each listener has a
 * session, a URL group and a request queue. The handle of the queue is bound to the completion port, and `receives`
 * receives are posted on it. */
#ifndef LS_HTTP_HTTPSYS_HTTPSYS_H
#define LS_HTTP_HTTPSYS_HTTPSYS_H

#include "http/http_engine.h"
#include "port/port.h"

enum { LS_HTTPSYS_URLS_MAX = 16, LS_HTTPSYS_URLS_BYTES = 2048 /* total, including the NULs */ };

typedef struct ls_httpsys_options {
    const char *urls;             /* UTF-8 strings, one after the other; an empty string ends the list */
    const ls_http_config *config; /* copied */
    const ls_http_handler *handler;
    unsigned threads;      /* the number of thread contexts that may run it (ctx->index < threads) */
    unsigned receives;     /* number of receives on the request queue */
    uint32_t requests_max; /* requests at the same time; at the limit no receive is posted until a request ends */
} ls_httpsys_options;

/* Whether this operating system has http.sys. ls_httpsys_open looks for httpapi.dll. */
bool ls_httpsys_supported(void);

/* Open session, queue and URL group, and register the URLs: from then on http.sys queues their requests. On failure
 * nothing is left open, *out is not changed, and `message` receives one line with the URL and the reason. Errors:
 * LS_EACCES (error 5), LS_EEXIST (183), LS_EINVAL, LS_ELIMIT, LS_ENOTSUP (another system, or no httpapi.dll),
 * LS_ENOMEM, LS_ESYS. */
int ls_httpsys_open(ls_port *port, const ls_httpsys_options *options, ls_http_engine **out, char *message,
                    size_t message_bytes);

#endif
