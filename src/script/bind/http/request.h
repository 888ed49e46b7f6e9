/* request.h - the script side of an exchange: the objects `req` and `res` of a handler.
 *
 * The pair of objects is reused: free pairs are in a ring buffer, and the one that has been free the longest is
 * taken first. So a simple request makes no garbage, and a pair that a site kept is not soon used for another
 * request. A request has a serial; every task that works for it has the same serial (a spawned job inherits it).
 * Use of the objects in another task, or after the request has ended, raises; the two errors differ.
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_REQUEST_H
#define LS_SCRIPT_REQUEST_H

#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "script/bind/modules.h"
#include "script/core/task.h"

enum {
    LS_REQUESTS_RING = 64,     /* below this many free request objects a new one is created, which delays reuse */
    LS_REQUESTS_FREE_MAX = 256 /* further free objects, as after a burst of suspended requests, are dropped */
};

enum ls_request_slot { /* user values of the req object, set on first use */
                       LS_REQ_QUERY = 1,
                       LS_REQ_HEADERS,
                       LS_REQ_COOKIES,
                       LS_REQ_PARAMS,
                       LS_REQ_BODY,
                       LS_REQ_OWN,
                       LS_REQ_QUERY_ALL,
                       LS_REQ_REFUSED,   /* the reason why the body was refused, a string: see body.c */
                       LS_REQ_FORWARDED, /* what trusted proxies say about the client: see forwarded.lua */
                       LS_REQ_TLS,
                       LS_REQ_TRAILERS, /* when the body is complete */
                       LS_REQ_SLOTS
};

enum ls_response_slot {
    LS_RES_REQ = 1, /* the req object, to keep it alive */
    LS_RES_ANSWER,  /* the body of the described response */
    LS_RES_SLOTS
};

typedef struct ls_request ls_request;

/* A response that is described by results or by res:html and its like; it is sent when the handler, or the outermost
 * middleware, has returned. */
enum ls_answer {
    LS_ANSWER_NONE,
    LS_ANSWER_STATUS, /* the body is the reason phrase */
    LS_ANSWER_BODY,   /* LS_RES_ANSWER: a string, number, buffer, or a table for JSON */
    LS_ANSWER_HTML,   /* the same as text/html */
    LS_ANSWER_JSON,   /* any value as JSON */
    LS_ANSWER_LATER   /* a file: ls_request.later */
};

/* An answer that is made when it is sent, because conditions and ranges see the final status and fields. Its own fields
 * are read behind those that the handler has set. */
typedef struct ls_answer_later {
    int (*respond)(ls_request *request, struct ls_answer_later *later); /* as ls_exchange_respond, or LS_E* */
    /* Push the value, or nil. */
    int (*push_field)(lua_State *L, struct ls_answer_later *later, const char *name, size_t len);
    void (*remove_field)(struct ls_answer_later *later, const char *name, size_t len);
    void (*drop)(struct ls_answer_later *later);
} ls_answer_later;

enum ls_body_state { LS_BODY_UNREAD, LS_BODY_READING, LS_BODY_WHOLE, LS_BODY_STREAMED, LS_BODY_FAILED };

