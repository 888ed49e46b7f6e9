/* resolver.h - name resolution without a waiting thread: c-ares on the polls and timers of the port.
 *
 * A resolver belongs to one actor: its functions are called and its lookups complete inside that actor.
 * resolver_cares.c implements it with c-ares; resolver_none.c, for builds without, knows only "localhost". */
#ifndef LS_NET_RESOLVER_H
#define LS_NET_RESOLVER_H

#include "net/sock/addr.h"
#include "net/stream/poll.h"
#include "sched/actor.h"

enum { LS_LOOKUP_ADDRS_MAX = 8 };

typedef struct ls_resolver ls_resolver;
typedef struct ls_lookup ls_lookup;

/* The lookup is complete. Called inside the actor; not called if ls_resolver_lookup returned LS_DONE. */
typedef void ls_lookup_fn(ls_thread_ctx *ctx, ls_lookup *lookup);

struct ls_lookup { /* valid when the lookup is complete */
    ls_lookup_fn *done;
    void *user;
    int err; /* LS_OK; LS_ENOENT: the name does not exist; LS_ETIMEDOUT: no name server responded; LS_E* */
    unsigned count;
    ls_addr addrs[LS_LOOKUP_ADDRS_MAX]; /* in the order in which to try them */
};

/* `polls`: those of the port; they outlive the resolver. `servers`: "127.0.0.1:53,[::1]:53", or "" for the name
 * servers of the system. LS_OK; LS_EINVAL: invalid servers; LS_ENOMEM, LS_ESYS. */
int ls_resolver_open(ls_port *port, ls_polls *polls, ls_actor *actor, const char *servers, ls_resolver **out);

/* Look up a name, with c-ares at first among those of earlier lookups (name_cache.h). LS_DONE: the lookup is complete;
 * LS_PENDING: done() will be called; LS_ENOMEM. The caller drops every lookup with ls_lookup_drop, at any time; after
 * an early drop done() is not called. */
int ls_resolver_lookup(ls_thread_ctx *ctx, ls_resolver *resolver, const char *name, uint16_t port, ls_lookup_fn *done,
                       void *user, ls_lookup **out);
void ls_lookup_drop(ls_lookup *lookup);

/* A step of the live close: every lookup was dropped, or completes without a call of done(). true: nothing of the
 * resolver is with the port any more, and it is freed. false: call again after its packets have arrived. Inside the
 * actor. */
bool ls_resolver_end(ls_thread_ctx *ctx, ls_resolver *resolver);

/* Post nothing to the port from now on and never call done(). Call it when no thread runs any more, before the port is
 * closed. The lookups must still be dropped. */
void ls_resolver_stop(ls_resolver *resolver);

/* Call it after ls_resolver_stop, when the port is closed and every lookup was dropped. */
void ls_resolver_close(ls_resolver *resolver);

#endif
