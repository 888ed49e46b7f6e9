/* body.h - the body of a request in Lua: whole or in parts, and what is answered when it cannot be used. Thread: the
 * one that holds the state's actor. */
#ifndef LS_SCRIPT_BODY_H
#define LS_SCRIPT_BODY_H

#include "script/bind/http/request.h"

/* Whether the client has announced more bytes than the limit. */
static inline bool ls_body_is_too_large(const ls_exchange *x)
{
    return x->head.has_length && x->head.content_length > x->body_bytes_max;
}

/* The status of a response to a body that cannot be read because of this LS_E*. */
int ls_body_status(int err);

/* As ls_exchange_read, after the decoding of the body. */
static inline int ls_body_read(ls_request *request, ls_slice *out)
{
    return ls_body_in_read(&request->in, request->state->ctx, request->x, out);
}

/* The body cannot be read, because of `err` of ls_body_read: raise, and note the status. */
int ls_body_failed(lua_State *L, ls_request *request, int err);

/* Raise for the reason on top of the stack: it is the response, with this status, unless the site catches the
 * error. */
int ls_body_refuse(lua_State *L, ls_request *request, int status);

#endif
