/* about.c - what this program is made of, for --version and the log. */
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

#define MADE_OF                \
    "Lua: " LUA_RELEASE "\n"   \
    "JSON: lua-cjson\n"        \
    "names: " LS_RESOLVER "\n" \
    "compiler: " COMPILER "\n" \
    "HTTP engines: luaserve"

const char *ls_server_build(void)
{
    return ls_httpsys_supported() ? MADE_OF " http.sys\n" : MADE_OF "\n";
}

const char *ls_server_backends(void)
{
    return ls_port_backends();
}
