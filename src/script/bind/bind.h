/* bind.h - what each binding file offers to core.c, state.c and site.c.
 *
 * ls_core_NAME is the function `luaserve.core`.NAME, ls_req_NAME and ls_res_NAME are methods of req and res: each is a
 * lua_CFunction, documented above its definition. ls_NOUN_define creates the metatables of an object in a new state,
 * and raises when out of memory. Thread: the one that holds the state's actor, unless a comment names another time. */
#ifndef LS_SCRIPT_BIND_H
#define LS_SCRIPT_BIND_H

#include <lua.h>

#include "script/core/state.h"

/* core.c */
int ls_core_open(lua_State *L); /* push the table of `luaserve.core`, the C module of lua/luaserve */
void ls_core_define(lua_State *L, ls_state *state); /* call every ls_NOUN_define */

/* req.c */
int ls_core_params(lua_State *L);
int ls_core_last_segment(lua_State *L);

/* body.c */
int ls_req_body(lua_State *L);
int ls_req_buffer(lua_State *L);
int ls_req_json(lua_State *L);
int ls_req_form(lua_State *L);
int ls_req_form_all(lua_State *L);
int ls_req_chunks(lua_State *L);
int ls_core_body_max(lua_State *L);

/* file.c */
int ls_res_file(lua_State *L);

/* file_serve.c */
void ls_serve_define(lua_State *L, ls_state *state);

/* static.c */
int ls_core_static(lua_State *L);
int ls_core_static_get(lua_State *L);
int ls_core_static_list(lua_State *L);
void ls_static_define(lua_State *L, ls_state *state);

/* time.c */
int ls_core_sleep(lua_State *L);
int ls_core_after(lua_State *L);
int ls_core_every(lua_State *L);
void ls_timers_define(lua_State *L, ls_state *state);
void ls_timers_start(ls_state *state);                     /* the server starts: arm the timers made while loading */
void ls_timers_drain(ls_thread_ctx *ctx, ls_state *state); /* the server drains: stop the repeating timers */
void ls_timers_free(ls_state *state);                      /* no thread runs and the port is closed */

/* tls.c */
struct ls_filter;
/* Push the table of req.tls and sock.tls; nil without a session. */
void ls_push_tls(lua_State *L, const struct ls_filter *session);
/* Push nil, "TLS: why" and the code of `err`; for an empty `why`, the text of `err`. Returns 3. */
int ls_push_tls_failure(lua_State *L, int err, const char *why);

/* job.c */
int ls_core_spawn(lua_State *L);
void ls_jobs_define(lua_State *L, ls_state *state);
/* Run the registry's function `ref` in a new task. An error of it is logged with `what`, a static text such as
 * "in a timer". No task runs at the call. */
void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, const char *what);

/* connect.c */
int ls_core_connect(lua_State *L);
void ls_connect_define(lua_State *L, ls_state *state);

/* notify.c */
int ls_core_notify(lua_State *L);
int ls_core_notify_methods(lua_State *L);
void ls_notify_define(lua_State *L, ls_state *state); /* sockets of ls.socket as well */
void ls_notify_free(ls_state *state);                 /* after lua_close */

/* socket.c */
int ls_core_socket(lua_State *L);

/* udp.c */
int ls_core_udp(lua_State *L);
void ls_udp_define(lua_State *L, ls_state *state); /* sockets of ls.udp_connect as well */

/* udp_client.c */
int ls_core_udp_connect(lua_State *L);
void ls_udp_script_close(ls_state *state,
                         ls_thread_ctx *ctx); /* close the sockets: no thread runs, the port is open */
void ls_udp_script_free(ls_state *state);     /* after lua_close */

/* text.c */
int ls_core_html_escape(lua_State *L);
int ls_core_url_encode(lua_State *L);

/* inject.c */
int ls_core_inject(lua_State *L);

/* interrupt.c */
int ls_core_interrupt(lua_State *L);
int ls_core_interruptible(lua_State *L);

/* path.c */
int ls_core_safe_join(lua_State *L);
int ls_core_user_id(lua_State *L);
int ls_core_group_id(lua_State *L);

/* coroutine.c: replace functions of the coroutine library, which is loaded. */
void ls_coroutine_define(lua_State *L);

#endif
