// header.cpp - luaserve.h in a C++ program: it compiles, before any other header and twice.
#include "luaserve.h"

static int open_state(struct lua_State *L, void *user)
{
    return L != 0 && user != 0 ? 0 : -1;
}

#if LS_VERSION_NUMBER < 100
#error "LS_VERSION_NUMBER is not a number of the preprocessor"
#endif

int main()
{
    ls_server_options options = ls_server_options();
    ls_server *server = 0;
    options.size = sizeof options;
    options.site = "site.lua";
    options.open = open_state;
    const enum ls_error code = LS_EXDEV;
    return code == -33 ? ls_server_open(&options, &server, 0, 0) : LS_OK;
}
