/* about.c - version and build information, for --version and the log. */
#include <lua.h>

#include "luaserve.h"
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

#define BUILD_INFO             \
    "Lua: " LUA_RELEASE "\n"   \
    "JSON: lua-cjson\n"        \
    "names: " LS_RESOLVER "\n" \
    "compiler: " COMPILER "\n" \
    "HTTP engines: luaserve"

const char *ls_server_build(void)
{
    return ls_httpsys_supported() ? BUILD_INFO " http.sys\n" : BUILD_INFO "\n";
}

const char *ls_server_backends(void)
{
    return ls_port_backends();
}
