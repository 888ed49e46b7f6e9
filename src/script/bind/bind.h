/* bind.h - functions of the bindings that other bindings use, and that have no header of their own.
 *
 * ls_core_NAME is the function `luaserve.core`.NAME, ls_req_NAME and ls_res_NAME are methods of req and res: each is a
 * lua_CFunction, documented above its definition. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_H
#define LS_SCRIPT_BIND_H

#include <lua.h>

#include "script/core/state.h"

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
int ls_res_sse(lua_State *L);
int ls_res_upgrade(lua_State *L);

/* tls.c */
struct ls_filter;
/* Push the table of req.tls and sock.tls; nil without a session. */
void ls_push_tls(lua_State *L, const struct ls_filter *session);
/* Push nil, "TLS: why" and the code of `err`; for an empty `why`, the text of `err`. Returns 3. */
int ls_push_tls_failure(lua_State *L, int err, const char *why);

/* job.c */
/* Run the registry's function `ref` in a new task. An error of it is logged with `what`, a static text such as
 * "in a timer". No task runs at the call. */
void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, const char *what);

/* dev.c: begin dev mode in a state, before its site is loaded. A lua_CFunction without arguments. */
int ls_dev_begin(lua_State *L);

#endif
