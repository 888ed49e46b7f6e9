/* route_name.h - the names of routes, for messages about a request. Only the router, in Lua, knows its routes; it is
 * asked after a failure, never before. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_ROUTE_NAME_H
#define LS_SCRIPT_ROUTE_NAME_H

#include <stdbool.h>

#include <lua.h>

#include "proto/exchange.h"

/* core.name_routes(dispatch, fn): fn(method, path, failing) -> the name and the place of the route that `dispatch`
 * chooses for a request, or of the error handler if `failing`; or nil. */
int ls_core_name_routes(lua_State *L);

/* Push the name and the place, two strings such as "GET /items/:id" and "site.lua:12". false: the request has no
 * route, or it cannot be named; nothing is pushed. */
bool ls_route_push(lua_State *L, int dispatch_ref, const ls_exchange *x, bool failing);

#endif
