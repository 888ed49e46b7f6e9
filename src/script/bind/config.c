/* config.c - ls.config. */
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/option.h"
#include "script/core/state.h"

#define OPTION(field) LS_OPTION(ls_site_settings, field)
static const ls_option options[] = {OPTION(threads),
                                    OPTION(threads_max),
                                    OPTION(states_max),
                                    OPTION(connections_max),
                                    OPTION(pool_bytes_max),
                                    OPTION(lua_bytes_max),
                                    OPTION(lua_all_bytes_max),
                                    OPTION(jobs_max),
                                    OPTION(timers_max),
                                    OPTION(handler_cpu_ms_max),
                                    OPTION(load_ms_max),
                                    OPTION(drain_ms_max),
                                    OPTION(drain_delay_ms),
                                    OPTION(drain_ready),
                                    OPTION(old_sites_max),
                                    OPTION(old_site_ms_max),
                                    OPTION(accepts_posted),
                                    OPTION(backlog),
                                    OPTION(nameservers),
                                    OPTION(mask_addresses),
                                    LS_OPTIONS_END};

/* core.config{ threads=, ... }. Only the first state changes the site's settings. */
static int core_config(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    ls_site_settings settings = state->generation->settings;
    luaL_checktype(L, 1, LUA_TTABLE);
    ls_options_read(L, 1, options, &settings);
    if (state->index == 0) {
        state->generation->settings = settings;
        if (settings.lua_bytes_max > 0) state->bytes_max = (size_t)settings.lua_bytes_max;
        ls_runtime_limit_load(ls_state_runtime(state), settings.handler_cpu_ms_max, settings.load_ms_max);
        atomic_store(&state->bytes_granted, 0); /* Lua looks at the new limits when it grows */
    }
    return 0;
}

static const luaL_Reg functions[] = {{"config", core_config}, {NULL, NULL}};

const ls_module ls_config_module = {.name = "config", .functions = functions};
