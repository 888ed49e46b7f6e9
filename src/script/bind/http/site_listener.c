/* site_listener.c - ls.listen and ls.tcp: the listeners of a site, and the functions that each state has for them. */
#include "script/bind/http/site_listener.h"

#include <stdlib.h>
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
    OPTION(handshakes_max), OPTION(backlog),        LS_OPTIONS_END};
static const ls_option head_options[] = {HEAD(head_bytes_max, LS_BLOCK_LARGE), HEAD(target_bytes_max, LS_BLOCK_LARGE),
                                         HEAD(fields_max, LS_HTTP_FIELDS_MAX), LS_OPTIONS_END};
static const ls_option http_options[] = {HTTP(body_bytes_max),   HTTP(head_ms_max),      HTTP(body_grace_ms),
                                         HTTP(body_rate_min),    HTTP(idle_ms_max),      HTTP(send_stall_ms_max),
                                         HTTP(send_rate_min),    HTTP(unread_bytes_max), HTTP(linger_ms_max),
                                         HTTP(write_bytes_high), OPTION(time_ms_max),    LS_OPTIONS_END};

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
    unsigned index;
    ls_site_entry *entry = ls_define(L, LS_SLOT_listener, sizeof *entry, &index);
    ls_listeners_of(state)->at[index] =
        (ls_state_listener){dispatch_ref, failed_ref, listener->trusted, listener->trusted_count};
    ls_listeners_of(state)->count = index + 1;
    if (state->index > 0) return;
    entry->listener = *listener;
    entry->handler = (ls_site_handler){{ls_http_handler_start}, state->generation, index, listener->time_ms_max};
    entry_routes(L, entry);
}

/* Read what every listener has from the options at index 1. Only the listeners of the first state are opened. */
static ls_state *listener_options(lua_State *L, ls_site_listener *listener)
{
    ls_state *state = ls_check_loading(L, "");
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    ls_options_read(L, 1, options, listener);
    if (state->index == 0) listener->tls = ls_option_tls(L, 1);
    listener->trusted = ls_option_networks(L, 1, &listener->trusted_count);
    return state;
}

/* core.listen{ names of ls_site_listener, ls_path_access and ls_http_config; tls=, trusted=, dispatch=fn, failed=fn,
 * routes=fn }. `urls`: one URL per line; with URLs the listener belongs to http.sys. */
static int core_listen(lua_State *L)
{
    ls_site_listener listener = {.kind = LS_SITE_HTTP};
    ls_state *state = listener_options(L, &listener);
    ls_options_read(L, 1, head_options, &listener);
    ls_options_read(L, 1, http_options, &listener);
    if (listener.urls[0] != '\0') listener.kind = LS_SITE_HTTPSYS;
    for (char *at = listener.urls; (at = strchr(at, '\n')) != NULL;) *at++ = '\0';
    const int dispatch_ref = ls_option_function(L, 1, "dispatch");
    listener_add(L, state, &listener, dispatch_ref, ls_option_function(L, 1, "failed"));
    return 0;
}

/* core.tcp{ names of ls_site_listener, ls_path_access and ls_tcp_config; tls=, trusted=, serve=fn } */
static int core_tcp(lua_State *L)
{
    ls_site_listener listener = {.kind = LS_SITE_TCP};
    ls_state *state = listener_options(L, &listener);
    ls_options_read(L, 1, ls_tcp_options, &listener.tcp);
    listener_add(L, state, &listener, ls_option_function(L, 1, "serve"), LUA_NOREF);
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

static void entry_free(void *entry)
{
    ls_site_entry *e = entry;
    free(e->routes);
    free(e);
}

static const luaL_Reg functions[] = {{"listen", core_listen},
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
                                      .undefine = entry_free,
                                      .common = &ls_listener_common};
