/* res.h - the `res` object. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_RES_H
#define LS_SCRIPT_BIND_RES_H

#include "script/bind/http/request.h"

/* The request of the res object at index 1. Raises when the head of the response was already sent. */
ls_request *ls_res_check_open(lua_State *L);

/* Raise if the response is described: `call` would begin a stream. */
void ls_res_check_undescribed(lua_State *L, const ls_request *request, const char *call);

/* Set the header at stack index `name` to the value at `value`: a string, a number, or a table of them. Raises. */
void ls_request_set_header(lua_State *L, ls_request *request, int name, int value);
/* Set the headers of the table at `index`, which may be nil or none. Raises. */
void ls_request_set_headers(lua_State *L, ls_request *request, int index);

#endif
