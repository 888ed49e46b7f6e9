/* middleware.h - the middleware around a handler, and the function `next` that it gets.
 *
 * A chain is made once for a route: the functions of app:use, outermost first, then the handler. A request runs it in
 * one task without making tables or closures. next() runs the rest of the chain and records what it answers in `res`
 * (ls_http_result_record); the errors of the rest become responses there. Thread: the one that holds the state's
 * actor. */
#ifndef LS_SCRIPT_MIDDLEWARE_H
#define LS_SCRIPT_MIDDLEWARE_H

#include <lua.h>

/* core.chain(functions, places) -> run(req, res): the middleware functions and, last, the handler; the places of the
 * middleware, such as "site.lua:12", for messages. */
int ls_core_chain(lua_State *L);

#endif
