/* publish.h - topics in Lua: the inbox of a state, and what all objects with subscribe() share.
 *
 * The owner of a subscriber embeds an ls_subscriber (script/store/topic.h) and queues in `deliver`, without a send.
 * It sends in an ls_flush (ls_state_flush_later): at the end of a batch of deliveries the list of the state runs. */
#ifndef LS_SCRIPT_BIND_TOPIC_H
#define LS_SCRIPT_BIND_TOPIC_H

#include <lua.h>

#include "script/bind/modules.h"
#include "script/core/state.h"
#include "script/store/topic.h"

/* The topics of the server. */
static inline ls_topics *ls_topics_of(const ls_runtime *runtime)
{
    return *(ls_topics *const *)ls_runtime_own(runtime, LS_SLOT_topic);
}

/* The inbox of the state; valid until the modules of the state are freed. */
ls_topic_inbox *ls_topic_inbox_of(const ls_state *state);

/* object:subscribe(topic): check argument `index`, subscribe and push true, or nil, message, code; returns the number
 * of values. The retained messages, but for numbered ones up to the position `seen`, go to `deliver` at once, whose flush
 * follows when the task ends or waits. Raises for a name that is no string, empty or too long. `subscriber` NULL: the
 * object is closed. */
int ls_topic_lua_subscribe(lua_State *L, ls_subscriber *subscriber, int index, uint64_t seen);
/* object:unsubscribe(topic), likewise. */
int ls_topic_lua_unsubscribe(lua_State *L, ls_subscriber *subscriber, int index);
/* Whether it is a topic of luaserve itself. */
bool ls_topic_is_own(const char *name);
/* A function of lua/luaserve/presence.lua with `call`, such as "ws:subscribe", and the arguments of this call; pushes its
 * results and returns their number. "subscribe": object:subscribe(topic, options); "leave": before object:unsubscribe. */
int ls_topic_lua_presence(lua_State *L, const char *function, const char *call);
/* Before the object closes: ls_subscriber_deliver_waiting; the owner sends afterwards. A task that this wakes runs
 * later: Lua does not run, and the object is not collected. */
int ls_topic_deliver_waiting(ls_thread_ctx *ctx, ls_state *state, ls_subscriber *subscriber);

#endif
