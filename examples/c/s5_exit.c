/* s5_exit.c - an orderly exit, and a registration that changes its key.
 *
 * usage: s5_exit PORT. Four threads serve lines. The first line of a connection is a name: the guest becomes a member,
 * with a new key. SIGINT or SIGTERM stops the program; the line "fail" makes its thread fail, which stops it as well.
 * Shutdown: a packet with a reserved key wakes one thread; each thread that exits posts it for the next. The main
 * thread joins them, removes the remaining registrations, and frees each context at its REMOVE packet. */
#define _GNU_SOURCE
#include "base/list.h"
#include "base/os/thread.h"
#include "example.h"
#include <signal.h>

enum { THREADS = 4, PACKETS = 3, BATCH = 2 * PACKETS };
typedef struct context { /* every key points to one */
    enum { LISTENER, GUEST, MEMBER } type;
    int fd;
    ls_node node; /* on `contexts`, under the mutex */
    char name[32];
} context;

static ls_port *port;
static ls_pools *pools;
static ls_mutex mutex;
static ls_node contexts = {&contexts, &contexts};
static char shutdown_key;
static _Atomic int failed, freed;

static ls_registration registration(context *c, uint8_t operation)
{
    const uint16_t events = c->type == LISTENER ? LS_EVENT_IN : LS_EVENT_IN | LS_EVENT_HANGUP;
    return (ls_registration){c->fd, c, 0, events, LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT, operation};
}

static context *context_open(int type, int fd, const char *name)
{
    context *c = malloc(sizeof *c);
    check(c != NULL, "context");
    *c = (context){.type = type, .fd = fd};
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    ls_mutex_lock(&mutex);
    ls_list_push(&contexts, &c->node);
    ls_mutex_unlock(&mutex);
    return c;
}

static void context_close(context *c)
{
    ls_mutex_lock(&mutex);
    ls_list_remove(&c->node);
    ls_mutex_unlock(&mutex);
    if (c->fd >= 0) close(c->fd);
    free(c);
    freed++;
}

/* Add the next operations on the context to the batch. false: this thread fails. */
static bool on_readable(context *c, ls_registration *batch, int *count)
{
    char line[32] = "";
    if (c->type == LISTENER) {
        const int fd = accept4(c->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) batch[(*count)++] = registration(context_open(GUEST, fd, ""), LS_NOTIFY_REGISTER);
        batch[(*count)++] = registration(c, LS_NOTIFY_ENABLE);
        return true;
    }
    const ssize_t n = recv(c->fd, line, sizeof line - 1, 0);
    line[strcspn(line, "\r\n")] = '\0';
    if (c->type == MEMBER && n > 0) printf("%s: %s\n", c->name, line);
    if (c->type == GUEST && n > 0) memcpy(c->name, line, sizeof line);
    const bool stays = c->type == MEMBER && (n > 0 || (n < 0 && errno == EAGAIN));
    batch[(*count)++] = registration(c, stays ? LS_NOTIFY_ENABLE : LS_NOTIFY_REMOVE);
    return strcmp(line, "fail") != 0;
}

/* A guest with a name becomes a member under a new key; any other connection has ended. */
static void on_removed(context *c, ls_registration *batch, int *count)
{
    if (c->type == GUEST && c->name[0] != '\0') {
        printf("%s is a member\n", c->name);
        batch[(*count)++] = registration(context_open(MEMBER, c->fd, c->name), LS_NOTIFY_REGISTER);
        c->fd = -1; /* now owned by the new context */
    }
    context_close(c);
}

static void serve(void *arg)
{
    ls_registration batch[BATCH];
    ls_packet packets[PACKETS];
    ls_thread_ctx ctx;
    int count = 0;
    example_ctx(&ctx, port, pools, (unsigned)(uintptr_t)arg);
    for (bool leave = false; !leave || count > 0;) {
        const int n = ls_port_notify(port, &ctx, batch, (size_t)count, packets, leave ? 0 : PACKETS, -1);
        for (int i = 0; i < count; i++) {
            const int err = batch[i].result;
            if (err < 0) failed = leave = true; /* an invalid registration gets no REMOVE packet */
            if (err < 0 && (err == LS_ENOENT || batch[i].operation == LS_NOTIFY_REGISTER)) context_close(batch[i].key);
        }
        if (n < 0) failed = leave = true;
        count = 0;
        for (int i = 0; i < n; i++) {
            if (packets[i].key == &shutdown_key)
                leave = true;
            else if (packets[i].events & LS_EVENT_REMOVE)
                on_removed(packets[i].key, batch, &count);
            else if (!on_readable(packets[i].key, batch, &count))
                failed = leave = true; /* the other threads stop at the packet that every exiting thread posts */
        }
    }
    printf("a thread leaves\n");
    (void)ls_port_post_key(port, &shutdown_key, 0);
    if (failed) (void)kill(getpid(), SIGTERM); /* main waits for a signal */
    ls_pool_close(ctx.pool);
}

/* All other threads have ended: remove the remaining registrations, and free each context at its REMOVE packet. */
static void remove_all(void)
{
    ls_thread_ctx ctx;
    ls_packet packet;
    example_ctx(&ctx, port, pools, 0);
    for (ls_node *at = contexts.next; at != &contexts; at = at->next)
        (void)example_notify(port, registration(LS_CONTAINER(at, context, node), LS_NOTIFY_REMOVE));
    while (!ls_list_empty(&contexts) && ls_port_wait(port, &ctx, &packet, 1, -1) >= 0)
        if (packet.events & LS_EVENT_REMOVE) context_close(packet.key);
    ls_pool_close(ctx.pool);
}

int main(int argc, char **argv)
{
    ls_thread threads[THREADS];
    sigset_t signals;
    check(argc == 2, "usage: s5_exit PORT");
    (void)sigemptyset(&signals), sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
    check(!sigprocmask(SIG_BLOCK, &signals, NULL), "start");
    ls_mutex_open(&mutex);
    port = example_port(&pools);
    context *first = context_open(LISTENER, example_listen(argv[1], SOCK_NONBLOCK), "");
    check(example_notify(port, registration(first, LS_NOTIFY_REGISTER)) == LS_OK, "register");
    for (int i = 0; i < THREADS; i++) check(ls_thread_start(&threads[i], "serve", serve, NULL) == LS_OK, "thread");
    (void)sigwait(&signals, &(int){0});
    (void)ls_port_post_key(port, &shutdown_key, 0);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    remove_all();
    printf("%d contexts freed%s\n", freed, failed ? ", a thread had failed" : "");
    ls_port_close(port);
    ls_pools_close(pools);
    ls_mutex_close(&mutex);
    return failed ? 1 : 0;
}
