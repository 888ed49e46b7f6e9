/* request.h - the script side of an exchange: the objects `req` and `res` of a handler.
 *
 * The pair of objects is reused: free pairs are in a ring buffer, and the one that has been free the longest is
 * taken first. So a simple request makes no garbage, and a pair that a site kept is not soon used for another
 * request. A request has a serial; every task that works for it has the same serial (a spawned job inherits it).
 * Use of the objects in another task, or after the request has ended, raises; the two errors differ.
 *
 * An ls_request is the userdata `req`. Its parts are used by different files: body_in and body_out know only the
 * exchange, middleware.c the run of a chain, and respond.c the description of the response.
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_REQUEST_H
#define LS_SCRIPT_REQUEST_H

#include "script/bind/http/body_in.h"
#include "script/bind/http/body_out.h"
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

/* An answer that is made when it is sent, because conditions and ranges see the final status and fields. Its own
 * fields are read after those that the handler has set. */
typedef struct ls_answer_later {
    int (*respond)(ls_request *request, struct ls_answer_later *later); /* as ls_exchange_respond, or LS_E* */
    /* Push the value, or nil. */
    int (*push_field)(lua_State *L, struct ls_answer_later *later, const char *name, size_t len);
    void (*remove_field)(struct ls_answer_later *later, const char *name, size_t len);
    void (*drop)(struct ls_answer_later *later);
} ls_answer_later;

/* What has taken the response over: a stream of events, a sock, a WebSocket. */
typedef struct ls_response_kind {
    void (*drop)(ls_thread_ctx *ctx, void *owned);     /* see ls_http_task_owns */
    void (*returned)(ls_thread_ctx *ctx, void *owned); /* NULL, or the handler has returned, and the response ends */
    const char *no_write;                              /* NULL, or the error of res:write while there is `owned` */
    const char *sent;                                  /* NULL, or the error of res when the response is complete */
} ls_response_kind;

/* A run of middleware: middleware.c. Other files read `runs` and `place`. */
typedef struct ls_chain_run {
    const struct ls_chain *functions;
    uint64_t called;   /* bit n: middleware n has called next() */
    const char *place; /* of the middleware whose results describe the response; NULL: those of the handler do */
    bool runs;         /* what it answers may be changed until the outermost one has returned */
    uint8_t at;        /* the number of the middleware that runs, from 0 */
} ls_chain_run;

struct ls_request {
    const void *tag; /* &ls_request_tag, see udata.h */
    ls_state *state;
    ls_exchange *x; /* NULL: the request has ended */
    ls_task *task;  /* the one that responds */
    uint64_t serial;

    /* The exchange: the body that is received, the parts that are sent, and who waits for them. */
    uint32_t time_ms_max; /* of the task, while it has no limit because the response is a stream of events or a sock */
    bool aborted;         /* the state closes: ls_exchange_abort was called */
    bool hung_up; /* by res:abort, before the client could leave; or the handler knows that the client has left */
    ls_body_in in;
    ls_body_out out;
    ls_node waiters;              /* tasks that wait for the exchange */
    void *owned;                  /* an ls_tcp or an ls_sse, until it closes: see ls_http_task_owns */
    const ls_response_kind *kind; /* NULL: a usual response */
    uint64_t began_ns;            /* when the handler was started; 0 unless the site has a "log" hook */

    /* Lua: the objects, the middleware, and the response that is described. */
    int req_ref, res_ref;
    unsigned filled;  /* bit n: user value n is set */
    int dispatch_ref; /* of the task for which it was taken: the listener, see ls_listener_of */
    ls_chain_run chain;
    ls_answer_later *later;
    const char *described; /* by this call of res, since the function began or next() returned; NULL: none */
    int16_t no_file; /* res:file has failed: the status of a handler that does not answer; 0: it has not */
    uint8_t answer;  /* enum ls_answer */
    bool has_body;   /* LS_RES_ANSWER is set */
    bool status_set; /* the handler has set the status */
    bool failing;    /* the function `failed` runs */
    bool returned;   /* the handler has returned: an error is one of its results */
    int described_line;
    char described_file[LUA_IDSIZE]; /* where */
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
 * after `res`. May raise. */
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

/* Whether the response has begun, so that its status and fields cannot change. */
static inline bool ls_request_has_begun(const ls_request *request)
{
    return request->x->response != LS_RESPONSE_NONE || request->out.block != NULL;
}

/* The parts of the response, as in body_out.h. Who adds some has them passed on by ls_request_flush_later. */
static inline int ls_request_collect(lua_State *L, ls_request *request, const char *bytes, size_t len)
{
    return ls_body_out_add(L, &request->out, request->x, bytes, len);
}

static inline int ls_request_push_parts(ls_thread_ctx *ctx, ls_request *request)
{
    return ls_body_out_push(&request->out, ctx, request->x);
}

static inline void ls_request_drop_parts(ls_request *request)
{
    ls_body_out_drop(&request->out);
}

/* Parts were collected: pass them to the transport and flush when the task waits, so that the client receives the
 * parts written so far. */
static inline void ls_request_flush_later(ls_request *request)
{
    ls_state_flush_later(request->state, &request->out.flush);
}

static inline void ls_request_drop_answer(ls_request *request)
{
    if (request->later != NULL) request->later->drop(request->later);
    request->later = NULL;
    request->described = NULL;
    request->answer = LS_ANSWER_NONE;
}

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

/* The request is slow after `ms`: measure its waits from now on. Without a recorder, or memory, it has no effect. */
void ls_request_measure(ls_request *request, uint32_t ms);
void ls_request_measured(const ls_exchange *x); /* the handler has ended */
extern struct ls_record_sink ls_slow_sink; /* logs slow requests: of listeners and routes with `slow` */

/* The request id of logs and req.id: 16 hexadecimal digits. */
void ls_request_id_text(uint64_t id, char out[17]);

bool ls_is_injected(const ls_exchange *x);       /* the request is one of app:inject */
const char *ls_no_upgrade(const ls_exchange *x); /* why ls_exchange_upgrade has returned LS_ENOTSUP */

/* The name of a request in the log: "request <id> GET /path", with at most 180 bytes of the path. The id is that of
 * x->id_field, if it is set. */
enum { LS_REQUEST_NAME_BYTES = 304, LS_REQUEST_ID_BYTES_MAX = 64 };
void ls_request_log_name(const ls_exchange *x, char out[LS_REQUEST_NAME_BYTES]);

#endif
