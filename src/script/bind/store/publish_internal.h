/* publish_internal.h - what topic.c (ls.publish, ls.topics, the inbox) and topic_function.c (ls.subscribe) share. */
#ifndef LS_SCRIPT_BIND_TOPIC_INTERNAL_H
#define LS_SCRIPT_BIND_TOPIC_INTERNAL_H

#include "script/bind/store/publish.h"

typedef struct ls_topic_data { /* of a state */
    ls_topic_inbox *inbox;
    ls_node functions;   /* subscriptions that have not ended, or whose function runs */
    ls_node ready;       /* functions with messages that may begin */
    ls_flush flush;      /* begins them */
    bool begun;          /* the functions may run: the state has started, or runs tests */
    bool starting;       /* the functions run at once: before the first request of the state */
    bool retiring;       /* the functions end when the inbox is empty */
    bool request_warned; /* of a function that has ended with its request */
    int through_ref;     /* what ls.publish calls instead; 0: nothing */
} ls_topic_data;

static inline ls_topic_data *ls_topic_data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_topic);
}

/* The topic at `index`, valid while the value is on the stack: a string of a valid length that is not one of luaserve itself,
 * else it raises; or an object of core.own_topic, in whose place the string is put. */
const char *ls_topic_check(lua_State *L, int index, size_t *len);

/* ---- topic_function.c --------------------------------------------------------------------------------------- */

int ls_core_subscribe(lua_State *L);
int ls_core_subscribers_start(lua_State *L);
void ls_topic_functions_define(ls_topic_data *data);
/* The state starts: the functions that subscribed while the site loaded get the retained messages and those that were
 * published since, before the state handles a request. */
void ls_topic_functions_start(ls_thread_ctx *ctx, ls_state *state);
/* No further messages for the functions, but for those of connections that outlive the generation. */
void ls_topic_functions_retire(ls_state *state);
/* Nor those that wait, for any. */
void ls_topic_functions_end(ls_state *state);
/* No task runs any more. */
void ls_topic_functions_abandon(ls_state *state);

#endif
