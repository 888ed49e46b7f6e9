/* site_listener.c - ls.listen and ls.tcp: the listeners of a site, and the functions that each state has for them. */
#include "script/bind/http/site_listener.h"

#include <string.h>

#include "script/bind/bind_aux.h"
#include "script/bind/http/http_task.h"
#include "script/bind/option.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/tls/option_tls.h"

#define OPTION(field)    LS_OPTION(ls_site_listener, field)
#define ACCESS(field)    LS_OPTION_AS(#field, ls_site_listener, access.field)
#define HTTP(field)      LS_OPTION_AS(#field, ls_site_listener, http.field)
#define HEAD(field, max) LS_OPTION_FIELD(#field, ls_site_listener, http.head.field, LS_OPTION_NUMBER, max)
static const ls_option options[] = {
    OPTION(host),           OPTION(port),           LS_OPTION_MAX(ls_site_listener, urls, LS_HTTPSYS_URLS_BYTES - 2),
    OPTION(where),          ACCESS(has_mode),       ACCESS(mode),
    ACCESS(has_user),       ACCESS(user),           ACCESS(has_group),
    ACCESS(group),          OPTION(proxy_protocol), OPTION(handshake_ms_max),
    OPTION(handshakes_max), OPTION(backlog),        OPTION(tunnels),
    OPTION(per_ip_max),     LS_OPTIONS_END};
static const ls_option head_options[] = {HEAD(head_bytes_max, LS_BLOCK_LARGE), HEAD(target_bytes_max, LS_BLOCK_LARGE),
                                         HEAD(fields_max, LS_HTTP_FIELDS_MAX), LS_OPTIONS_END};
static const ls_option http_options[] = {HTTP(body_bytes_max),
                                         HTTP(head_ms_max),
                                         HTTP(body_grace_ms),
                                         HTTP(body_rate_min),
                                         HTTP(idle_ms_max),
                                         HTTP(send_stall_ms_max),
                                         HTTP(send_rate_min),
                                         HTTP(unread_bytes_max),
                                         HTTP(linger_ms_max),
                                         HTTP(write_bytes_high),
                                         HTTP(http2),
                                         OPTION(time_ms_max),
                                         OPTION(slow_ms),
                                         HTTP(http2_streams_max),
                                         HTTP(http2_resets_max),
                                         HTTP(http2_window_bytes_max),
                                         HTTP(requests_max),
                                         HTTP(conn_ms_max),
                                         HTTP(streams_per_ip_max),
                                         LS_OPTIONS_END};

/* ---- records ---------------------------------------------------------------------------------------------------- */

ls_records *ls_records_of(const ls_runtime *runtime)
{
    return *(ls_records **)ls_runtime_own(runtime, LS_SLOT_records);
}

static int records_add(const ls_state *state, unsigned index, ls_record_sink *sink)
{
    ls_site_entry *entry = state->generation->definitions[LS_SLOT_listener].entries[index];
    if (entry->listener.kind == LS_SITE_TCP) return LS_OK;
    return ls_records_with(ls_records_of(ls_state_runtime(state)), &entry->handler.base.recorder, sink);
}

int ls_records_add(ls_state *state, int index, ls_record_sink *sink)
{
    ls_listeners *listeners = ls_listeners_of(state);
    if (state->index > 0) return LS_OK;
    if (index >= 0) return records_add(state, (unsigned)index, sink);
    for (unsigned n = 0; n < listeners->sink_count; n++)
        if (listeners->sinks[n] == sink) return LS_OK;
    int err = listeners->sink_count < LS_RECORD_SINKS_MAX ? LS_OK : LS_ELIMIT;
    if (err == LS_OK) listeners->sinks[listeners->sink_count++] = sink;
    for (unsigned n = 0; n < listeners->count && err == LS_OK; n++) err = records_add(state, n, sink);
    return err;
}

/* core.route(pattern, host) -> the route, for core.set_route; nil: there are too many */
static int core_route(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    ls_route *route = ls_records_route(ls_records_of(ls_state_runtime(ls_state_of(L))), text, len, luaL_optstring(L, 2, ""));
    if (route != NULL) lua_pushlightuserdata(L, route);
    return route != NULL;
}

/* core.set_route(req, route|nil, log|nil): the request is one of this route, and of this access log in place of that of the
 * listener */
static int core_set_route(lua_State *L)
{
    ls_exchange *x = ((ls_request *)lua_touserdata(L, 1))->x; /* of a request that begins */
    void *const route = lua_touserdata(L, 2), *const log = lua_touserdata(L, 3);
    if (route != NULL) x->route = route;
    if (log != NULL) x->access_log = log;
    return 0;
}

static int records_open(void *own)
{
    return ls_records_open(own);
}

static void records_close(void *own)
{
    ls_records_close(*(ls_records **)own);
}

static const luaL_Reg records_functions[] = {{"route", core_route}, {"set_route", core_set_route}, {NULL, NULL}};
static const ls_module_common records_common = {sizeof(ls_records *), records_open, records_close, NULL};
const ls_module ls_records_module = {.name = "records", .functions = records_functions, .common = &records_common};

/* ---- listeners -------------------------------------------------------------------------------------------------- */

