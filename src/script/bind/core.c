/* core.c - the module `luaserve.core`: its table of functions, and those functions that have no file of their
 * own: definitions (listen, tcp, config), hooks, the log, statistics, paths. */
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "proto/http_text.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/buffer.h"
#include "script/bind/http_task.h"
#include "script/bind/option.h"
#include "script/bind/option_tls.h"
#include "script/bind/req.h"
#include "script/bind/request.h"
#include "script/bind/res.h"
#include "script/bind/route_name.h"
#include "script/bind/sock.h"
#include "script/core/quiet.h"
#include "script/site/site_internal.h"

/* The state, while its site loads; raises afterwards. `prefix` begins the message: "" where lua/luaserve adds one. */
static ls_state *check_loading(lua_State *L, const char *prefix)
{
    ls_state *state = ls_state_of(L);
    if (!state->loading) luaL_error(L, "%smust be called while the site loads", prefix);
    return state;
}

/* ---- definitions ------------------------------------------------------------------------------------------- */

static void http_options(lua_State *L, int index, ls_http_config *http)
{
    uint64_t bytes;
    ls_option_u32(L, index, "head_bytes_max", LS_BLOCK_LARGE, &http->head.head_bytes_max);
    ls_option_u32(L, index, "target_bytes_max", LS_BLOCK_LARGE, &http->head.target_bytes_max);
    ls_option_u32(L, index, "fields_max", LS_HTTP_FIELDS_MAX, &http->head.fields_max);
    if (ls_option_number(L, index, "body_bytes_max", UINT64_MAX, &bytes))
        http->body_bytes_max = bytes == (uint64_t)LUA_MAXINTEGER ? UINT64_MAX : bytes;
    ls_option_u32(L, index, "head_ms_max", UINT32_MAX, &http->head_ms_max);
    ls_option_u32(L, index, "body_grace_ms", UINT32_MAX, &http->body_grace_ms);
    ls_option_u32(L, index, "body_rate_min", UINT32_MAX, &http->body_rate_min);
    ls_option_u32(L, index, "idle_ms_max", UINT32_MAX, &http->idle_ms_max);
    ls_option_u32(L, index, "send_stall_ms_max", UINT32_MAX, &http->send_stall_ms_max);
    ls_option_u32(L, index, "send_rate_min", UINT32_MAX, &http->send_rate_min);
    ls_option_u32(L, index, "unread_bytes_max", UINT32_MAX, &http->unread_bytes_max);
    ls_option_u32(L, index, "linger_ms_max", UINT32_MAX, &http->linger_ms_max);
    ls_option_u32(L, index, "write_bytes_high", UINT32_MAX, &http->write_bytes_high);
}

/* Read host, port and where from the options at index 1. */
static void listener_address(lua_State *L, ls_site_listener *listener)
{
    uint32_t port = 0;
    ls_option_text(L, 1, "host", listener->host, sizeof listener->host);
    if (lua_getfield(L, 1, "where") == LUA_TSTRING) /* used in messages only: truncated to fit */
        (void)snprintf(listener->where, sizeof listener->where, "%s", lua_tostring(L, -1));
    lua_settop(L, 1);
    ls_option_u32(L, 1, "port", UINT16_MAX, &port);
    listener->port = (uint16_t)port;
}

/* Call the function `routes` of the options at index 1, which returns a text for --check, and keep the text. */
static void entry_routes(lua_State *L, ls_site_entry *entry)
{
    if (lua_getfield(L, 1, "routes") == LUA_TFUNCTION) {
        size_t len;
        lua_call(L, 0, 1);
        const char *text = luaL_checklstring(L, -1, &len);
        entry->routes = malloc(len + 1);
        if (entry->routes == NULL) {
            luaL_error(L, "not enough memory");
            return;
        }
        memcpy(entry->routes, text, len + 1);
    }
    lua_settop(L, 1);
}

static void listener_add(lua_State *L, ls_state *state, const ls_site_listener *listener, int dispatch_ref,
                         int failed_ref)
{
    ls_site *site = state->site;
    const unsigned index = state->listener_count;
    if (index == LS_LISTENERS_MAX) luaL_error(L, "more than %d listeners", LS_LISTENERS_MAX);
    if (state->listeners == NULL) {
        state->listeners = calloc(LS_LISTENERS_MAX, sizeof *state->listeners);
        if (state->listeners == NULL) {
            luaL_error(L, "not enough memory");
            return;
        }
    }
    if (state->index == 0) {
        ls_site_entry *entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            luaL_error(L, "not enough memory");
            return;
        }
        entry->listener = *listener;
        entry->handler = (ls_site_handler){{ls_http_handler_start}, site, index};
        site->entries[index] = entry;
        site->entry_count = index + 1;
        entry_routes(L, entry);
    }
    state->listeners[index] = (ls_state_listener){dispatch_ref, failed_ref};
    state->listener_count++;
}

