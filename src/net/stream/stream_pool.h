/* stream_pool.h - idle client streams, by origin, that a later call may use again: one pool of a server, for all its
 * Lua states.
 *
 * The key of an origin is a text of the caller with everything that makes two connections differ: scheme, host, port,
 * the options of TLS. The youngest stream of an origin is taken first, so that those that are too many grow old.
 *
 * Nothing is posted to an idle stream, so any thread may take it at once. ls_stream_pool_take does not return a stream
 * on which the peer has sent or closed meanwhile; for a request that may be repeated, as far as the port has reported
 * it, for others it asks the system. While streams are idle, a timer does the
 * same every LS_STREAM_POOL_TICK_MS and closes them, as it closes those that have been idle for
 * LS_STREAM_POOL_IDLE_MS. It looks at one stream at a time, which cannot be taken meanwhile; the others can.
 *
 * Any thread. */
#ifndef LS_NET_STREAM_POOL_H
#define LS_NET_STREAM_POOL_H

#include "net/stream/stream.h"

enum {
    LS_STREAM_POOL_ORIGIN_MAX = 64, /* idle streams of one origin */
    LS_STREAM_POOL_MAX = 256,       /* of all origins */
    LS_STREAM_POOL_IDLE_MS = 60000,
    LS_STREAM_POOL_TICK_MS = 1000
};

typedef struct ls_stream_pool ls_stream_pool;

/* LS_OK, LS_ENOMEM or the error of the mutex. */
int ls_stream_pool_open(ls_port *port, ls_stream_pool **out);
/* Close the idle streams. One at which the timer is looking on another thread closes there. */
void ls_stream_pool_drain(ls_thread_ctx *ctx, ls_stream_pool *pool);
/* Close the idle streams for the last time. No thread runs any more, the port is open; ls_stream_pool_close
 * follows. */
void ls_stream_pool_disconnect(ls_thread_ctx *ctx, ls_stream_pool *pool);
/* Free the pool and the streams in it. No thread runs any more and the port is closed. */
void ls_stream_pool_close(ls_stream_pool *pool);

/* Give a stream to the pool: nothing is pending, nothing is queued, it has no unread bytes. A stream past a limit is
 * closed: past LS_STREAM_POOL_ORIGIN_MAX this one, past LS_STREAM_POOL_MAX the one that has been idle for longest. It
 * is closed too when memory is out. Its time limits end. */
void ls_stream_pool_put(ls_thread_ctx *ctx, ls_stream_pool *pool, const char *key, size_t key_len, ls_stream *s);

/* Take a stream of the origin, without an actor; the caller hands it over to its own handler (ls_stream_handover). The
 * room of the user has the bytes of the user that gave it. `repeats`: the caller uses a new connection if the peer turns
 * out to have closed this one. NULL: none. */
ls_stream *ls_stream_pool_take(ls_thread_ctx *ctx, ls_stream_pool *pool, const char *key, size_t key_len,
                               bool repeats);

/* The number of idle streams. */
int ls_stream_pool_check(ls_stream_pool *pool); /* the number of streams; LS_EINVAL: its table is damaged */

/* Close all that have been idle since `now_ms` - LS_STREAM_POOL_IDLE_MS or longer (of ls_clock_coarse_ms), or that the
 * peer has closed. For the timer, and for tests. */
void ls_stream_pool_sweep(ls_thread_ctx *ctx, ls_stream_pool *pool, uint64_t now_ms);

#endif
