/* bind.h - the functions of `luaserve.core`, the C module under lua/luaserve, by the file that has them. */
#ifndef LS_SCRIPT_BIND_H
#define LS_SCRIPT_BIND_H

#include <lua.h>

#include "script/state.h"

/* nil, message, code of an LS_E* error; returns 3. */
int ls_push_failure(lua_State *L, int err);

/* A number of seconds at `index`: >= 0 and no NaN. Raises. */
double ls_check_seconds(lua_State *L, int index);

/* bind_sock.c: limits in the table at `index`, with the core's names */
extern const ls_tcp_config ls_tcp_config_default;
void ls_tcp_options(lua_State *L, int index, ls_tcp_config *out);

/* bind_connect.c */
int ls_core_connect(lua_State *L);
void ls_connect_define(lua_State *L, ls_state *state);

/* bind_core.c: push the module's table. */
int ls_core_open(lua_State *L);
/* bind_core.c: create the metatables of the core's objects in a new state. Raises when out of memory. */
void ls_core_define(lua_State *L, ls_state *state);

/* bind_req.c */
int ls_core_params(lua_State *L);
int ls_core_last_segment(lua_State *L);

/* bind_body.c: methods of req, and the limit */
int ls_req_body(lua_State *L);
int ls_req_buffer(lua_State *L);
int ls_req_json(lua_State *L);
int ls_req_form(lua_State *L);
int ls_req_chunks(lua_State *L);
int ls_core_body_max(lua_State *L);

/* bind_time.c */
int ls_core_sleep(lua_State *L);
int ls_core_after(lua_State *L);
int ls_core_every(lua_State *L);
void ls_timers_define(lua_State *L, ls_state *state);
void ls_timers_start(ls_state *state);                     /* arm those defined while loading */
void ls_timers_drain(ls_thread_ctx *ctx, ls_state *state); /* repeating ones stop */
void ls_timers_free(ls_state *state);

/* bind_file.c */
int ls_res_file(lua_State *L);
void ls_file_define(lua_State *L, ls_state *state);

/* bind_job.c */
int ls_core_spawn(lua_State *L);
void ls_jobs_define(lua_State *L, ls_state *state);
/* Run the function `ref` in a task of its own; its error is logged as coming from `what`. No task runs. */
void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, const char *what);

/* bind_notify.c, bind_socket.c */
int ls_core_notify(lua_State *L);
int ls_core_notify_methods(lua_State *L);
int ls_core_socket(lua_State *L);
void ls_notify_define(lua_State *L, ls_state *state);
void ls_notify_free(ls_state *state); /* after Lua's own close */

/* bind_udp.c, bind_udp_client.c */
int ls_core_udp(lua_State *L);
int ls_core_udp_connect(lua_State *L);
void ls_udp_define(lua_State *L, ls_state *state);
void ls_udp_script_close(ls_state *state, ls_thread_ctx *ctx); /* sockets; no thread runs any more, the port is open */
void ls_udp_script_free(ls_state *state);                      /* after Lua's own close */

/* inject.c */
int ls_core_inject(lua_State *L);

/* coroutine.c: replace functions of the coroutine library, which is loaded. */
void ls_coroutine_define(lua_State *L);

#endif
