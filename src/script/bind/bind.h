/* bind.h - functions of the bindings that other bindings use, and that have no header of their own.
 *
 * ls_core_NAME is the function `luaserve.core`.NAME, ls_res_upgrade is a method of res: each is a lua_CFunction, documented
 * above its definition. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_H
#define LS_SCRIPT_BIND_H

#include <lauxlib.h>

#include "script/core/state.h"

/* req.c */
int ls_core_params(lua_State *L);
int ls_core_last_segment(lua_State *L);
int ls_core_request_id(lua_State *L);
int ls_core_client(lua_State *L);
int ls_core_cookie(lua_State *L);
int ls_core_maker(lua_State *L);
int ls_core_own(lua_State *L);

/* res.c */
int ls_core_be_private(lua_State *L);

/* body.c */
extern const luaL_Reg ls_body_methods[]; /* of req */
int ls_core_body_max(lua_State *L);
int ls_core_request_chunks(lua_State *L);
int ls_core_refuse(lua_State *L);

/* body_coding.c */
int ls_core_decompress(lua_State *L);

/* body_save.c */
int ls_core_body_save(lua_State *L);

/* etag.c */
int ls_core_etag(lua_State *L);

/* res_upgrade.c */
int ls_res_upgrade(lua_State *L);

/* tls_object.c */
struct ls_filter;
/* Push the table of req.tls and sock.tls; nil without a session. */
void ls_push_tls(lua_State *L, const struct ls_filter *session);
/* Push nil, "TLS: why" and the code of `err`; for an empty `why`, the text of `err`. Returns 3. */
int ls_push_tls_failure(lua_State *L, int err, const char *why);

/* job.c */
/* Run the registry's function `ref` in a new task. An error of it is logged with `what`, a static text such as
 * "in a timer". `of_site`: as in task.h. No task runs at the call. */
void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, bool of_site, const char *what);

#endif