static unsigned listener_add(lua_State *L, ls_state *state, const ls_site_listener *listener, int dispatch_ref,
                             int failed_ref, int gets_ref)
{
    unsigned index;
    ls_site_entry *entry = ls_define(L, LS_SLOT_listener, sizeof *entry, &index);
    ls_listeners_of(state)->at[index] =
        (ls_state_listener){dispatch_ref, failed_ref, gets_ref, listener->trusted, listener->trusted_count};
    ls_listeners_of(state)->count = index + 1;
    if (listener->trusted_count > 0) ls_listeners_of(state)->trusts = true;
    if (state->index > 0) return index;
    entry->listener = *listener;
    entry->handler = (ls_site_handler){{ls_http_handler_start, listener->tunnels, NULL}, state->generation, index,
                                       listener->time_ms_max, listener->slow_ms};
    const ls_listeners *listeners = ls_listeners_of(state);
    for (unsigned n = 0; n < listeners->sink_count; n++)
        if (records_add(state, index, listeners->sinks[n]) < 0) luaL_error(L, "not enough memory");
    return index;
}

/* Read what every listener has from the options at index 1. Only the listeners of the first state are opened. */
static ls_state *listener_options(lua_State *L, ls_site_listener *listener)
{
    ls_state *state = ls_check_loading(L, "");
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    ls_options_read(L, 1, options, listener);
    if (state->index == 0) listener->tls = ls_option_tls(L, 1);
    listener->trusted = ls_option_networks(L, 1, "trusted", &listener->trusted_count);
    listener->allow = ls_option_networks(L, 1, "allow", &listener->allow_count);
    listener->deny = ls_option_networks(L, 1, "deny", &listener->deny_count);
    return state;
}

/* core.listen{ names of ls_site_listener, ls_path_access and ls_http_config; tls=, trusted=, dispatch=fn, failed=fn,
 * gets=table|nil } -> the index of the listener. `urls`: one URL per line; with URLs the listener belongs to http.sys. */
static int core_listen(lua_State *L)
{
    ls_site_listener listener = {.kind = LS_SITE_HTTP};
    ls_state *state = listener_options(L, &listener);
    ls_options_read(L, 1, head_options, &listener);
    ls_options_read(L, 1, http_options, &listener);
    if (listener.urls[0] != '\0') listener.kind = LS_SITE_HTTPSYS;
    for (char *at = listener.urls; (at = strchr(at, '\n')) != NULL;) *at++ = '\0';
    const int dispatch_ref = ls_option_function(L, 1, "dispatch");
    const int failed_ref = ls_option_function(L, 1, "failed");
    lua_getfield(L, 1, "gets");
    const unsigned index =
        listener_add(L, state, &listener, dispatch_ref, failed_ref, luaL_ref(L, LUA_REGISTRYINDEX));
    if (lua_getfield(L, 1, "access_log") == LUA_TLIGHTUSERDATA &&
        ls_records_add(state, (int)index, lua_touserdata(L, -1)) < 0)
        return luaL_error(L, "not enough memory");
    if (listener.slow_ms > 0 && ls_records_add(state, (int)index, &ls_slow_sink) < 0)
        return luaL_error(L, "not enough memory");
    return ls_push_integer(L, index);
}

/* core.listen_again(index, dispatch, failed, gets|nil): other functions for that listener */
static int core_listen_again(lua_State *L)
{
    ls_listeners *listeners = ls_listeners_of(ls_check_loading(L, ""));
    const lua_Integer index = luaL_checkinteger(L, 1);
    luaL_argcheck(L, index >= 0 && index < (lua_Integer)listeners->count, 1, "no such listener");
    luaL_checktype(L, 2, LUA_TFUNCTION);
    luaL_checktype(L, 3, LUA_TFUNCTION);
    lua_settop(L, 4);
    luaL_unref(L, LUA_REGISTRYINDEX, listeners->at[index].gets_ref);
    listeners->at[index].gets_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_rawseti(L, LUA_REGISTRYINDEX, listeners->at[index].failed_ref);
    lua_rawseti(L, LUA_REGISTRYINDEX, listeners->at[index].dispatch_ref);
    return 0;
}

/* core.tcp{ names of ls_site_listener, ls_path_access and ls_tcp_config; tls=, trusted=, serve=fn } */
static int core_tcp(lua_State *L)
{
    ls_site_listener listener = {.kind = LS_SITE_TCP};
    ls_state *state = listener_options(L, &listener);
    ls_options_read(L, 1, ls_tcp_options, &listener.tcp);
    (void)listener_add(L, state, &listener, ls_option_function(L, 1, "serve"), LUA_NOREF, LUA_REFNIL);
    return 0;
}

/* core.control{ names of ls_tcp_config; serve=fn }: the function for the connections of the server's control socket */
static int core_control(lua_State *L)
{
    ls_listeners *listeners = ls_listeners_of(ls_check_loading(L, ""));
    luaL_checktype(L, 1, LUA_TTABLE);
    ls_options_read(L, 1, ls_tcp_options, &listeners->control);
    listeners->at[LS_LISTENER_CONTROL].dispatch_ref = ls_option_function(L, 1, "serve");
    return 0;
}

static const luaL_Reg functions[] = {{"listen", core_listen},
                                     {"listen_again", core_listen_again},
                                     {"tcp", core_tcp},
                                     {"control", core_control},
                                     {"is_network", ls_core_is_network},
                                     {"tls_ticket_keys", ls_core_tls_ticket_keys},
                                     {NULL, NULL}};

const ls_module ls_listener_module = {.name = "listener",
                                      .bytes = sizeof(ls_listeners),
                                      .functions = functions,
                                      .defines = "listeners",
                                      .serves = true,
                                      .definitions_max = LS_LISTENERS_MAX,
                                      .common = &ls_listener_common};