/* Read urls from the options at index 1: one URL per line. With URLs the listener belongs to http.sys. */
static void listener_urls(lua_State *L, ls_site_listener *listener)
{
    ls_option_text(L, 1, "urls", listener->urls, sizeof listener->urls - 1);
    if (listener->urls[0] == '\0') return;
    listener->kind = LS_SITE_HTTPSYS;
    for (char *at = listener->urls; (at = strchr(at, '\n')) != NULL;) *at++ = '\0';
}

/* Read mode, user and group from the options at index 1. */
static void listener_access(lua_State *L, ls_path_access *access)
{
    uint64_t number;
    access->has_mode = ls_option_number(L, 1, "mode", 0777, &number);
    if (access->has_mode) access->mode = (uint32_t)number;
    access->has_user = ls_option_number(L, 1, "user", UINT32_MAX, &number);
    if (access->has_user) access->user = (uint32_t)number;
    access->has_group = ls_option_number(L, 1, "group", UINT32_MAX, &number);
    if (access->has_group) access->group = (uint32_t)number;
}

/* Read tls, trusted, proxy_protocol and the limits of handshakes from the options at index 1. Only the listeners of the first state are opened. */
static void listener_security(lua_State *L, const ls_state *state, ls_site_listener *listener)
{
    if (state->index != 0) return;
    listener->tls = ls_option_tls(L, 1);
    listener->trusted = ls_option_networks(L, 1, &listener->trusted_count);
    listener->proxy_protocol = ls_option_flag(L, 1, "proxy_protocol");
    ls_option_u32(L, 1, "handshake_ms_max", UINT32_MAX, &listener->handshake_ms_max);
    ls_option_u32(L, 1, "handshakes_max", UINT32_MAX, &listener->handshakes_max);
}

/* core.listen{ host=, port= | urls=, mode=, user=, group=, tls=, trusted=, proxy_protocol=, http={...}, dispatch=fn, failed=fn, routes=fn, where= } */
static int core_listen(lua_State *L)
{
    ls_state *state = check_loading(L, "");
    ls_site_listener listener = {.kind = LS_SITE_HTTP};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    listener_address(L, &listener);
    listener_access(L, &listener.access);
    listener_security(L, state, &listener);
    listener_urls(L, &listener);
    ls_http_config_defaults(&listener.http);
    if (lua_getfield(L, 1, "http") == LUA_TTABLE) http_options(L, 2, &listener.http);
    lua_settop(L, 1);

    const int dispatch_ref = ls_option_function(L, 1, "dispatch");
    listener_add(L, state, &listener, dispatch_ref, ls_option_function(L, 1, "failed"));
    return 0;
}

/* core.tcp{ host=, port=, mode=, user=, group=, tls=, trusted=, proxy_protocol=, tcp={...}, backlog=, control=, serve=fn, where= } */
static int core_tcp(lua_State *L)
{
    ls_state *state = check_loading(L, "");
    ls_site_listener listener = {.kind = LS_SITE_TCP};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    listener_address(L, &listener);
    listener_access(L, &listener.access);
    listener_security(L, state, &listener);
    ls_option_u32(L, 1, "backlog", UINT32_MAX, &listener.backlog);
    listener.control = ls_option_flag(L, 1, "control");
    listener.tcp = ls_tcp_config_default;
    if (lua_getfield(L, 1, "tcp") == LUA_TTABLE) ls_tcp_options(L, 2, &listener.tcp);
    lua_settop(L, 1);
    listener_add(L, state, &listener, ls_option_function(L, 1, "serve"), LUA_NOREF);
    return 0;
}

