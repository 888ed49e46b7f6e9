/* http_result.h - the rules for what a handler returns: body; body, headers; status; or status, body, headers. nil is
 * 204, or the status that the handler has set. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_HTTP_RESULT_H
#define LS_SCRIPT_HTTP_RESULT_H

#include "script/bind/http/request.h"

/* The stack index of the first result; the others follow, up to the top. */
enum { LS_HTTP_RESULT = 2 };

/* Respond with the results of the handler. Raises for results that are no response. A disconnected client is not an
 * error. */
void ls_http_result_respond(lua_State *L, ls_request *r);

/* The same after next(): describe the response in `r` (ls_request_describe). Without results what `res` describes
 * remains; after an error handler that is the status 500 unless it has set one. */
void ls_http_result_record(lua_State *L, ls_request *r);

/* The handler has sent the response, or its start, by `res`: log an error if it has also returned a body. */
void ls_http_result_unused(lua_State *L, const ls_request *r);

#endif
