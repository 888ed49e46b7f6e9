/* sockets.h - the number of open sockets that objects of a Lua state own: those of ls.socket, ls.connect and
 * ls.udp_connect. The collector sees small objects, not their descriptors, so the number decides when garbage
 * is collected. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_SOCKETS_H
#define LS_SCRIPT_SOCKETS_H

#include <stdbool.h>

#include "script/bind/modules.h"
#include "script/core/state.h"

typedef struct ls_sockets { /* of a state */
    unsigned count;
    unsigned collect_at; /* the count at which the next open collects garbage first; 0: not set */
    bool opened;         /* since the last collection */
} ls_sockets;

static inline ls_sockets *ls_sockets_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_socket);
}

/* Call it before a socket is opened. When many are open, it collects garbage. Never raises. */
void ls_sockets_make_room(lua_State *L);

/* The system has refused a socket with `err`. Collects garbage and returns true if that may help: try again. Returns
 * false for another error than LS_EMFILE, and if no socket was opened since the last collection. Never raises. */
bool ls_sockets_collect(lua_State *L, int err);

/* Count a socket that was opened, or closed. */
void ls_sockets_opened(ls_state *state);
void ls_sockets_closed(ls_state *state);

#endif
