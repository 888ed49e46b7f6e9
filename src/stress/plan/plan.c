/* plan.c - the plan from its table. See plan.h. */
#include "stress/plan/plan.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/bind/option.h"

#define OPTION(member) LS_OPTION(ls_stress_plan, member)
#define BYTES(member)  LS_OPTION_FIELD(#member, ls_stress_plan, member, LS_OPTION_BYTES, 0)

static const ls_option options[] = {OPTION(target),
                                    OPTION(host),
                                    OPTION(port),
                                    OPTION(path),

                                    OPTION(threads),
                                    OPTION(connections),
                                    OPTION(duration_ns),
                                    OPTION(requests),
                                    OPTION(sends),
                                    OPTION(rate),
                                    OPTION(open_loop),
                                    OPTION(http2),
                                    OPTION(streams),
                                    OPTION(pipeline),
                                    OPTION(timeout_ns),
                                    OPTION(keepalive),
                                    OPTION(script),
                                    OPTION(native),
                                    OPTION(base),
                                    BYTES(request),
                                    OPTION(request_len),
                                    OPTION(is_head),
                                    OPTION(body_bytes_max),
                                    OPTION(status_from),
                                    OPTION(status_to),
                                    OPTION(has_length),
                                    OPTION(has_crc),
                                    OPTION(length),
                                    OPTION(crc),
                                    BYTES(expected_body),
                                    OPTION(expected_body_len),
                                    BYTES(message),
                                    OPTION(message_len),
                                    OPTION(numbered),
                                    OPTION(show),
                                    OPTION(sse),
                                    OPTION(publishers),
                                    OPTION(topics),
                                    OPTION(stalled),
                                    OPTION(publish_path),
                                    BYTES(post),
                                    BYTES(subscribe),
                                    OPTION(websocket),
                                    OPTION(binary),
                                    OPTION(compress),
                                    BYTES(packed),
                                    OPTION(packed_len),
                                    LS_OPTIONS_END};

static const ls_option request_fields[] = {LS_OPTION(ls_ws_request, host), LS_OPTION(ls_ws_request, target),
                                           LS_OPTION(ls_ws_request, fields), LS_OPTIONS_END};

static const ls_option stage_fields[] = {LS_OPTION(ls_stress_stage, duration_ns), LS_OPTION(ls_stress_stage, rate),
                                         LS_OPTION(ls_stress_stage, connections), LS_OPTIONS_END};

/* The number in a field whose value is a word of the list; the first one if the field is nil. */
static int word(lua_State *L, int index, const char *name, const char *const words[])
{
    lua_getfield(L, index, name);
    const int number = luaL_checkoption(L, -1, words[0], words);
    lua_pop(L, 1);
    return number;
}

static void read_schedule(lua_State *L, int index, ls_stress_plan *plan)
{
    ls_stress_stage stages[LS_STRESS_STAGES_MAX] = {{0}};
    const int top = lua_gettop(L);
    unsigned count = 0;
    lua_getfield(L, index, "first_connections");
    const unsigned first = (unsigned)lua_tointeger(L, -1);
    lua_getfield(L, index, "stages");
    for (; lua_istable(L, -1) && count < LS_STRESS_STAGES_MAX &&
           lua_rawgeti(L, -1, (lua_Integer)count + 1) == LUA_TTABLE;
         count++) {
        ls_options_read(L, -1, stage_fields, &stages[count]);
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    plan->staged = count > 0;
    if (count > 0)
        ls_stress_schedule_stages(&plan->schedule, plan->rate, first, stages, count);
    else
        ls_stress_schedule_constant(&plan->schedule, plan->rate, plan->connections, UINT64_MAX);
}

void ls_stress_plan_read(lua_State *L, int index, ls_stress_plan *plan)
{
    static const char *const modes[] = {"static", "script", "echo", "fanout", "hold", "cycles", "scenario", NULL};
    static const char *const kinds[] = {"http", "tcp", "udp", "ws", NULL};
    const int top = lua_gettop(L);
    index = lua_absindex(L, index);
    ls_options_read(L, index, options, plan);
    plan->mode = (ls_stress_plan_mode)word(L, index, "mode", modes);
    plan->kind = (ls_stress_target_kind)word(L, index, "kind", kinds);
    read_schedule(L, index, plan);
    if (lua_getfield(L, index, "ws_request") == LUA_TTABLE) ls_options_read(L, -1, request_fields, &plan->ws_request);
    lua_getfield(L, index, "protocols");
    for (unsigned i = 0;
         lua_istable(L, -1) && i < LS_STRESS_PROTOCOLS_MAX && lua_rawgeti(L, -1, (lua_Integer)i + 1) == LUA_TSTRING;
         i++) {
        plan->protocols[i] = lua_tostring(L, -1);
        plan->ws_request.protocols = (ls_ws_names){plan->protocols, i + 1};
        lua_pop(L, 1);
    }
    lua_settop(L, top);
}

uint32_t ls_stress_plan_share(uint32_t count, unsigned threads, unsigned index)
{
    return count / threads + (index < count % threads);
}

uint32_t ls_stress_plan_share_before(uint32_t count, unsigned threads, unsigned index)
{
    const uint32_t rest = count % threads;
    return count / threads * index + (index < rest ? index : rest);
}

char *ls_stress_plan_topic(const char *text, unsigned topic)
{
    static const char name[] = "{topic}";
    enum { DIGITS_MAX = 10 };
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += sizeof name - 1) count++;
    char *out = malloc(strlen(text) + count * DIGITS_MAX + 1), *to = out;
    if (out == NULL) return NULL;
    for (const char *at = text; *at != '\0';) {
        if (strncmp(at, name, sizeof name - 1) == 0) {
            to += snprintf(to, DIGITS_MAX + 1, "%u", topic);
            at += sizeof name - 1;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
    return out;
}
