/* ws.h - a WebSocket that Lua reads and writes: the C side of a `ws` object, over ws/websocket.h.
 *
 * The Lua object is the connection's memory of this layer, one small userdata. The registry keeps the object of a
 * server until the connection has ended and its last handler has returned; that of a client lives as long as Lua
 * refers to it.
 *
 *     route:   handshake (ws_accept.c) --> the request ends --> begin
 *     client:  handshake (ls.websocket) ----------------------> begin
 *
 *     coroutine form:  one task runs handler(ws, req); ws:receive takes the messages in it.
 *     event form:      a task for each of open, message and close, one at a time; no task while nothing happens.
 *     client:          any task receives.
 *
 * A message that no task has taken stays in the connection, which receives no further message: back-pressure. The data
 * that a task sends leaves when the task waits or ends. The connection handles the frame after a message when the task
 * that took the message waits, ends or receives again: an answer to the message precedes the answer to a Close frame.
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_WS_H
#define LS_SCRIPT_WS_H

#include "codec/ws/ws_handshake.h"
#include "net/listener.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/request.h"
#include "script/bind/modules.h"
#include "script/bind/option.h"
#include "script/core/task.h"
#include "script/store/topic.h"
#include "ws/websocket.h"

typedef struct ls_ws_object ls_ws_object;

/* A call of app:ws in one state: a userdata. The router of a listener keeps it until the state closes, and connections
 * come from listeners only: so it outlives them. */
typedef struct ls_ws_route {
    const void *tag;
    const char *name; /* for the log */
    ls_ws_config config;
    ls_ws_policy policy;
    ls_ws_deflate_options deflate;
    bool compress;                        /* deflate may be negotiated */
    bool takes_request;                   /* the first function has a second parameter */
    bool skip;                            /* a subscriber with a full queue skips messages, else it is closed */
    int serve_ref;                        /* of the coroutine form, else LUA_NOREF */
    int open_ref, message_ref, close_ref; /* of the event form; LUA_NOREF: none */
} ls_ws_route;

/* Whether a function runs first: the coroutine form, or `open`. */
static inline bool ls_ws_has_first(const ls_ws_route *route)
{
    return route->serve_ref != LUA_NOREF || route->open_ref != LUA_NOREF;
}

enum ls_ws_slot { LS_WS_OWN = 1, LS_WS_PROTOCOL, LS_WS_SLOTS }; /* user values of the object */

struct ls_ws_object { /* the userdata `ws` */
    const void *tag;
    ls_ws *ws; /* NULL: the connection has ended */
    ls_subscriber subscriber;
    ls_state *state;
    const ls_ws_route *route; /* NULL: a client */
    const ls_ws_config *config;
    ls_task *task;             /* the task of the handler that runs, or NULL */
    ls_task *receiver;         /* waits for a message */
    ls_node senders;           /* tasks that wait until the queue is sent */
    ls_task_end *ends;         /* what its handlers have begun, and ends with it */
    ls_node unflushed;         /* in the list of the state while it has output of the running task */
    struct ls_ws_stash *stash; /* a message that waits after the end of the connection, or NULL */
    char *name;   /* of the request, for the log, while the first function runs without it; or NULL. Heap */
    char *reason; /* of the peer's Close frame; NULL: none. Heap */
    uint16_t reason_len;
    uint16_t code;  /* of the peer's Close frame, or LS_WS_ABNORMAL; 0: not ended */
    int self_ref;   /* a server: keeps the object until the end */
    uint32_t taken; /* number of messages taken */
    uint16_t late;  /* see ls_task_check_late */
    bool begun;     /* ls_ws_begin was called */
    bool held;      /* the message of the connection was taken, but not consumed */
    bool closed;    /* by Lua: messages are not taken any more */
    bool refused;   /* by the function that runs */
    bool ended;     /* no message follows but one that waits */
    bool canceled;  /* its request was, or it was lost before its handler began: no handler runs */
    bool present;   /* has subscribed with a name: ../lua/luaserve/presence.lua */
    bool close_ran, advancing;
};

