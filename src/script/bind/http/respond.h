/* respond.h - responses with a whole body: their description, and their sending. Thread: the one that holds the
 * state's actor. */
#ifndef LS_SCRIPT_RESPOND_H
#define LS_SCRIPT_RESPOND_H

#include "script/bind/http/request.h"

/* Describe the response. The description before is dropped. For LS_ANSWER_BODY, HTML and JSON the body is on top of
 * the stack, and is popped; the res object is at the index `res`. */
void ls_request_describe(lua_State *L, ls_request *request, enum ls_answer answer, int res);
/* The Content-Type of the description unless the handler has set one; NULL: none, or that of a file. */
const char *ls_request_answer_type(lua_State *L, const ls_request *request);
void ls_request_describe_later(ls_request *request, ls_answer_later *later); /* takes `later` */

/* A response is described once: `call`, such as "res:html", has described it. Notes the line of the site. */
void ls_request_note_call(lua_State *L, ls_request *request, const char *call);
/* Raise that a call has described the response. */
int ls_request_refuse_second(lua_State *L, const ls_request *request);
static inline void ls_request_check_undescribed(lua_State *L, const ls_request *request)
{
    if (request->described != NULL) (void)ls_request_refuse_second(L, request);
}

/* The bytes of the string, number or buffer at `index`, as the body of a response. The slices of a buffer or of a long
 * string hold references to its blocks. May raise or run a finalizer, unless a string block is reserved
 * (string_block.h). Returns LS_OK, LS_EINVAL (another type) or LS_ENOMEM. */
typedef struct ls_body {
    ls_slice few[8];
    ls_slice *slices; /* `few`, or malloced */
    unsigned count;
} ls_body;
int ls_body_of(lua_State *L, int index, ls_body *out);
void ls_body_free(ls_body *body); /* frees the array; respond and write have taken the references */

/* Respond with the value at `index` by the rules for handler results. The status must be set. Leaves the stack as
 * it is, but may replace the value by its JSON text. Returns the result of ls_exchange_respond. Raises if the value is
 * not a valid body. */
int ls_request_respond_body(lua_State *L, ls_request *request, int index);
/* Respond with this status and its reason phrase as the body; without a body if the status allows none. */
int ls_request_respond_text(ls_request *request, int status);
/* Respond with the string, number or buffer at `index`; `type` is its Content-Type unless the handler has set one, and
 * must be one of the texts below, or static. */
int ls_request_respond_as(lua_State *L, ls_request *request, int index, const char *type);
extern const char ls_type_html[], ls_type_json[];

/* Respond with the value at `index` as JSON. May replace it by its text. */
int ls_request_respond_json(lua_State *L, ls_request *request, int index);

/* ---- res.c ---- */

/* The request of the res object at index 1. Raises when the head of the response was already sent. */
ls_request *ls_res_check_open(lua_State *L);

/* Raise if the response is described: `call` would begin a stream. */
void ls_res_check_undescribed(lua_State *L, const ls_request *request, const char *call);

/* Set the header at stack index `name` to the value at `value`: a string, a number, or a table of them. Raises. */
void ls_request_set_header(lua_State *L, ls_request *request, int name, int value);
/* Set the headers of the table at `index`, which may be nil or none. Raises. */
void ls_request_set_headers(lua_State *L, ls_request *request, int index);

/* ---- response_coding.c, for luaserve.compress ---- */

/* The whole body of the response waits to be encoded (ls_coding_filter_waits): other threads do that while the task
 * waits; continue with `done` when all of it is queued. The stack of L is cleared. */
int ls_response_coding_finish(lua_State *L, ls_request *request, int (*done)(lua_State *L, ls_request *request));

#endif
