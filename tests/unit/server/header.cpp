// header.cpp - luaserve.h in a C++ program: it compiles, before any other header and twice.
#include "luaserve.h"
#include "luaserve.h"

static int open_state(struct lua_State *L, void *user)
{
    return L != 0 && user != 0 ? 0 : -1;
}

int main()
{
    ls_server_options options = ls_server_options();
    ls_server *server = 0;
    options.site = "site.lua";
    options.open = open_state;
    return ls_server_open(&options, &server, 0, 0);
}
