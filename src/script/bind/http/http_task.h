/* http_task.h - a request in Lua: runs the dispatch function of a listener in a task and responds with its results. */
#ifndef LS_SCRIPT_HTTP_TASK_H
#define LS_SCRIPT_HTTP_TASK_H

#include "http/exchange.h"
#include "script/bind/http/request.h"

/* Start a request in a task of `state`, whose actor the thread holds. dispatch_ref and failed_ref are registry
 * references to functions. Returns when the task is suspended or has ended; the exchange is released when it has
 * ended. */
void ls_http_task_start(ls_thread_ctx *ctx, ls_state *state, ls_exchange *x, int dispatch_ref, int failed_ref,
                        uint32_t time_ms_max);

/* The task of a request has failed after its response, and the request continues in another way: log the error, and
 * release the task. Returns a task that runs the "log" hooks, for which the caller sets the owner and the end; NULL:
 * none. */
ls_task *ls_http_task_failed(ls_thread_ctx *ctx, ls_task *task, ls_exchange *x);

/* Push the name and the place of the route of a request, two strings such as "GET /items/:id" and "site.lua:12", or of
 * the error handler if `failing`. false: it has none, or cannot be named; nothing is pushed. For messages. */
bool ls_route_push(lua_State *L, int dispatch_ref, const ls_exchange *x, bool failing);

/* Whether the error at `index` is the failure of a database (lua/luaserve/failure.lua) whose server was not reached: the
 * status is 503. A failure that names no line, after a tail call, gets the place of the route. */
bool ls_http_is_unreached(lua_State *L, int index, const ls_exchange *x, int dispatch_ref, bool failing);

/* Push the message of a handler that has exceeded the limit of processor time or of time; it names the route. */
void ls_http_push_exceeded(lua_State *L, const ls_task *task, const ls_exchange *x, bool failing);

/* ls_http_handler.start of the listeners of a site: enters a free state unless x->actor is one. */
void ls_http_handler_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x);

/* Bytes of the reason why a body was refused, with its NUL. That of check.lua is JSON, of at most 2,000 bytes. */
enum { LS_REFUSED_BYTES = 2048 };

/* The status for a handler that ended with the error at `index` because of a mistake of the client: a body that did
 * not arrive whole, or that req:json refused, whose reason is copied. 0: it is a failure of the handler. */
int ls_http_client_mistake(lua_State *L, const ls_request *request, int index, char *reason, size_t reason_bytes);

/* Put the place and the name of the route, or the place of the middleware that has returned, before the message at
 * `index`, if it is a string that names no line because the handler is over. */
void ls_http_name_route(lua_State *L, const ls_request *request, int index, int dispatch_ref);

/* The task that responds owns `owned`, which stands in request->owned until its owner or kind->drop(owned) clears
 * that: that is called when the task has ended, before the request does. Once for a request. */
void ls_http_task_owns(ls_request *request, void *owned, const ls_response_kind *kind);

#endif