/* core.config{ threads=, ... }. Only the first state changes the site's settings. */
static int core_config(lua_State *L)
{
    ls_state *state = check_loading(L, "");
    ls_site_settings settings = state->site->settings;
    uint64_t number;
    luaL_checktype(L, 1, LUA_TTABLE);
    if (ls_option_number(L, 1, "threads", 4096, &number)) settings.threads = (unsigned)number;
    if (ls_option_number(L, 1, "threads_max", 4096, &number)) settings.threads_max = (unsigned)number;
    ls_option_u32(L, 1, "connections_max", UINT32_MAX, &settings.connections_max);
    (void)ls_option_number(L, 1, "pool_bytes_max", UINT64_MAX, &settings.pool_bytes_max);
    (void)ls_option_number(L, 1, "lua_bytes_max", UINT64_MAX, &settings.lua_bytes_max);
    ls_option_u32(L, 1, "jobs_max", UINT32_MAX, &settings.jobs_max);
    ls_option_u32(L, 1, "handler_cpu_ms_max", UINT32_MAX, &settings.handler_cpu_ms_max);
    ls_option_u32(L, 1, "drain_ms_max", UINT32_MAX, &settings.drain_ms_max);
    ls_option_u32(L, 1, "accepts_posted", UINT32_MAX, &settings.accepts_posted);
    ls_option_u32(L, 1, "backlog", UINT32_MAX, &settings.backlog);
    ls_option_text(L, 1, "nameservers", state->site->nameservers, sizeof state->site->nameservers);
    if (state->index == 0) {
        state->site->settings = settings;
        if (settings.lua_bytes_max > 0) state->bytes_max = (size_t)settings.lua_bytes_max;
    }
    return 0;
}

/* Append the function at `index` to a list of hooks. */
static void hooks_add(lua_State *L, ls_hooks *hooks, int index)
{
    int *refs = realloc(hooks->refs, (hooks->count + 1) * sizeof *refs);
    if (refs == NULL) {
        luaL_error(L, "not enough memory");
        return;
    }
    hooks->refs = refs;
    lua_pushvalue(L, index);
    refs[hooks->count] = luaL_ref(L, LUA_REGISTRYINDEX);
    hooks->count++;
}

/* core.on("start"|"drain"|"log", fn). "start" and "drain" run in every state. */
static int core_on(lua_State *L)
{
    static const char *const names[] = {"start", "drain", "log", NULL};
    ls_state *state = check_loading(L, "");
    const int kind = luaL_checkoption(L, 1, NULL, names);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    hooks_add(L, &state->hooks[kind], 2);
    return 0;
}

/* core.once(fn): fn runs at the start, in the first state only. */
static int core_once(lua_State *L)
{
    ls_state *state = check_loading(L, "ls.once: ");
    luaL_checktype(L, 1, LUA_TFUNCTION);
    ls_check_arguments(L, 1, "ls.once(fn)");
    if (state->index == 0) hooks_add(L, &state->once, 1);
    return 0;
}

/* ---- other functions --------------------------------------------------------------------------------------- */

/* core.now() -> monotonic seconds */
static int core_now(lua_State *L)
{
    lua_pushnumber(L, (double)ls_clock_ns() / 1e9);
    return 1;
}

/* core.log(level, text) */
static int core_log(lua_State *L)
{
    size_t len;
    enum ls_log_level level;
    if (ls_log_level_of(luaL_checkstring(L, 1), &level) < 0 || level == LS_LOG_OFF)
        return luaL_argerror(L, 1, "level must be \"debug\", \"info\", \"warn\" or \"error\"");
    const char *text = luaL_checklstring(L, 2, &len);
    if (level >= ls_log_level_get() && !ls_quiet_is(ls_state_of(L))) ls_log_text(level, text, len);
    return 0;
}

/* core.percent_decode(s [, plus]) -> string, or nil for an invalid escape or a NUL. `plus`: "+" is a space. */
static int core_percent_decode(lua_State *L)
{
    luaL_Buffer buffer;
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    const bool plus = lua_toboolean(L, 2);
    char *to = luaL_buffinitsize(L, &buffer, len);
    const long decoded = ls_percent_decode(text, len, plus, to);
    luaL_pushresultsize(&buffer, decoded < 0 ? 0 : (size_t)decoded);
    if (decoded < 0) lua_pushnil(L);
    return 1;
}

enum { STATS_MAX = 128 };
typedef struct stats_list { /* filled by the server's code, in which nothing may raise; then copied into a table */
    unsigned count;
    struct {
        char name[48];
        double value;
    } at[STATS_MAX];
} stats_list;

static void stats_add(void *to, const char *name, double value)
{
    stats_list *list = to;
    if (list->count == STATS_MAX) return;
    (void)snprintf(list->at[list->count].name, sizeof list->at[0].name, "%s", name);
    list->at[list->count++].value = value;
}

