/* httpsys_posix.c - a system without http.sys: ls_httpsys_open fails. */
#include <stdio.h>

#include "http/httpsys/httpsys.h"

bool ls_httpsys_supported(void)
{
    return false;
}

int ls_httpsys_open(ls_port *port, const ls_httpsys_options *options, ls_http_engine **out, char *message,
                    size_t message_bytes)
{
    (void)snprintf(message, message_bytes, "the engine \"http.sys\" needs Windows; use the engine \"luaserve\"");
    return LS_ENOTSUP;
}
