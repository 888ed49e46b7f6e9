/* response_coding.h - the content codings of luaserve.compress in the task of a request. Thread: the one that holds
 * the state's actor. */
#ifndef LS_SCRIPT_RESPONSE_CODING_H
#define LS_SCRIPT_RESPONSE_CODING_H

#include "script/bind/http/request.h"

/* The whole body of the response waits to be encoded (ls_coding_filter_waits): other threads do that while the task
 * waits; continue with `done` when all of it is queued. The stack of L is cleared. */
int ls_response_coding_finish(lua_State *L, ls_request *request, int (*done)(lua_State *L, ls_request *request));

#endif
