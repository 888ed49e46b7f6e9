/* sockets.c - see sockets.h. */
#include "script/bind/sock/sockets.h"


enum { COLLECT_MIN = 256 };

static void collect(lua_State *L, ls_sockets *sockets)
{
    (void)lua_gc(L, LUA_GCCOLLECT);
    sockets->collect_at = 2 * sockets->count > COLLECT_MIN ? 2 * sockets->count : COLLECT_MIN;
    sockets->opened = false;
}

void ls_sockets_make_room(lua_State *L)
{
    ls_sockets *sockets = ls_sockets_of(ls_state_of(L));
    if (sockets->collect_at == 0) sockets->collect_at = COLLECT_MIN;
    if (sockets->count >= sockets->collect_at) collect(L, sockets);
}

bool ls_sockets_collect(lua_State *L, int err)
{
    ls_sockets *sockets = ls_sockets_of(ls_state_of(L));
    if (err != LS_EMFILE || !sockets->opened) return false;
    collect(L, sockets);
    return true;
}

void ls_sockets_opened(ls_state *state)
{
    ls_sockets_of(state)->count++;
    ls_sockets_of(state)->opened = true;
}

void ls_sockets_closed(ls_state *state)
{
    ls_sockets_of(state)->count--;
}
