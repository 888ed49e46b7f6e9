/* scope.h - whose work it is, and what ends it.
 *
 * Work is a tree, and a task, a timer or a subscription has the scope of the place in which it began:
 *
 *     server
 *       site            SITE: ls.init, "start", their jobs     BATCH: the same with a value of a channel     TIMER
 *         connection    CONNECTION: ls.tcp     WEBSOCKET, with all that its functions begin
 *           request     REQUEST
 *             job       JOB: what requests, connections and events leave after
 *
 * One table (scope.c) has the rule: for each reason, scope and wait it says whether the work ends. No other flag
 * decides an end. The reasons of a whole site are bits of ls_generation.ending, which any thread may set; each Lua
 * state takes the step for a reason once (ls_state.ending).
 *
 * Functions without a thread: pure. */
#ifndef LS_SCRIPT_SCOPE_H
#define LS_SCRIPT_SCOPE_H

#include <stddef.h>

enum ls_scope {
    LS_SCOPE_NONE,       /* a task that has not begun */
    LS_SCOPE_REQUEST,    /* the handler of a request */
    LS_SCOPE_CONNECTION, /* the handler of a connection of ls.tcp */
    LS_SCOPE_WEBSOCKET,  /* a function of a WebSocket, and what it has begun */
    LS_SCOPE_SITE,       /* ls.init and "start", and their jobs: restarted by a reload */
    LS_SCOPE_BATCH, /* the same after it has received a value: it may be unfinished until the task receives again */
    LS_SCOPE_TIMER, /* a call of a timer of the file, of SITE or of such a call: the next site sets these timers */
    LS_SCOPE_JOB,   /* all others */
    LS_SCOPES
};

/* What would be lost if the wait ended now. A task that does not wait runs. */
enum ls_wait_for {
    LS_WAIT_NONE,    /* it runs */
    LS_WAIT_IDLE,    /* a time, the end of a job: it holds nothing but its alarm and its place in a list */
    LS_WAIT_MESSAGE, /* a value that would be lost on a task that ends */
    LS_WAIT_REMOTE,  /* the same of Redis, in a command that blocks */
    LS_WAIT_LEASE,   /* a permit of Redis, which the task does not have yet */
    LS_WAIT_RESULT,  /* the same in a command of Redis or a channel that a reload does not end */
    LS_WAIT_WRITE,   /* what completes in any case: room, bytes of a connection, a permit, a statement, a response */
    LS_WAIT_HELD,    /* an operation that refers to the task and cannot be cancelled: only that one wakes it */
    LS_WAIT_ONCE,    /* a timer of ls.after */
    LS_WAIT_REPEAT,  /* a timer of ls.every */
    LS_WAIT_PUBLISH, /* a function of ls.subscribe, for messages */
    LS_WAITS
};

enum ls_end_why {
    LS_END_NONE,        /* it continues */
    LS_END_CLIENT_LEFT, /* before the response was complete */
    LS_END_TIMEOUT,     /* a task has waited for longer than time_ms_max */
    LS_END_REPLACED,    /* the next site serves */
    LS_END_STOP,        /* the server stops */
    LS_END_OUTDATED,    /* too many or too replaced sites before: WebSockets are closed with 1012 */
    LS_END_SPARE,       /* nothing has used its Lua state for some time: others receive the values that it waits for */
    LS_END_UNUSED,      /* nothing is left that could give it work */
    LS_END_REQUESTS,    /* drain_timeout of a stop is over; soon LS_END_CLOSED follows */
    LS_END_TIME,        /* drain_timeout after a reload is over */
    LS_END_CLOSED,      /* the state closes */
    LS_ENDS
};

/* NOW: the wait ends, and the work with it. LATER: when the wait is over, or, of a task that runs, at its next
 * instruction. */
enum ls_scope_end { LS_ENDS_NEVER, LS_ENDS_NOW, LS_ENDS_LATER };

enum ls_scope_end ls_scope_ends(enum ls_end_why why, enum ls_scope scope, enum ls_wait_for wait);
/* The first of these reasons, bits by enum ls_end_why, that ends it NOW; or LS_END_NONE. */
enum ls_end_why ls_scope_end_of(unsigned reasons, enum ls_scope scope, enum ls_wait_for wait);

/* The scope of a job, or of the task of a subscription, that work of this scope begins; and of a timer that it
 * sets. */
enum ls_scope ls_scope_of_job(enum ls_scope scope);
enum ls_scope ls_scope_of_timer(enum ls_scope scope);
/* The scope of a task that has received a value. */
enum ls_scope ls_scope_with_value(enum ls_scope scope);

/* "a job": for the log. */
const char *ls_scope_name(enum ls_scope scope);
/* "a request, 2 jobs" of counts by scope; "nothing". */
enum { LS_SCOPE_TEXT_BYTES = 320 };
void ls_scope_describe(const unsigned counts[LS_SCOPES], char *out, size_t out_bytes);
/* The same for ls.stats(): call each(to, "running.requests", count) for each of them. */
void ls_scope_each(const unsigned counts[LS_SCOPES], void (*each)(void *to, const char *name, double value), void *to);

#endif
