/* sse_response.h - what the files of server-sent events share: sse.c (res:sse, topics, keep-alive, the end),
 * sse_object.c (the object `sse`).
 *
 *     res:sse --> open --> closed: sse:close, the end of the handler, the loss of the connection, a queue that is too
 *                                  long, or the server stops or has a newer site
 *
 * The object belongs to a response (ls_request), whose parts are its events. Any task of the state may use it.
 * Messages of topics go to the transport without the coroutine of the handler. Thread: the one that holds the state's
 * actor. */
#ifndef LS_SCRIPT_BIND_SSE_H
#define LS_SCRIPT_BIND_SSE_H

#include "base/wheel.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/request.h"
#include "script/bind/store/publish.h"

typedef struct ls_sse { /* the userdata `sse` */
    const void *tag;
    ls_request *request; /* NULL: closed */
    ls_subscriber subscriber;
    uint32_t queue_bytes_max;
    bool told;     /* sse:wait has returned true */
    uint16_t late; /* see ls_task_check_late */
    bool active;   /* something was written since the last check */
    bool skip;     /* drop a message for which the queue has no room; else end the response */
    ls_state *state;
    ls_node node;         /* in the list of the state while it is open */
    ls_wheel_entry entry; /* of the keep-alive */
    int ref;              /* keeps the object alive while it is open */
    uint32_t check_ms;    /* half of the keep-alive; 0: none */
    uint64_t run;         /* of the CPU watch, that of res:sse */
} ls_sse;

/* Whether events can still be written; closes an object whose connection is lost. */
bool ls_sse_is_open(ls_thread_ctx *ctx, ls_sse *sse);
/* Complete the response, which is sent with the messages that wait for the object, and close the object. Wakes the
 * tasks that wait for it. */
void ls_sse_finish(ls_thread_ctx *ctx, ls_sse *sse);
/* Pass the collected parts and the head to the transport, before the task of the object waits: one that waits needs no
 * block. */
void ls_sse_send_parts(ls_sse *sse);
size_t ls_sse_queued(const ls_sse *sse); /* bytes */

/* Whether the response is an open stream of events, and its task has not waited since res:sse. */
bool ls_sse_never_waited(const ls_request *request);

/* sse_object.c */
extern const ls_object_type ls_sse_type;

#endif
