/* bare_uring.c - the bare responder on io_uring: multishot accept, multishot receive into provided buffers, one ring,
 * one thread. See bare.h.
 *
 *     bare_uring PORT [close]      "close": each response ends its connection
 *
 * The ring uses DEFER_TASKRUN if the kernel has it, else COOP_TASKRUN. An idle connection holds no buffer. */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bare.h"

enum { RING_ENTRIES = 4096, BUFFERS = 1024, BUFFER_BYTES = 2048, BUFFER_GROUP = 0 };
enum { ON_ACCEPT, ON_RECEIVE, ON_SEND, ON_CLOSE };

typedef struct responder {
    struct io_uring ring;
    struct io_uring_buf_ring *provided;
    char *buffers;
    bare_responses responses;
    unsigned char *states; /* by descriptor: the state of bare_ends */
    int listener;
    bool once;
    const char *mode;
} responder;

/* user_data: the kind of operation and its descriptor. */
static uint64_t tag(unsigned what, int fd)
{
    return (uint64_t)what << 32 | (uint32_t)fd;
}

static struct io_uring_sqe *next_sqe(responder *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    while (sqe == NULL) {
        io_uring_submit(&r->ring);
        sqe = io_uring_get_sqe(&r->ring);
    }
    return sqe;
}

static void post_accept(responder *r)
{
    struct io_uring_sqe *sqe = next_sqe(r);
    io_uring_prep_multishot_accept(sqe, r->listener, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data64(sqe, tag(ON_ACCEPT, r->listener));
}

static void post_receive(responder *r, int fd)
{
    struct io_uring_sqe *sqe = next_sqe(r);
    io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = BUFFER_GROUP;
    io_uring_sqe_set_data64(sqe, tag(ON_RECEIVE, fd));
}

static void post_send(responder *r, int fd, unsigned responses)
{
    struct io_uring_sqe *sqe = next_sqe(r);
    io_uring_prep_send(sqe, fd, r->responses.bytes, r->responses.each * responses, MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, tag(ON_SEND, fd));
}

/* The pending receive holds the socket, so shut it down here; it is closed when the receive has ended. */
static void end_connection(int fd)
{
    shutdown(fd, SHUT_RDWR);
}

static void on_accept(responder *r, const struct io_uring_cqe *cqe)
{
    int one = 1, fd = cqe->res;
    if ((cqe->flags & IORING_CQE_F_MORE) == 0) post_accept(r);
    if (fd < 0) return;
    if (fd >= BARE_CONNECTIONS_MAX || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) {
        close(fd);
        return;
    }
    r->states[fd] = 0;
    post_receive(r, fd);
}

static void on_receive(responder *r, const struct io_uring_cqe *cqe, int fd)
{
    if ((cqe->flags & IORING_CQE_F_BUFFER) != 0) {
        unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
        char *bytes = r->buffers + (size_t)id * BUFFER_BYTES;
        unsigned ends = cqe->res > 0 ? bare_ends(bytes, (size_t)cqe->res, &r->states[fd]) : 0;
        io_uring_buf_ring_add(r->provided, bytes, BUFFER_BYTES, (unsigned short)id, io_uring_buf_ring_mask(BUFFERS),
                              0);
        io_uring_buf_ring_advance(r->provided, 1);
        if (ends > BARE_RESPONSES_MAX) {
            end_connection(fd);
        } else if (ends > 0) {
            post_send(r, fd, r->once ? 1 : ends);
        }
    }
    if ((cqe->flags & IORING_CQE_F_MORE) != 0) return;
    if (cqe->res > 0 || cqe->res == -ENOBUFS) {
        post_receive(r, fd);
        return;
    }
    struct io_uring_sqe *sqe = next_sqe(r);
    io_uring_prep_close(sqe, fd);
    io_uring_sqe_set_data64(sqe, tag(ON_CLOSE, fd));
}

/* The kernel continues a short send (MSG_WAITALL), and a failed send also ends the pending receive. */
static void on_send(responder *r, const struct io_uring_cqe *cqe, int fd)
{
    if (r->once && cqe->res > 0) end_connection(fd);
}

static int open_ring(responder *r)
{
    static const struct {
        unsigned flags;
        const char *name;
    } modes[] = {
        {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "defer_taskrun"},
        {IORING_SETUP_COOP_TASKRUN, "coop_taskrun"},
        {0, "plain"},
    };
    int err = -EINVAL;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && err == -EINVAL; i++) {
        struct io_uring_params params = {.flags = modes[i].flags | IORING_SETUP_CQSIZE,
                                         .cq_entries = 4 * RING_ENTRIES};
        r->mode = modes[i].name;
        err = io_uring_queue_init_params(RING_ENTRIES, &r->ring, &params);
    }
    return err;
}

static int provide_buffers(responder *r)
{
    void *ring = NULL;
    if (posix_memalign(&ring, 4096, BUFFERS * sizeof(struct io_uring_buf)) != 0) return -ENOMEM;
    r->buffers = malloc((size_t)BUFFERS * BUFFER_BYTES);
    if (r->buffers == NULL) return -ENOMEM;
    struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)ring, .ring_entries = BUFFERS, .bgid = BUFFER_GROUP};
    int err = io_uring_register_buf_ring(&r->ring, &reg, 0);
    if (err < 0) return err;
    r->provided = ring;
    io_uring_buf_ring_init(r->provided);
    for (unsigned i = 0; i < BUFFERS; i++) {
        io_uring_buf_ring_add(r->provided, r->buffers + (size_t)i * BUFFER_BYTES, BUFFER_BYTES, (unsigned short)i,
                              io_uring_buf_ring_mask(BUFFERS), (int)i);
    }
    io_uring_buf_ring_advance(r->provided, BUFFERS);
    return 0;
}

static void run(responder *r)
{
    for (;;) {
        struct io_uring_cqe *cqe;
        unsigned head, n = 0;
        int err = io_uring_submit_and_wait(&r->ring, 1);
        if (err < 0 && err != -EINTR && err != -EAGAIN && err != -EBUSY) return;
        io_uring_for_each_cqe(&r->ring, head, cqe)
        {
            uint64_t data = io_uring_cqe_get_data64(cqe);
            int fd = (int)(uint32_t)data;
            unsigned what = (unsigned)(data >> 32);
            n++;
            if (what == ON_ACCEPT) on_accept(r, cqe);
            if (what == ON_RECEIVE) on_receive(r, cqe, fd);
            if (what == ON_SEND) on_send(r, cqe, fd);
        }
        io_uring_cq_advance(&r->ring, n);
    }
}

int main(int argc, char **argv)
{
    static responder r;
    r.once = argc > 2 && strcmp(argv[2], "close") == 0;
    r.states = calloc(BARE_CONNECTIONS_MAX, 1);
    if (argc < 2 || r.states == NULL ||
        !bare_responses_open(&r.responses, r.once ? BARE_HEAD("bareresp", "Connection: close\r\n") BARE_BODY
                                                  : BARE_HEAD("bareresp", "") BARE_BODY)) {
        fprintf(stderr, "usage: bare_uring PORT [close]\n");
        return 2;
    }
    int err = open_ring(&r);
    if (err == 0) err = provide_buffers(&r);
    if (err < 0) {
        fprintf(stderr, "io_uring is not available: %s\n", strerror(-err));
        return 3; /* distinct from failures: the benchmark continues without this server */
    }
    r.listener = bare_listen(argv[1]);
    fprintf(stderr, "io_uring: %s\n", r.mode);
    post_accept(&r);
    run(&r);
    return 1;
}