struct ls_request {
    const void *tag; /* &ls_request_tag, see udata.h */
    ls_state *state;
    ls_exchange *x; /* NULL: the request has ended */
    ls_task *task;  /* the one that responds */
    uint64_t serial;
    int req_ref, res_ref;
    unsigned filled;  /* bit n: user value n is set */
    bool status_set;  /* the handler has set the status */
    int16_t no_file;  /* res:file has failed: the status of a handler that does not answer; 0: it has not */
    bool failing;     /* the function `failed` runs */
    bool aborted;     /* the state closes: ls_exchange_abort was called */
    bool hung_up;     /* by res:abort, before the client could leave; or the handler knows that the client has left */
    bool returned;    /* the handler has returned: an error is one of its results */
    bool chained;     /* middleware runs: what it answers may be changed until the outermost one has returned */
    uint8_t chain_at; /* the number of the middleware that runs, from 0 */
    uint8_t answer;   /* enum ls_answer */
    bool has_body;    /* LS_RES_ANSWER is set */
    uint8_t body_state;   /* enum ls_body_state */
    bool websocket;       /* app:ws has accepted it */
    uint32_t time_ms_max; /* of the task, while it has no limit because the response is a stream of events or a sock */
    int body_error;       /* LS_E* of a failed body; decides the status if the handler does not catch the error */
    int refused;          /* the status for LS_REQ_REFUSED */
    int dispatch_ref;     /* of the task for which it was taken: the listener, see ls_listener_of */
    ls_answer_later *later;
    const char *middleware;       /* the place of the one whose results describe the response; NULL: the handler has */
    const struct ls_chain *chain; /* its functions: middleware.c */
    uint64_t chain_called;        /* bit n: middleware n has called next() */
    ls_slice *body;               /* received so far */
    unsigned body_count, body_room;
    size_t body_len;
    ls_block *body_fill;           /* the last block that small pieces of the body are copied into, or NULL */
    struct ls_body_coding *coding; /* the body is decoded: body_coding.c; NULL: it is not */
    ls_node waiters;               /* tasks that wait for the exchange */
    ls_block *out;                 /* parts not yet passed to the transport: out[out_from .. out_len) */
    uint32_t out_from, out_len;
    ls_flush flush;    /* sends the parts when the task waits */
    uint64_t written;  /* bytes written as parts */
    uint64_t began_ns; /* when the handler was started; 0 unless the site has a "log" hook */
    void *owned;       /* an ls_tcp or an ls_sse, until it closes: see ls_http_task_owns */
    void (*drop_owned)(ls_thread_ctx *ctx, void *owned);
};

typedef struct ls_response { /* the res object */
    const void *tag;
    ls_request *request;
} ls_response;

typedef struct ls_requests {                /* of a state */
    ls_request *ring[LS_REQUESTS_FREE_MAX]; /* ring buffer of free request objects; the oldest is at ring_at */
    unsigned ring_at, ring_count;
    uint64_t serial; /* of the last request */
    int method_refs[LS_HTTP_METHODS];
    int req_meta_ref, res_meta_ref, headers_meta_ref, lists_meta_ref;
    int page_ref; /* dev mode: a function that changes pages (dev_object.c); 0: none */
} ls_requests;

static inline ls_requests *ls_requests_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_request);
}

extern const char ls_request_tag;

/* Add methods to the objects of the state whose metatable is `meta_ref`, req_meta_ref or res_meta_ref. For modules
 * behind `res`. May raise. */
void ls_request_methods(lua_State *L, int meta_ref, const luaL_Reg *methods);

/* The request of the req or res object at `index`. Raises if the value has another type, the request has ended, or the
 * current task does not belong to it. */
ls_request *ls_request_check_req(lua_State *L, int index);
ls_request *ls_request_check_res(lua_State *L, int index);
/* The request of the res object at `index`; NULL: another value. */
ls_request *ls_response_test(lua_State *L, int index);
/* The request of the res object at `index`, which ls_request_check_res has accepted before; NULL: it has ended. */
ls_request *ls_request_of_res(lua_State *L, int index);

/* Store the value on top of the stack as user value `slot` of the req object at `self` until the request ends. The
 * value stays on the stack. */
void ls_request_cache(lua_State *L, ls_request *request, int self, int slot);
/* Push the stored value and return true; return false if `slot` is empty. */
bool ls_request_cached(lua_State *L, const ls_request *request, int self, int slot);

/* Take a request object for x. Called in the task that responds. May raise. */
ls_request *ls_request_take(lua_State *L, ls_exchange *x);
/* The exchange ends: invalidate the objects, wake the waiters, drop all references and return the objects to the ring.
 * Does not release the exchange. */
void ls_request_release(ls_thread_ctx *ctx, ls_request *request);

