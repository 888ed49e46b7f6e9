/* httpsys_posix.c - a system without http.sys: ls_httpsys_open fails, so the other functions are never called. */
#include <stdio.h>
#include <string.h>

#include "http/httpsys/httpsys.h"

bool ls_httpsys_supported(void)
{
    return false;
}

int ls_httpsys_open(ls_port *port, const ls_httpsys_options *options, ls_httpsys **out, char *message,
                    size_t message_bytes)
{
    (void)port;
    (void)options;
    (void)out;
    (void)snprintf(message, message_bytes, "the engine \"http.sys\" needs Windows; use the engine \"luaserve\"");
    return LS_ENOTSUP;
}

void ls_httpsys_start(ls_thread_ctx *ctx, ls_httpsys *http)
{
    (void)ctx;
    (void)http;
}

int ls_httpsys_prepare(ls_httpsys *http, const ls_http_config *config)
{
    (void)http;
    (void)config;
    return LS_ENOTSUP;
}

void ls_httpsys_replace(ls_httpsys *http, const ls_http_config *config, const ls_http_handler *handler)
{
    (void)http;
    (void)config;
    (void)handler;
}

uint32_t ls_httpsys_drain(ls_httpsys *http)
{
    (void)http;
    return 0;
}

void ls_httpsys_abort(ls_httpsys *http)
{
    (void)http;
}

void ls_httpsys_stat(const ls_httpsys *http, ls_http1_stats *out)
{
    (void)http;
    memset(out, 0, sizeof *out);
}

void ls_httpsys_close(ls_httpsys *http)
{
    (void)http;
}
