/* connect.h - a dial (net/dial.h) for which a task waits: what ls.connect and ls.websocket have in common.
 *
 * The userdata at index LS_CONNECTING of the task's stack owns the dial, so that nothing stays open when the task ends
 * early. It begins with ls_connecting; its finalizer calls ls_connecting_drop. The other indexes hold the arguments.
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_CONNECT_H
#define LS_SCRIPT_CONNECT_H

#include "net/dial.h"
#include "script/core/task.h"

/* LS_CONNECTING_TLS: the options of ls_option_tls_client with server_name, or nil: plain. */
enum { LS_CONNECTING = 1, LS_CONNECTING_HOST = 2, LS_CONNECTING_LIMITS = 3, LS_CONNECTING_TLS = 4 };

typedef struct ls_connecting ls_connecting;
struct ls_connecting {
    ls_node node;    /* in the list of the state while `dial` is not NULL */
    ls_dial *dial;   /* NULL: not started, or ended */
    ls_tls *tls;     /* NULL: plain */
    ls_task *task;   /* the task that waits */
    uint32_t ms_max; /* 0: no limit */
    uint16_t port;
    bool public_only; /* as in ls_dial_options; a field of the limits */
    bool of_client;   /* the dial ends when the client of the task leaves; a field of the limits */
    bool again;       /* the second attempt, after garbage sockets were closed */

    /* Set by the caller, as in ls_dial_options. */
    const ls_stream_handler *handler;
    size_t user_bytes;
    _Atomic uint32_t *live;
    /* The dial has connected: take the stream, and wake the task now or later. */
    void (*connected)(ls_thread_ctx *ctx, ls_connecting *c, ls_stream *s);
    lua_KFunction ended; /* continues the task; calls ls_connecting_failed if result.err < 0 */

    ls_dial_result result;
    char why[256]; /* of the result */
};

/* Make the userdata of `bytes` bytes, zeroed, with this metatable, and move it to index LS_CONNECTING; the arguments
 * lie at 1 (host), 2 (port, removed) and 3 (limits, with the fields connect_ms_max and tls). Raises for a wrong
 * argument. */
ls_connecting *ls_connecting_new(lua_State *L, size_t bytes, int meta_ref);

/* Take the TLS context, dial, and suspend the task. Returns the number of results when it failed at once. */
int ls_connecting_begin(lua_State *L, ls_connecting *c);

/* In `ended`: push nil, message, code; or dial once more, if no descriptor was free and garbage sockets were closed. */
int ls_connecting_failed(lua_State *L, ls_connecting *c);

/* In the finalizer: cancel the dial. Again: no effect. */
void ls_connecting_drop(ls_state *state, ls_connecting *c);
/* Finalize the userdata at index LS_CONNECTING now, then push nil, message, code. Returns 3. */
int ls_connecting_fail(lua_State *L, int err);

#endif
