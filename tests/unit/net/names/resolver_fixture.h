/* resolver_fixture.h - a resolver with its actor and port, driven step by step. Include it first. */
#ifndef TESTS_UNIT_NET_RESOLVER_FIXTURE_H
#define TESTS_UNIT_NET_RESOLVER_FIXTURE_H

#include "port/port_fixture.h"

#include "net/names/resolver.h"
#include "port/notify.h"
#include "sched/actor.h"
#include "system.h"

typedef struct fixture { /* a resolver with its actor and port, and the results */
    net_place place;
    ls_polls *polls;
    ls_actor actor;
    ls_resolver *resolver;
    unsigned lookup_done;
} fixture;

static inline void lookup_done(ls_thread_ctx *ctx, ls_lookup *lookup)
{
    fixture *a = lookup->user;
    assert_ptr_equal(ctx->inside, &a->actor);
    a->lookup_done++;
}

static inline void fixture_open(fixture *a, const char *servers)
{
    net_place_open(&a->place);
    ls_actor_init(&a->actor);
    a->lookup_done = 0;
    assert_int_equal(ls_polls_open(a->place.port, &a->polls), LS_OK);
    assert_int_equal(ls_resolver_open(a->place.port, a->polls, &a->actor, servers, &a->resolver), LS_OK);
}

static inline int look_up(fixture *a, const char *name, ls_lookup **out)
{
    assert_true(ls_actor_try_enter(&a->actor, &a->place.ctx));
    const int result = ls_resolver_lookup(&a->place.ctx, a->resolver, name, 7000, lookup_done, a, out);
    ls_actor_leave(&a->actor, &a->place.ctx);
    return result;
}

static inline void drop(fixture *a, ls_lookup *lookup)
{
    assert_true(ls_actor_try_enter(&a->actor, &a->place.ctx));
    ls_lookup_drop(lookup);
    ls_actor_leave(&a->actor, &a->place.ctx);
}

/* Handle packets until none arrives for ms. */
static inline void take_packets(fixture *a, int ms)
{
    ls_packet packet;
    while (ls_port_wait(a->place.port, &a->place.ctx, &packet, 1, ms) == 1) {
        if (packet.events != 0)
            ((ls_packet_handler *)packet.key)->handle(&a->place.ctx, &packet);
        else
            ls_packet_dispatch(&a->place.ctx, &packet);
    }
}

static inline void fixture_close(fixture *a)
{
    ls_resolver_stop(a->resolver);
    take_packets(a, 0);
    net_place_close(&a->place);
    ls_resolver_close(a->resolver);
    ls_polls_close(a->polls);
}

/* A name server that never responds; `servers` receives its address. */
static inline int silent_name_server(char *servers, size_t bytes)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    (void)snprintf(servers, bytes, "127.0.0.1:%u", ntohs(in.sin_port));
    return fd;
}

#endif
