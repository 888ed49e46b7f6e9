/* sim_socket.h - what sim_net.c, the calls and the datagrams, and sim_stream.c, the bytes between two ends of a
 * connection, have in common. */
#ifndef LS_PORT_SIM_SOCKET_H
#define LS_PORT_SIM_SOCKET_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "port/sim/sim.h"

typedef struct ls_sim_addr {
    union {
        sa_family_t family;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_storage any;
    };
    socklen_t len;
} ls_sim_addr;

typedef struct ls_sim_datagram ls_sim_datagram;

typedef struct ls_sim_socket {
    ls_sim_file file;           /* first */
    struct ls_sim_socket *next; /* of all */
    unsigned refs;              /* the descriptor, each event on its way, the other end, the queue of a listener */
    int family, type, error;
    enum { UNCONNECTED, LISTENS, CONNECTING, CONNECTED, BROKEN } state; /* BROKEN: by a reset */
    bool is_bound, is_closed, reuses_port, resets_at_close, has_sent_end, has_received_end, found_no_room;
    ls_sim_addr local, remote;
    /* A stream. */
    struct ls_sim_socket *other; /* end; NULL: none any more */
    char *queue;
    size_t queue_bytes, first, readable, coming;
    uint64_t latency_ns, bytes_per_s, latest_ns; /* of what travels to this end; the last arrival */
    unsigned tries;                              /* of a connect */
    /* A listener: the connections to be accepted. */
    struct ls_sim_socket **waiting;
    unsigned waiting_count, waiting_max;
    /* Datagrams. */
    ls_sim_datagram *datagrams, **datagrams_last;
    unsigned datagram_count;
} ls_sim_socket;

extern ls_sim_socket *ls_sim_sockets;           /* all */
void ls_sim_socket_drop(ls_sim_socket *s);      /* a reference */
int ls_sim_socket_take_error(ls_sim_socket *s); /* -1, and errno */

uint64_t ls_sim_latency_ns(void);
void ls_sim_stream_link(ls_sim_socket *a, ls_sim_socket *b); /* the two ends of a connection */
size_t ls_sim_stream_room(const ls_sim_socket *s);           /* for what is sent by s */
bool ls_sim_stream_has_room(const ls_sim_socket *s);         /* a third of the queue is free: can be written */
ssize_t ls_sim_stream_send(ls_sim_socket *s, const struct iovec *vector, size_t count);
ssize_t ls_sim_stream_receive(ls_sim_socket *s, const struct iovec *vector, size_t count, bool peek);
void ls_sim_stream_end(ls_sim_socket *s);   /* nothing more is sent */
void ls_sim_stream_reset(ls_sim_socket *s); /* and part */
void ls_sim_stream_part(ls_sim_socket *s);  /* drop the reference to the other end */

#endif
