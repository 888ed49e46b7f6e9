/* s3_udp_edge.c - an edge-triggered UDP server: one packet reports new datagrams, and it receives until EAGAIN.
 *
 * usage: s3_udp_edge PORT COUNT. Prints each datagram, and exits after COUNT of them. */
#define _GNU_SOURCE
#include "example.h"

static int notify(ls_port *port, int fd, void *key, uint8_t operation)
{
    ls_registration r = {.fd = fd,
                         .key = key,
                         .events = LS_EVENT_IN, /* UDP has no HANGUP */
                         .trigger = LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
                         .operation = operation};
    (void)ls_port_notify(port, NULL, &r, 1, NULL, 0, 0);
    if (r.result < 0) fprintf(stderr, "registration: %s\n", ls_err_text(r.result));
    return r.result;
}

/* Receive until EAGAIN; only then is the next arrival reported. Returns the number of datagrams received. */
static unsigned long drain(int fd, unsigned long already)
{
    char bytes[2048];
    unsigned long got = 0;
    for (;;) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n >= 0) {
            got++;
            printf("datagram %lu: %.*s\n", already + got, (int)n, bytes);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return got;
        } else if (errno != EINTR) {
            printf("error: %s\n", strerror(errno)); /* cleared by recv; the next call receives the next datagram */
        }
    }
}

int main(int argc, char **argv)
{
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_packet packet = {.events = 0};
    unsigned long got = 0;
    int n = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: s3_udp_edge PORT COUNT\n");
        return 2;
    }
    const unsigned long expected = strtoul(argv[2], NULL, 10);
    ls_port *port = example_port(&pools);
    example_ctx(&ctx, port, pools, 0);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(fd >= 0, "socket");

    /* Registered before bind, so that no datagram arrives unreported. */
    int err = notify(port, fd, &got, LS_NOTIFY_REGISTER);
    if (err == LS_OK) {
        example_bind(fd, argv[1]);
        example_ready(fd);
        while (got < expected && (n = ls_port_wait(port, &ctx, &packet, 1, -1)) >= 0)
            if (n == 1 && packet.key == &got) got += drain(fd, got); /* IN, or ERR: a receive fetches the error */
        err = n < 0 ? n : notify(port, fd, &got, LS_NOTIFY_REMOVE);
        while (err == LS_OK && !(packet.events & LS_EVENT_REMOVE))
            if ((n = ls_port_wait(port, &ctx, &packet, 1, -1)) < 0) err = n;
    }
    printf("removed after %lu datagrams\n", got);
    close(fd);
    ls_port_close(port);
    ls_pool_close(ctx.pool);
    ls_pools_close(pools);
    return err < 0 ? 1 : 0;
}
