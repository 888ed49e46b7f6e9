/* s4_threads.c - an echo server on notifications: one port, 16 threads, one-shot level-triggered registrations.
 *
 * usage: s4_threads PORT CLIENTS. Serves CLIENTS connections, then exits.
 *
 * One-shot: the thread that takes a socket's packet owns the socket until it re-arms the registration. Re-arming and
 * the next wait are one call. A context is freed by its REMOVE packet only, unless it was never registered. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/os/thread.h"
#include "example.h"
#include "sched/actor.h"

enum { THREADS = 16, PACKETS = 3, BATCH = 4 * PACKETS, ECHO_BYTES = 4096, TICK_MS = 100 };

typedef struct context { /* every key points to one */
    enum { LISTENER, ACCEPTED } type;
    int fd;
} context;
typedef struct accepted {
    context head;
    size_t from, to; /* range of bytes still to be echoed */
    char bytes[ECHO_BYTES];
} accepted;

static ls_port *port;
static ls_pools *pools;
static context listener = {.type = LISTENER};
static ls_timer tick;
static char shutdown_key;
static int clients;
static _Atomic int closed, ticks, served_by[THREADS];

static ls_registration registration(context *c, uint8_t operation, uint16_t events)
{
    return (ls_registration){c->fd, c, 0, events, LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT, operation};
}

static void on_tick(ls_thread_ctx *ctx, ls_op *op) /* the timer's packet arrives at the same port */
{
    ticks++;
    (void)ls_timer_set(ctx->port, (ls_timer *)op, ls_clock_ns() + TICK_MS * UINT64_C(1000000));
}

static void close_context(context *c)
{
    close(c->fd);
    free(c);
    if (++closed == clients) (void)ls_port_post_key(port, &shutdown_key, 0);
}

/* Handle a registration that failed. true: `removal` is to be submitted. */
static bool clean_up(const ls_registration *failed, ls_registration *removal)
{
    context *c = failed->key;
    fprintf(stderr, "registration: %s\n", ls_err_text(failed->result));
    *removal = registration(c, LS_NOTIFY_REMOVE, 0);
    if (c->type == LISTENER) return false; /* stop accepting; current clients continue */
    if (failed->operation == LS_NOTIFY_ENABLE) return true;
    close_context(c); /* never registered, or already removed: no REMOVE packet follows */
    return false;
}

/* Accept one connection, register it, and re-arm the listener, all in the next call. */
static int on_listener(ls_registration *batch)
{
    int n = 0;
    const int fd = accept4(listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    accepted *a = fd >= 0 ? calloc(1, sizeof *a) : NULL;
    if (a != NULL) {
        a->head = (context){ACCEPTED, fd};
        batch[n++] = registration(&a->head, LS_NOTIFY_REGISTER, LS_EVENT_IN | LS_EVENT_HANGUP);
    }
    if (a == NULL && fd >= 0) close(fd);
    batch[n++] = registration(&listener, LS_NOTIFY_ENABLE, LS_EVENT_IN);
    return n;
}

/* Receive once, echo as much as the socket takes; wait for OUT if data is left, else for IN. */
static ls_registration on_accepted(accepted *a, uint32_t events, _Atomic int *served)
{
    ssize_t n = 1;
    ++*served;
    if (a->from == a->to) {
        a->from = a->to = 0;
        n = recv(a->head.fd, a->bytes, sizeof a->bytes, 0);
        if (n > 0) a->to = (size_t)n;
    }
    if (a->from < a->to) {
        n = send(a->head.fd, a->bytes + a->from, a->to - a->from, MSG_NOSIGNAL);
        if (n > 0) a->from += (size_t)n;
    }
    const bool all = a->from == a->to, ended = events & LS_EVENT_HANGUP;
    if (n == 0 || (n < 0 && (errno != EAGAIN || (all && ended)))) return registration(&a->head, LS_NOTIFY_REMOVE, 0);
    return registration(&a->head, LS_NOTIFY_ENABLE, all ? LS_EVENT_IN | LS_EVENT_HANGUP : LS_EVENT_OUT);
}

static void serve(void *arg)
{
    const unsigned index = (unsigned)((_Atomic int *)arg - served_by);
    ls_registration batch[BATCH];
    ls_packet packets[PACKETS];
    ls_thread_ctx ctx;
    int count = 0;
    example_ctx(&ctx, port, pools, index);
    for (bool leave = false; !leave || count > 0;) {
        const int n = ls_port_notify(port, &ctx, batch, (size_t)count, packets, leave ? 0 : PACKETS, -1);
        const int submitted = count;
        count = 0;
        for (int i = 0; i < submitted; i++) /* a failed ENABLE becomes a REMOVE at the head of the next batch */
            if (batch[i].result < 0 && clean_up(&batch[i], &batch[count])) count++;
        if (n < 0) leave = true;
        for (int i = 0; i < n; i++) {
            context *c = packets[i].key;
            if (packets[i].op != NULL)
                ls_packet_dispatch(&ctx, &packets[i]);
            else if (packets[i].key == &shutdown_key)
                leave = true;
            else if (packets[i].events & LS_EVENT_REMOVE)
                close_context(c);
            else if (c->type == LISTENER)
                count += on_listener(batch + count);
            else
                batch[count++] = on_accepted((accepted *)c, packets[i].events, &served_by[index]);
        }
    }
    (void)ls_port_post_key(port, &shutdown_key, 0); /* for the next thread */
    ls_pool_close(ctx.pool);
}

int main(int argc, char **argv)
{
    ls_thread threads[THREADS];
    int busy = 0;
    check(argc == 3 && (clients = atoi(argv[2])) > 0, "usage: s4_threads PORT CLIENTS");
    port = example_port(&pools);
    listener.fd = example_listen(argv[1], SOCK_NONBLOCK);
    tick.op.done = on_tick;
    check(ls_timer_set(port, &tick, ls_clock_ns()) == LS_OK, "timer");
    check(example_notify(port, registration(&listener, LS_NOTIFY_REGISTER, LS_EVENT_IN)) == LS_OK, "register");
    for (int i = 0; i < THREADS; i++)
        check(ls_thread_start(&threads[i], "serve", serve, &served_by[i]) == LS_OK, "thread");
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < THREADS; i++) busy += served_by[i] > 0;
    printf("%d clients, %d threads served, timer %s\n", closed, busy, ticks > 0 ? "fired" : "silent");
    (void)ls_timer_cancel(port, &tick);
    ls_port_unregister(port, listener.fd);
    close(listener.fd);
    ls_port_close(port);
    ls_pools_close(pools);
}
