/* sample_object.h - the counters of two threads in Lua, for tests of the sampler and of the reports in Lua:
 * samples.lua. */
#ifndef LS_TESTS_STRESS_SAMPLE_OBJECT_H
#define LS_TESTS_STRESS_SAMPLE_OBJECT_H

#include <lua.h>

/* Push the function sample(open_loop, tls, websocket) -> s, which has these methods:
 *     s:response(thread, status, ns [, late_ns [, lag_ns]])   a response; threads 1 and 2
 *     s:add(thread, name, count [, index])    to a counter of ls_stress_counters, or of its arrays: "status", 503
 *     s:error(thread, kind, count)            "timeout", "read", ...
 *     s:record(name, ns)                      into a histogram of thread 1: "lag", "handshake", "upgrade"
 *     s:check(name, passed)                   of thread 1
 *     s:counters()                            counters_object.h, as long as s */
void ls_sample_push(lua_State *L);

#endif
