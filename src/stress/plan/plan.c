/* plan.c - the plan from its table. See plan.h. */
#include "stress/plan/plan.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/core/lua/fields.h"

#define FIELD(type, member) LS_FIELD(type, ls_stress_plan, member)

static const ls_field fields[] = {FIELD(TEXT, target),
                                  FIELD(TEXT, host),
                                  FIELD(NUMBER, port),
                                  FIELD(TEXT, path),

                                  FIELD(NUMBER, threads),
                                  FIELD(NUMBER, connections),
                                  FIELD(NUMBER, duration_ns),
                                  FIELD(NUMBER, requests),
                                  FIELD(NUMBER, sends),
                                  FIELD(REAL, rate),
                                  FIELD(BOOL, open_loop),
                                  FIELD(BOOL, http2),
                                  FIELD(NUMBER, streams),
                                  FIELD(NUMBER, pipeline),
                                  FIELD(NUMBER, timeout_ns),
                                  FIELD(BOOL, keepalive),
                                  FIELD(TEXT, script),
                                  FIELD(BOOL, native),
                                  FIELD(TEXT, base),
                                  FIELD(TEXT, request),
                                  FIELD(NUMBER, request_len),
                                  FIELD(BOOL, is_head),
                                  FIELD(NUMBER, body_bytes_max),
                                  FIELD(NUMBER, status_from),
                                  FIELD(NUMBER, status_to),
                                  FIELD(BOOL, has_length),
                                  FIELD(BOOL, has_crc),
                                  FIELD(NUMBER, length),
                                  FIELD(NUMBER, crc),
                                  FIELD(TEXT, expected_body),
                                  FIELD(NUMBER, expected_body_len),
                                  FIELD(TEXT, message),
                                  FIELD(NUMBER, message_len),
                                  FIELD(BOOL, numbered),
                                  FIELD(BOOL, show),
                                  FIELD(BOOL, sse),
                                  FIELD(NUMBER, publishers),
                                  FIELD(NUMBER, topics),
                                  FIELD(NUMBER, stalled),
                                  FIELD(TEXT, publish_path),
                                  FIELD(TEXT, post),
                                  FIELD(TEXT, subscribe),
                                  FIELD(BOOL, websocket),
                                  FIELD(BOOL, binary),
                                  FIELD(BOOL, compress),
                                  FIELD(TEXT, packed),
                                  FIELD(NUMBER, packed_len),
                                  {0}};

static const ls_field request_fields[] = {LS_FIELD(TEXT, ls_ws_request, host),
                                          LS_FIELD(TEXT, ls_ws_request, target),
                                          LS_FIELD(TEXT, ls_ws_request, fields),
                                          {0}};

static const ls_field stage_fields[] = {LS_FIELD(NUMBER, ls_stress_stage, duration_ns),
                                        LS_FIELD(REAL, ls_stress_stage, rate),
                                        LS_FIELD(NUMBER, ls_stress_stage, connections),
                                        {0}};

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
        ls_fields_read(L, -1, stage_fields, &stages[count]);
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
    ls_fields_read(L, index, fields, plan);
    plan->mode = (ls_stress_plan_mode)word(L, index, "mode", modes);
    plan->kind = (ls_stress_target_kind)word(L, index, "kind", kinds);
    read_schedule(L, index, plan);
    if (lua_getfield(L, index, "ws_request") == LUA_TTABLE) ls_fields_read(L, -1, request_fields, &plan->ws_request);
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
