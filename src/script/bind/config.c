/* config.c - ls.config. */
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/option.h"
#include "script/core/state.h"

/* core.config{ threads=, ... }. Only the first state changes the site's settings. */
static int core_config(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    ls_site_settings settings = state->generation->settings;
    uint64_t number;
    luaL_checktype(L, 1, LUA_TTABLE);
    if (ls_option_number(L, 1, "threads", 4096, &number)) settings.threads = (unsigned)number;
    if (ls_option_number(L, 1, "threads_max", 4096, &number)) settings.threads_max = (unsigned)number;
    if (ls_option_number(L, 1, "states_max", LS_STATES_MAX, &number)) settings.states_max = (unsigned)number;
    ls_option_u32(L, 1, "connections_max", UINT32_MAX, &settings.connections_max);
    (void)ls_option_number(L, 1, "pool_bytes_max", UINT64_MAX, &settings.pool_bytes_max);
    (void)ls_option_number(L, 1, "lua_bytes_max", UINT64_MAX, &settings.lua_bytes_max);
    ls_option_u32(L, 1, "jobs_max", UINT32_MAX, &settings.jobs_max);
    ls_option_u32(L, 1, "handler_cpu_ms_max", UINT32_MAX, &settings.handler_cpu_ms_max);
    ls_option_u32(L, 1, "drain_ms_max", UINT32_MAX, &settings.drain_ms_max);
    ls_option_u32(L, 1, "accepts_posted", UINT32_MAX, &settings.accepts_posted);
    ls_option_u32(L, 1, "backlog", UINT32_MAX, &settings.backlog);
    ls_option_text(L, 1, "nameservers", settings.nameservers, sizeof settings.nameservers);
    if (state->index == 0) {
        state->generation->settings = settings;
        if (settings.lua_bytes_max > 0) state->bytes_max = (size_t)settings.lua_bytes_max;
    }
    return 0;
}

static const luaL_Reg functions[] = {{"config", core_config}, {NULL, NULL}};

const ls_module ls_config_module = {.name = "config", .functions = functions};