typedef struct ls_ws_link { /* user data of an ls_ws */
    ls_node node;           /* in the list of the state */
    ls_state *state;
    ls_ws_object *object; /* NULL: Lua has done with it */
    ls_conn_limit *limit; /* NULL: none */
    bool counted;         /* as a socket of the state: sockets.h */
    bool finishing;       /* Lua has closed it */
} ls_ws_link;

typedef struct ls_wss {         /* of a state */
    ls_node open;               /* connections that are not freed */
    _Atomic uint32_t live;      /* connections that are not freed */
    _Atomic uint32_t finishing; /* of those: Lua has closed them, and a stop waits for their last bytes */
    ls_node unflushed;          /* objects with output of the running task */
    ls_flush flush;
    unsigned ended;           /* that have ended since the last collection for them */
    int text_ref, binary_ref; /* the strings "text" and "binary" */
} ls_wss;

static inline ls_wss *ls_wss_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_ws);
}

/* What the compression of the server's WebSockets shares; NULL: not built in. */
static inline ls_ws_deflate_store *ls_ws_deflates_of(const ls_state *state)
{
    return *(ls_ws_deflate_store *const *)ls_runtime_own(ls_state_runtime(state), LS_SLOT_ws);
}

/* ---- ws.c ------------------------------------------------------------------------------------------------ */

/* The events of a connection whose user data begin with ls_ws_link. */
extern const ls_ws_events ls_ws_lua_events;

/* Push a new object without a connection. Raises. */
ls_ws_object *ls_ws_push(lua_State *L);
/* Give the object its connection, which ls_ws_open has made with ls_ws_lua_events. `limit` may be NULL. */
void ls_ws_connect(ls_ws_object *o, ls_ws *ws, ls_conn_limit *limit);
/* The handshake of a server is over: begin, and start the handler. `r`: the request for it, with a kept exchange;
 * NULL: it takes none (route->takes_request). No task runs. */
void ls_ws_serve(ls_thread_ctx *ctx, ls_ws_object *o, ls_request *r);

/* The message that waits; NULL: none. */
const ls_ws_message *ls_ws_object_message(const ls_ws_object *o);
/* Push its data and kind, and take it. false: a finalizer has taken it first, and nothing is pushed. Raises. */
bool ls_ws_object_take(lua_State *L, ls_ws_object *o);

/* Handle the frames after the message that was taken. */
void ls_ws_object_resume(ls_thread_ctx *ctx, ls_ws_object *o);

/* The object is garbage: nothing refers to it any more. */
void ls_ws_cancel(ls_ws_object *o);

/* Send what is queued when the running task waits or ends. */
void ls_ws_flush_later(ls_ws_object *o);

/* Queue the messages of topics that wait for the object, which is about to close. */
void ls_ws_object_deliver_waiting(ls_thread_ctx *ctx, ls_ws_object *o);
/* Close by Lua: waiting messages are dropped, the receiver wakes. */
void ls_ws_object_close(ls_thread_ctx *ctx, ls_ws_object *o, unsigned code, const char *reason, size_t reason_len);

/* ---- ws_object.c ------------------------------------------------------------------------------------------- */

extern const ls_object_type ls_ws_type;
/* The object at index 1. Raises for any other value. */
ls_ws_object *ls_ws_check(lua_State *L);
/* Whether nothing more can be sent. */
bool ls_ws_is_closed(const ls_ws_object *o);

/* ---- ws_accept.c ------------------------------------------------------------------------------------------- */

int ls_core_ws(lua_State *L);
int ls_core_ws_origin(lua_State *L);

/* For routes and clients: the options of an ls_ws_config and of an ls_ws_deflate_options. */
extern const ls_option ls_ws_limits[], ls_ws_deflate_limits[];
/* Read an array of strings into `out`, which has room for all of them; returns their number. Raises. */
unsigned ls_ws_read_names(lua_State *L, int table, const char **out);

/* ---- ws_topic.c -------------------------------------------------------------------------------------------- */

extern const ls_subscriber_kind ls_ws_subscriber; /* of the subscriber in an object */

int ls_ws_subscribe(lua_State *L);
int ls_ws_unsubscribe(lua_State *L);

#endif
