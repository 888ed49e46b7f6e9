/* fuzz_peer.h - a stream of the server on one end of a real socket pair, and its peer, which the fuzzer plays: one
 * thread sends, dispatches the packets of the port, and collects what the server sends. */
#ifndef LS_TESTS_FUZZ_PEER_H
#define LS_TESTS_FUZZ_PEER_H

#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io/log.h"
#include "net/stream/deadline.h"
#include "net/stream/stream.h"
#include "sched/actor.h"

typedef struct fuzz_peer {
    ls_port *port;
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_deadlines *deadlines;
    int ours, theirs; /* the sockets; ours becomes that of the stream */
    bool reads;       /* false: it leaves the output in the socket */
    bool ended;       /* the server has closed, or closes now */
    char *out;        /* of the server */
    size_t out_len, out_max;
} fuzz_peer;

static inline void fuzz_peer_discard(int level, const char *line, size_t len, void *user)
{
    (void)user, (void)level, (void)line, (void)len;
}

static inline void fuzz_peer_open(fuzz_peer *p, size_t pool_bytes, size_t out_max)
{
    const ls_port_options options = {.sockets_max = 4};
    ls_pool *pool;
    int fds[2];
    *p = (fuzz_peer){.reads = true, .out = malloc(out_max), .out_max = out_max};
    FUZZ_HOLDS(p->out != NULL);
    ls_log_set_sink(fuzz_peer_discard, NULL);
    FUZZ_HOLDS(ls_port_open(&options, &p->port) == LS_OK);
    FUZZ_HOLDS(ls_pools_open(pool_bytes, &p->pools) == LS_OK);
    FUZZ_HOLDS(ls_pool_open(p->pools, &pool) == LS_OK);
    ls_pool_enter(pool);
    ls_thread_ctx_init(&p->ctx, p->port, pool, 0);
    FUZZ_HOLDS(ls_stream_deadlines_open(p->port, &p->deadlines) == LS_OK);
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    FUZZ_HOLDS(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    p->ours = fds[0];
    p->theirs = fds[1];
}

/* Dispatch a packet, for which it waits at most `ms`. False: there was none. */
static inline bool fuzz_peer_dispatch(fuzz_peer *p, int ms)
{
    ls_packet packet;
    if (ls_port_wait(p->port, &p->ctx, &packet, 1, ms) == 0) return false;
    ls_packet_dispatch(&p->ctx, &packet);
    FUZZ_HOLDS(p->ctx.inside == NULL);
    return true;
}

/* Read what the server has sent. False: nothing. */
static inline bool fuzz_peer_read(fuzz_peer *p)
{
    const size_t before = p->out_len;
    while (p->reads && !p->ended) {
        const ssize_t n = recv(p->theirs, p->out + p->out_len, p->out_max - p->out_len, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) p->ended = true;
        if (n > 0) p->out_len += (size_t)n;
        FUZZ_HOLDS(p->out_len < p->out_max);
    }
    return p->out_len > before;
}

/* Dispatch and read until neither has anything. */
static inline void fuzz_peer_settle(fuzz_peer *p)
{
    do {
        while (fuzz_peer_dispatch(p, 0)) continue;
    } while (fuzz_peer_read(p));
}

/* Send bytes; `settle` runs behind each part that the socket takes. */
static inline void fuzz_peer_send(fuzz_peer *p, const void *bytes, size_t len, void (*settle)(fuzz_peer *p))
{
    for (const char *at = bytes; len > 0 && !p->ended;) {
        const ssize_t n = send(p->theirs, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return;
        if (n < 0) p->reads = true; /* the server waits for it */
        if (n > 0) at += n;
        if (n > 0) len -= (size_t)n;
        settle(p);
    }
}

/* The peer is gone. */
static inline void fuzz_peer_hang_up(fuzz_peer *p)
{
    close(p->theirs);
    p->ended = true;
}

/* Everything is released. */
static inline void fuzz_peer_close(fuzz_peer *p)
{
    ls_pools_stats pools;
    while (fuzz_peer_dispatch(p, 0)) continue; /* the tick of a deadline that is not needed any more */
    ls_pools_stat(p->pools, &pools);
    FUZZ_HOLDS(pools.blocks_live == 0);
    ls_port_close(p->port);
    ls_deadlines_close(p->deadlines);
    ls_pool_close(p->ctx.pool);
    ls_pools_close(p->pools);
    free(p->out);
}

#endif
