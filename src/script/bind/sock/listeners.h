/* listeners.h - the functions of a state that serve the listeners of the site, by the index of the listener. */
#ifndef LS_SCRIPT_LISTENERS_H
#define LS_SCRIPT_LISTENERS_H

#include "net/network.h"
#include "script/bind/modules.h"
#include "script/bind/sock/tcp.h"
#include "script/core/state.h"

enum { LS_LISTENERS_MAX = 64 };

struct ls_record_sink; /* http/record.h */

typedef struct ls_state_listener {
    int dispatch_ref, failed_ref; /* registry references to functions */
    int gets_ref; /* of HTTP: to a table, functions for GET by path that `dispatch` would call; or LUA_REFNIL */
    const ls_network *trusted;    /* proxies; in memory of Lua, kept by the registry */
    size_t trusted_count;
} ls_state_listener;

enum {
    LS_LISTENER_CONTROL = LS_LISTENERS_MAX
}; /* the index of the control socket, which is no listener of the site */

typedef struct ls_listeners { /* of a state */
    ls_state_listener at[LS_LISTENERS_MAX + 1];
    unsigned count;                  /* of the site */
    bool trusts;                     /* one of them has proxies in `trusted` */
    struct ls_record_sink *sinks[4]; /* of all of ls.listen: LS_RECORD_SINKS_MAX; in the first state */
    unsigned sink_count;
    ls_tcp_config control; /* the limits of the control socket */
} ls_listeners;

static inline ls_listeners *ls_listeners_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_listener);
}

/* The listener with this dispatch function; NULL: none, as for app:inject. */
static inline const ls_state_listener *ls_listener_of(const ls_state *state, int dispatch_ref)
{
    const ls_listeners *listeners = ls_listeners_of(state);
    for (unsigned n = 0; n < listeners->count; n++)
        if (listeners->at[n].dispatch_ref == dispatch_ref) return &listeners->at[n];
    return NULL;
}

#endif
