/* request.h - the script's side of an exchange: the two objects that a handler sees, `req` and `res`.
 *
 * Both are made once and go round in a ring, oldest first, so that a plain request makes no garbage, and an object
 * that a site kept is not soon another request's. A request carries the serial that every task working for it has
 * (spawned jobs inherit it): touching it from any other task, or after its end, raises "the request is over". */
#ifndef LS_SCRIPT_REQUEST_H
#define LS_SCRIPT_REQUEST_H

#include "script/task.h"

enum ls_request_slot { /* user values of the req object, filled on first use */
                       LS_REQ_QUERY = 1,
                       LS_REQ_HEADERS,
                       LS_REQ_COOKIES,
                       LS_REQ_PARAMS,
                       LS_REQ_BODY,
                       LS_REQ_OWN,
                       LS_REQ_SLOTS
};

enum ls_body_state { LS_BODY_UNREAD, LS_BODY_READING, LS_BODY_WHOLE, LS_BODY_STREAMED, LS_BODY_FAILED };

/* Bodies and parts of at least this many bytes are sent from where they lie; smaller ones are copied beside
 * others. */
enum { LS_PIN_BYTES = 16384, LS_PIN_PART_BYTES = 65536 };

struct ls_request {
    const void *tag; /* &ls_request_tag: what a userdata is, without a look into the registry */
    ls_state *state;
    ls_exchange *x; /* NULL: the request is over */
    ls_task *task;  /* the one that answers */
    uint64_t serial;
    int req_ref, res_ref;
    unsigned filled;    /* bit n: user value n is set */
    bool status_set;    /* by the handler */
    bool failing;       /* `failed` runs */
    uint8_t body_state; /* enum ls_body_state */
    int body_error;     /* LS_E* of a bad body: decides the status when nobody catches it */
    ls_slice *body;     /* received so far */
    unsigned body_count, body_room;
    size_t body_len;
    ls_block *body_fill; /* what small pieces are copied into: the block of the last of them, or NULL */
    ls_node waiters;     /* tasks that wait for the exchange */
    ls_block *out;       /* parts not yet handed to the transport: out[out_from .. out_len) */
    uint32_t out_from, out_len;
    uint64_t written; /* bytes of parts */
};

typedef struct ls_response { /* the res object; its user value 1 is the req object, which it keeps alive */
    const void *tag;
    ls_request *request;
} ls_response;

extern const char ls_request_tag;

/* The request behind the object at `index`. Raises when it is another thing, or the request is over for this task. */
ls_request *ls_request_check_req(lua_State *L, int index);
ls_request *ls_request_check_res(lua_State *L, int index);

/* Make the metatables of req and res. */
void ls_request_define_req(lua_State *L, ls_state *state);
void ls_request_define_res(lua_State *L, ls_state *state);

/* Keep the value on top as user value `slot` until the request ends; it stays on top. The req object is at `self`. */
void ls_request_keep(lua_State *L, ls_request *request, int self, int slot);
bool ls_request_kept(lua_State *L, const ls_request *request, int self, int slot); /* push it, if there */

/* Push a table of the decoded pairs in "a=1&b=2". Of a name that comes again the first value stays. */
void ls_request_push_pairs(lua_State *L, const char *bytes, size_t len);

/* Take one for x, from inside the task that answers. May raise. */
ls_request *ls_request_take(lua_State *L, ls_exchange *x);
/* The exchange ends: objects are void, waiters are woken, references dropped. Does not call transport->end. */
void ls_request_release(ls_thread_ctx *ctx, ls_request *request);

/* x->wake of every exchange of this layer. */
void ls_request_wake(ls_thread_ctx *ctx, ls_exchange *x);
/* Suspend the current task until then. */
int ls_request_wait(lua_State *L, ls_request *request, lua_KContext context, lua_KFunction k);
/* The same when ls_task_can_wait was true before, for bytes that lie in a string: never raises. */
int ls_request_wait_pinned(lua_State *L, ls_request *request, lua_KContext context, lua_KFunction k);

/* Hand the parts held back to the transport. LS_DONE, LS_PENDING or an error. */
int ls_request_push_parts(ls_thread_ctx *ctx, ls_request *request);
/* The handler is about to wait for something: let the client have what was written so far. */
void ls_request_send_parts(ls_thread_ctx *ctx, ls_request *request);

void ls_request_drop_body(ls_request *request);

/* A body for an answer: at `index` a string, a number or a buffer. The slices hold references for blocks; a string's
 * bytes are Lua's: when `pinned` is set keep it on the stack until the transport says drained. LS_OK; LS_EINVAL: it is
 * another thing; LS_ENOMEM. */
typedef struct ls_body {
    ls_slice few[8];
    ls_slice *slices; /* few, or malloced */
    unsigned count;
    bool pinned;
} ls_body;
int ls_body_of(lua_State *L, int index, ls_body *out);
void ls_body_free(ls_body *body); /* the array; the references went with respond or write */

/* Answer with the value at `index`: the rule for handler results. The status is set before. Pushes nothing but may
 * replace the value by its JSON text. Returns what respond said; *pinned as in ls_body. Raises for nonsense. */
int ls_request_respond_body(lua_State *L, ls_request *request, int index, bool *pinned);
int ls_request_respond_text(ls_request *request, int status); /* the reason phrase, or nothing where none may be */
int ls_request_respond_json_text(lua_State *L, ls_request *request, int index, bool *pinned); /* encoded before */

/* Replace the table at the absolute `index` by its JSON text. Raises. */
void ls_json_encode(lua_State *L, int index);

/* Set a header from the values at `name` and `value` (text, number, or a table of them). Raises. */
void ls_request_set_header(lua_State *L, ls_request *request, int name, int value);

/* Start a request in a task of `state`, whose actor is held; dispatch_ref and failed_ref are functions in the
 * registry. Returns when it ended or is suspended. */
void ls_http_task_start(ls_thread_ctx *ctx, ls_state *state, ls_exchange *x, int dispatch_ref, int failed_ref);
void ls_http_handler_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x);

/* The id that logs and req.id show: 16 hexadecimal digits. */
void ls_request_id_text(uint64_t id, char out[17]);

#endif
