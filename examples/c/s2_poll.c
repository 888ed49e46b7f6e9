/* s2_poll.c - replaces poll(): one thread, one connection, a level-triggered persistent registration.
 *
 * usage: s2_poll PORT. Accepts one connection, prints the data it receives, and exits when the peer closes. */
#define _GNU_SOURCE
#include "example.h"

typedef struct connection { /* the key; freed only after its REMOVE packet */
    int fd;
    unsigned long received;
} connection;

/* Submit one operation on the registration; its result reports success or the error. */
static int notify(ls_port *port, connection *c, uint8_t operation)
{
    ls_registration r = {.fd = c->fd,
                         .key = c,
                         .events = LS_EVENT_IN | LS_EVENT_HANGUP,
                         .trigger = LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
                         .operation = operation};
    (void)ls_port_notify(port, NULL, &r, 1, NULL, 0, 0);
    if (r.result < 0) fprintf(stderr, "registration: %s\n", ls_err_text(r.result));
    return r.result;
}

/* true: continue. */
static bool on_packet(connection *c, uint32_t events)
{
    char bytes[1024];
    if (events & LS_EVENT_ERR) { /* a receive fetches the error */
        const ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        printf("error: %s\n", n < 0 ? strerror(errno) : "none");
        return false;
    }
    if (events & LS_EVENT_IN) { /* one receive: if data is left, a level-triggered registration reports it again */
        const ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        if (n < 0) {
            printf("receive: %s\n", strerror(errno));
            return errno == EAGAIN || errno == EINTR;
        }
        c->received += (unsigned long)n;
        if (n > 0) printf("received %zd bytes: %.*s\n", n, (int)n, bytes);
        if (n > 0) return true; /* with HANGUP set there may be data left */
    }
    if (events & LS_EVENT_HANGUP) printf("hang-up\n");
    return !(events & LS_EVENT_HANGUP);
}

int main(int argc, char **argv)
{
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_packet packet;
    if (argc != 2) {
        fprintf(stderr, "usage: s2_poll PORT\n");
        return 2;
    }
    ls_port *port = example_port(&pools);
    example_ctx(&ctx, port, pools, 0);
    const int listener = example_listen(argv[1], 0);
    connection *c = calloc(1, sizeof *c);
    check(c != NULL, "connection");
    check((c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0, "accept");

    int err = notify(port, c, LS_NOTIFY_REGISTER);
    if (err == LS_OK) {
        while ((err = ls_port_wait(port, &ctx, &packet, 1, -1)) >= 0)
            if (err == 1 && packet.key == c && !on_packet(c, packet.events)) break;
        /* Packets may still be queued: the REMOVE packet is the last. */
        if ((err = notify(port, c, LS_NOTIFY_REMOVE)) == LS_OK)
            while ((err = ls_port_wait(port, &ctx, &packet, 1, -1)) >= 0)
                if (err == 1 && packet.key == c && (packet.events & LS_EVENT_REMOVE)) break;
    }
    printf("removed after %lu bytes\n", c->received);
    close(c->fd);
    free(c);
    close(listener);
    ls_port_close(port);
    ls_pool_close(ctx.pool);
    ls_pools_close(pools);
    return err < 0 ? 1 : 0;
}
