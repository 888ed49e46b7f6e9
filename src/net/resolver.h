/* resolver.h - names to addresses, without a thread that waits: c-ares on the port's notifications and timers.
 *
 * A resolver belongs to one actor, inside which all of its functions are called and all of its lookups end.
 * resolver_cares_posix.c supplies it, resolver_win32.c over the system's own, and resolver_none.c where c-ares is not built
 * in, which knows "localhost" alone. */
#ifndef LS_NET_RESOLVER_H
#define LS_NET_RESOLVER_H

#include "net/addr.h"
#include "sched/actor.h"

enum { LS_LOOKUP_ADDRS_MAX = 8 };

typedef struct ls_resolver ls_resolver;
typedef struct ls_lookup ls_lookup;

/* The result is there; called inside the actor, unless ls_resolver_ask said LS_DONE. */
typedef void ls_lookup_fn(ls_thread_ctx *ctx, ls_lookup *lookup);

struct ls_lookup { /* to be read when it is done */
    ls_lookup_fn *done;
    void *user;
    int err; /* LS_OK; LS_ENOENT: there is no such name; LS_ETIMEDOUT: no name server answered; LS_E* */
    unsigned count;
    ls_addr addrs[LS_LOOKUP_ADDRS_MAX]; /* in the order in which to try them */
};

/* `servers`: "127.0.0.1:53,[::1]:53", or "" for the system's. LS_OK; LS_EINVAL: servers; LS_ENOMEM, LS_ESYS. Where servers
 * cannot be chosen (Windows), lookups other than of "localhost" end with LS_ENOTSUP when some were named. */
int ls_resolver_open(ls_port *port, ls_actor *actor, const char *servers, ls_resolver **out);

/* Look up a name. LS_DONE: the result is there already; LS_PENDING: done() will be called; or LS_ENOMEM. Every lookup is
 * given back with ls_lookup_drop, at any time: dropped early, done() does not come. */
int ls_resolver_ask(ls_thread_ctx *ctx, ls_resolver *resolver, const char *name, uint16_t port, ls_lookup_fn *done,
                    void *user, ls_lookup **out);
void ls_lookup_drop(ls_lookup *lookup);

/* From now on nothing is posted to the port, and done() does not come: before the port is closed, when no thread runs any
 * more. Lookups are still to be dropped. */
void ls_resolver_stop(ls_resolver *resolver);

/* It was stopped, the port is closed, every lookup was dropped. */
void ls_resolver_close(ls_resolver *resolver);

#endif
