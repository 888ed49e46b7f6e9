/* sockets.c - see sockets.h. */
#include "script/bind/sockets.h"

#include "base/err.h"

enum { COLLECT_MIN = 256 };

static void collect(lua_State *L, ls_state *state)
{
    (void)lua_gc(L, LUA_GCCOLLECT);
    state->sockets_collect_at = 2 * state->sockets > COLLECT_MIN ? 2 * state->sockets : COLLECT_MIN;
    state->socket_opened = false;
}

void ls_sockets_make_room(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    if (state->sockets_collect_at == 0) state->sockets_collect_at = COLLECT_MIN;
    if (state->sockets >= state->sockets_collect_at) collect(L, state);
}

bool ls_sockets_collect(lua_State *L, int err)
{
    ls_state *state = ls_state_of(L);
    if (err != LS_EMFILE || !state->socket_opened) return false;
    collect(L, state);
    return true;
}

void ls_sockets_opened(ls_state *state)
{
    state->sockets++;
    state->socket_opened = true;
}

void ls_sockets_closed(ls_state *state)
{
    state->sockets--;
}