/* core.stats() -> table from names to numbers */
static int core_stats(lua_State *L)
{
    const ls_site *site = ls_state_of(L)->site;
    stats_list *list = lua_newuserdatauv(L, sizeof *list, 0);
    double bytes = 0;
    list->count = 0;
    for (unsigned n = 0; n < site->state_count; n++)
        bytes += (double)atomic_load_explicit(&site->states[n]->bytes_live, memory_order_relaxed);
    stats_add(list, "lua_states", site->state_count);
    stats_add(list, "lua_bytes", bytes);
    stats_add(list, "tasks", ls_site_busy(site));
    if (site->host != NULL && site->host->stats != NULL) site->host->stats(site->host->server, stats_add, list);
    lua_createtable(L, 0, (int)list->count);
    for (unsigned n = 0; n < list->count; n++) {
        const double value = list->at[n].value;
        if (value == (double)(lua_Integer)value && value < 9e15 && value > -9e15)
            lua_pushinteger(L, (lua_Integer)value);
        else
            lua_pushnumber(L, value);
        lua_setfield(L, -2, list->at[n].name);
    }
    return 1;
}

/* core.stop(): start to drain, as SIGTERM does. */
static int core_stop(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    if (state->loading) return luaL_error(L, "ls.stop: the server has not started");
    if (state->site->host != NULL && state->site->host->stop != NULL)
        state->site->host->stop(state->site->host->server);
    return 0;
}

/* core.can_wait() -> whether a call that waits is possible here */
static int core_can_wait(lua_State *L)
{
    lua_pushboolean(L, ls_task_can_wait(L));
    return 1;
}

/* core.thread() -> the number of the calling thread, from 1; 0 while the site loads */
static int core_thread(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    lua_pushinteger(L, state->loading || state->ctx == NULL ? 0 : (lua_Integer)state->ctx->index + 1);
    return 1;
}

/* core.processors() -> the number of processors that this process may use */
static int core_processors(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)ls_cpu_count());
    return 1;
}

int ls_core_open(lua_State *L)
{
    static const luaL_Reg functions[] = {{"listen", core_listen},
                                         {"tcp", core_tcp},
                                         {"connect", ls_core_connect},
                                         {"config", core_config},
                                         {"on", core_on},
                                         {"once", core_once},
                                         {"now", core_now},
                                         {"log", core_log},
                                         {"stats", core_stats},
                                         {"stop", core_stop},
                                         {"can_wait", core_can_wait},
                                         {"thread", core_thread},
                                         {"processors", core_processors},
                                         {"percent_decode", core_percent_decode},
                                         {"html_escape", ls_core_html_escape},
                                         {"url_encode", ls_core_url_encode},
                                         {"name_routes", ls_core_name_routes},
                                         {"last_segment", ls_core_last_segment},
                                         {"safe_join", ls_core_safe_join},
                                         {"static", ls_core_static},
                                         {"static_get", ls_core_static_get},
                                         {"static_list", ls_core_static_list},
                                         {"user_id", ls_core_user_id},
                                         {"is_network", ls_core_is_network},
                                         {"group_id", ls_core_group_id},
                                         {"sleep", ls_core_sleep},
                                         {"after", ls_core_after},
                                         {"every", ls_core_every},
                                         {"spawn", ls_core_spawn},
                                         {"buffer", ls_buffer_new},
                                         {"inject", ls_core_inject},
                                         {"udp", ls_core_udp},
                                         {"notify", ls_core_notify},
                                         {"notify_methods", ls_core_notify_methods},
                                         {"socket", ls_core_socket},
                                         {"udp_connect", ls_core_udp_connect},
                                         {"params", ls_core_params},
                                         {"body_max", ls_core_body_max},
                                         {"interrupt", ls_core_interrupt},
                                         {"interruptible", ls_core_interruptible},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_pushliteral(L, LS_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushboolean(L, ls_httpsys_supported());
    lua_setfield(L, -2, "http_sys");
    lua_newtable(L);
    lua_pushliteral(L, LUA_VERSION_MAJOR "." LUA_VERSION_MINOR "." LUA_VERSION_RELEASE);
    lua_setfield(L, -2, "lua");
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "cjson");
    if (lua_type(L, -1) == LUA_TTABLE) {
        lua_getfield(L, -1, "_VERSION");
        lua_setfield(L, -4, "cjson");
    }
    lua_pop(L, 2);
    lua_pushstring(L, ls_port_backends());
    lua_setfield(L, -2, "backends");
    lua_pushliteral(L, LS_RESOLVER);
    lua_setfield(L, -2, "names");
    lua_setfield(L, -2, "build");
    return 1;
}

void ls_core_define(lua_State *L, ls_state *state)
{
    ls_request_define_req(L, state);
    ls_request_define_res(L, state);
    ls_buffer_define(L, state);
    ls_jobs_define(L, state);
    ls_serve_define(L, state);
    ls_static_define(L, state);
    ls_timers_define(L, state);
    ls_udp_define(L, state);
    ls_notify_define(L, state);
    ls_tcp_define(L, state);
    ls_connect_define(L, state);
}