/* For a request that outlives its response: let Lua collect the res object, if nothing else refers to it. The request
 * ends with ls_request_release_alone, which drops the objects. */
void ls_request_release_res(ls_request *request);
void ls_request_release_alone(ls_thread_ctx *ctx, ls_request *request);

/* The callback `wake` of every exchange of this layer: wakes the waiters. */
void ls_request_wake(ls_thread_ctx *ctx, ls_exchange *x);
/* The running handler learns from a result that its client has left: its later waits do not end for that reason. */
void ls_request_tell_left(const ls_state *state);
/* Suspend the current task until ls_request_wake(). */
int ls_request_wait(lua_State *L, ls_request *request, lua_KContext context, lua_KFunction k);

/* Append bytes to the parts in `out`, which its owner passes on: ls_request_flush_later. LS_DONE, LS_PENDING or LS_E*.
 * May raise or run a finalizer. */
int ls_request_collect(lua_State *L, ls_request *request, const char *bytes, size_t len);

static inline void ls_request_drop_parts(ls_request *request)
{
    if (request->out != NULL) ls_block_drop(request->out);
    request->out = NULL;
    request->out_from = request->out_len = 0;
}

/* Pass the parts in `out` to the transport, also the head alone: `out` is empty. Returns LS_DONE, LS_PENDING or
 * LS_E*. */
int ls_request_push_parts(ls_thread_ctx *ctx, ls_request *request);
/* Parts were collected in `out`: pass them to the transport and flush when the task waits, so that the client receives
 * the parts written so far. */
static inline void ls_request_flush_later(ls_request *request)
{
    ls_state_flush_later(request->state, &request->flush);
}

/* The body cannot be read, because of `err` of ls_exchange_read: raise, and note the status. */
int ls_request_body_failed(lua_State *L, ls_request *request, int err);
/* Free the received body. */
void ls_request_drop_body(ls_request *request);

/* Describe the response. The description before is dropped. For LS_ANSWER_BODY, HTML and JSON the body is on top of the
 * stack, and is popped; the res object is at the index `res`. */
void ls_request_describe(lua_State *L, ls_request *request, enum ls_answer answer, int res);
/* The Content-Type of the description unless the handler has set one; NULL: none, or that of a file. */
const char *ls_request_answer_type(lua_State *L, const ls_request *request);
void ls_request_describe_later(ls_request *request, ls_answer_later *later); /* takes `later` */

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

/* Push the method, and the path in the form of the request: "/" for an empty one. */
static inline void ls_request_push_method(lua_State *L, const ls_exchange *x)
{
    const ls_http_head *head = &x->head;
    if (head->method != LS_HTTP_OTHER)
        lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(ls_state_of(L))->method_refs[head->method]);
    else
        lua_pushlstring(L, x->bytes + head->method_name.at, head->method_name.len);
}

static inline void ls_request_push_path(lua_State *L, const ls_exchange *x)
{
    if (x->head.path_is_root)
        lua_pushliteral(L, "/");
    else
        lua_pushlstring(L, x->bytes + x->head.path.at, x->head.path.len);
}

/* The request id of logs and req.id: 16 hexadecimal digits. */
void ls_request_id_text(uint64_t id, char out[17]);

bool ls_is_injected(const ls_exchange *x);       /* inject.c: the request is one of app:inject */
const char *ls_no_upgrade(const ls_exchange *x); /* inject.c: why ls_exchange_upgrade has returned LS_ENOTSUP */

/* The name of a request in the log: "request <id> GET /path", with at most 180 bytes of the path. The id is that of
 * x->id_field, if it is set. */
enum { LS_REQUEST_NAME_BYTES = 304, LS_REQUEST_ID_BYTES_MAX = 64 };
void ls_request_log_name(const ls_exchange *x, char out[LS_REQUEST_NAME_BYTES]);

/* Log that the body of the request was refused, with the address of the client (req.ip). May raise. */
void ls_request_log_refused(lua_State *L, const ls_request *r, int status, const char *why);

#endif
