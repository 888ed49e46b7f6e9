/* about.c - version and build information, for --version and the log. */
#include <stdio.h>

#include <lua.h>

#include "base/compiler.h"
#include "luaserve.h"
#include "net/tls.h"
#include "port/port.h"
#include "proto/httpsys.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *ls_server_version(void)
{
    return LS_VERSION;
}

const char *ls_server_build(void)
{
    static LS_THREAD_LOCAL char text[512];
    const char *tls = ls_tls_library(); /* of the shared library that runs, not of the headers */
    snprintf(text, sizeof text,
             "Lua: " LUA_RELEASE "\n"
             "JSON: lua-cjson\n"
             "names: " LS_RESOLVER "\n"
             "TLS: %s\n"
             "compiler: " COMPILER "\n"
             "HTTP engines: luaserve%s\n",
             tls != NULL ? tls : "not built in", ls_httpsys_supported() ? " http.sys" : "");
    return text;
}

const char *ls_server_backends(void)
{
    return ls_port_backends();
}
