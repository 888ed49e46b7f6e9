/* listener.c - ls.listen and ls.tcp: the listeners of a site, and the functions that each state has for them. */
#include "script/bind/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/bind/bind_aux.h"
#include "script/bind/dev_page.h"
#include "script/bind/http_task.h"
#include "script/bind/option.h"
#include "script/bind/option_tls.h"
#include "script/bind/sock.h"

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
    unsigned index;
    ls_site_entry *entry = ls_define(L, LS_SLOT_listener, sizeof *entry, &index);
    ls_listeners_of(state)->at[index] = (ls_state_listener){dispatch_ref, failed_ref};
    if (state->index > 0) return;
    entry->listener = *listener;
    entry->handler =
        (ls_site_handler){.base = {ls_http_handler_start}, .generation = state->generation, .index = index};
    if (ls_state_runtime(state)->dev != NULL) ls_dev_page_handler(&entry->handler);
    entry_routes(L, entry);
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

/* Read tls, trusted, proxy_protocol and the limits of handshakes from the options at index 1. Only the listeners of
 * the first state are opened. */
static void listener_security(lua_State *L, const ls_state *state, ls_site_listener *listener)
{
    if (state->index != 0) return;
    listener->tls = ls_option_tls(L, 1);
    listener->trusted = ls_option_networks(L, 1, &listener->trusted_count);
    listener->proxy_protocol = ls_option_flag(L, 1, "proxy_protocol");
    ls_option_u32(L, 1, "handshake_ms_max", UINT32_MAX, &listener->handshake_ms_max);
    ls_option_u32(L, 1, "handshakes_max", UINT32_MAX, &listener->handshakes_max);
}

/* core.listen{ host=, port= | urls=, mode=, user=, group=, tls=, trusted=, proxy_protocol=, http={...}, dispatch=fn,
 * failed=fn, routes=fn, where= } */
static int core_listen(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
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

/* core.tcp{ host=, port=, mode=, user=, group=, tls=, trusted=, proxy_protocol=, tcp={...}, backlog=, serve=fn, where=
 * } */
static int core_tcp(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    ls_site_listener listener = {.kind = LS_SITE_TCP};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    listener_address(L, &listener);
    listener_access(L, &listener.access);
    listener_security(L, state, &listener);
    ls_option_u32(L, 1, "backlog", UINT32_MAX, &listener.backlog);
    listener.tcp = ls_tcp_config_default;
    if (lua_getfield(L, 1, "tcp") == LUA_TTABLE) ls_tcp_options(L, 2, &listener.tcp);
    lua_settop(L, 1);
    listener_add(L, state, &listener, ls_option_function(L, 1, "serve"), LUA_NOREF);
    return 0;
}

/* core.control{ tcp={...}, serve=fn }: the function for the connections of the server's control socket */
static int core_control(lua_State *L)
{
    ls_listeners *listeners = ls_listeners_of(ls_check_loading(L, ""));
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    listeners->control = ls_tcp_config_default;
    if (lua_getfield(L, 1, "tcp") == LUA_TTABLE) ls_tcp_options(L, 2, &listeners->control);
    lua_settop(L, 1);
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
                                     {NULL, NULL}};

const ls_module ls_listener_module = {.name = "listener",
                                      .bytes = sizeof(ls_listeners),
                                      .functions = functions,
                                      .defines = "listeners",
                                      .definitions_max = LS_LISTENERS_MAX,
                                      .undefine = entry_free};
