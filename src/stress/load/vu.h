/* vu.h - a virtual user: one connection of the load generator. It connects, sends requests, receives and closes. The
 * transport (transport.h) moves the bytes, and the protocol (protocol.h) decides what they mean.
 *
 * States: CLOSED -> CONNECTING -> OPEN -> CLOSING -> CLOSED. CONNECTING includes the handshakes of TLS and
 * WebSocket. ls_stress_vu_close() alone closes a socket. The virtual user
 * is CLOSED when the transport has released the socket.
 *
 * The worker owns its virtual users. All functions run in the worker's thread. */
#ifndef LS_STRESS_VU_H
#define LS_STRESS_VU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "codec/http1/http1_reader.h"
#include "net/handshake.h"
#include "port/timer.h"
#include "stress/load/bytes.h"
#include "stress/measure/counters.h"

typedef struct ls_stress_worker ls_stress_worker;
typedef struct ls_stress_vu ls_stress_vu;

typedef enum ls_stress_http_phase {
    LS_STRESS_HTTP_START, /* no byte of the response has arrived */
    LS_STRESS_HTTP_HEAD,
    LS_STRESS_HTTP_BODY
} ls_stress_http_phase;

typedef struct ls_stress_timer { /* of a virtual user */
    ls_timer timer;
    ls_stress_vu *u;
} ls_stress_timer;

typedef enum ls_stress_role {
    LS_STRESS_ROLE_CLIENT,
    LS_STRESS_ROLE_PUBLISHER, /* of a fan-out run */
    LS_STRESS_ROLE_LISTENER   /* makes no requests: a subscriber, or an idle connection */
} ls_stress_role;

/* One outstanding request. */
typedef struct ls_stress_request {
    uint64_t due_ns, sent_ns; /* due_ns: open loop only */
    uint64_t
        number;   /* of a message that was published, or of a request of a script: from 1; a retry keeps it. Else 0 */
    bool is_head; /* HTTP: the method is HEAD, so the response has no body */
    bool check_failed;
} ls_stress_request;

typedef enum ls_stress_vu_state {
    LS_STRESS_VU_CLOSED, /* no socket */
    LS_STRESS_VU_CONNECTING,
    LS_STRESS_VU_OPEN,
    LS_STRESS_VU_CLOSING /* the socket is being closed; packets may be pending */
} ls_stress_vu_state;

typedef enum ls_stress_step {
    LS_STRESS_STEP_CONNECT,
    LS_STRESS_STEP_TLS,    /* connected; the TLS handshake is not complete */
    LS_STRESS_STEP_UPGRADE /* the handshake of WebSocket is not complete */
} ls_stress_step;

struct ls_stress_vu {
    ls_stress_worker *worker;
    ls_stream *stream;         /* of a stream target; NULL: closed */
    struct ls_stress_udp *udp; /* of a datagram target */
    struct ls_stress_h2 *h2;   /* of a shared connection */
    size_t output;             /* bytes to send */
    ls_handshake handshake;    /* open while a TLS handshake runs */
    uint64_t handshake_start_ns;
    struct ls_stress_ws *ws; /* of a WebSocket; the next connection uses it again. NULL until needed */
    const struct ls_stress_proto *proto;
    uint32_t index;         /* in the whole run, from 0 */
    uint8_t state;          /* ls_stress_vu_state */
    bool attached;          /* the transport has a socket */
    uint8_t step;           /* ls_stress_step; of vu:ws in a scenario, too */
    uint8_t role;           /* ls_stress_role */
    bool stalled;           /* does not read after the handshake */
    bool close_received;    /* a cycle: the Close frame of the server has arrived */
    uint32_t number, topic; /* fan-out: of this publisher or subscriber, from 0; its topic */
    struct ls_stress_subscriber *subscriber;
    bool rx_pending, tx_pending;
    bool inactive;        /* not in use: a stage has fewer connections, or all its messages are sent */
    bool delayed;         /* waits for the delay() of its wrk script */
    bool prepared;        /* its first connect has succeeded or failed */
    bool used;            /* a response was received on this connection */
    bool reconnect_later; /* connect again at the next housekeeping, not at once */
    uint32_t recv_room;          /* size of the next receive: LS_BLOCK_SMALL or LS_BLOCK_LARGE */
    uint32_t outstanding, first; /* requests[(first + i) % pipeline], i < outstanding, are outstanding */
    uint32_t retries;            /* requests to send again on a new connection: the server closed this one in order */
    uint64_t connect_start_ns;
    uint64_t left;                       /* requests still to make; UINT64_MAX: no limit */
    ls_stress_request *requests;         /* `pipeline` entries, owned by the worker */
    ls_node idle, to_open;               /* in the worker's two lists */
    ls_stress_timer *timer;              /* of a script's delays; else NULL */
    bool timer_pending;                  /* a scenario's sleep is armed or its packet is pending; blocks CLOSED */

    uint64_t numbered; /* requests of a script so far: the number of the last one */

    struct {
        uint8_t phase;       /* ls_stress_http_phase */
        ls_stress_bytes buf; /* an incomplete head, or the bytes for the script */
        ls_http1_reader reader;
        uint64_t body_len;
        uint32_t crc;
        bool body_differs; /* from the expected body */
    } http;                /* the response being received */

    struct {
        uint64_t sent, received; /* messages composed, messages echoed */
        uint32_t at, len;        /* bytes of the expected message compared so far, and its length */
        char *text;              /* the expected message, when messages are numbered */
    } echo;

    struct ls_stress_scenario *scenario;
    uint64_t waits_since_ns; /* a scenario waits for the server since then; 0: it sleeps, or only listens */
};

/* Begin to connect. The state must be CLOSED. LS_OK; or an error, which is counted, and no packet follows. */
int ls_stress_vu_open(ls_stress_vu *u);

/* Close the socket. ls_stress_worker_vu_closed() follows and may open it again. No effect when it is closed. */
void ls_stress_vu_close(ls_stress_vu *u);

/* Open loop, before ls_stress_vu_request(): set the due time of request i of the next `count`. */
void ls_stress_vu_set_due(ls_stress_vu *u, uint32_t i, uint64_t due_ns);

/* Compose and send `count` requests. The virtual user is OPEN, no send is pending, and the pipeline has room. */
void ls_stress_vu_request(ls_stress_vu *u, uint32_t count);

/* Turn all outstanding requests into retries; ls_stress_vu_retry() sends the retries on the next connection. */
void ls_stress_vu_retry_later(ls_stress_vu *u);
void ls_stress_vu_retry(ls_stress_vu *u);

/* The response of proto->upgrade is complete, and accepted (LS_OK) or not: an error that is counted already. */
void ls_stress_vu_upgraded(ls_stress_vu *u, int err);

/* The connect or the oldest request exceeded the time limit. */
void ls_stress_vu_time_out(ls_stress_vu *u);

/* The handshake of u->step has failed: count it and record the reason, with the first bytes of the response. */
void ls_stress_vu_handshake_failed(ls_stress_vu *u, const char *why, const char *bytes, size_t len);

/* While it closes: become CLOSED if no packet is pending. */
void ls_stress_vu_finish_close(ls_stress_vu *u);

/* Append to the output: a copy of the bytes, or bytes that stay valid. False: out of memory; the error is counted and
 * the connection closes. */
bool ls_stress_vu_put(ls_stress_vu *u, const char *bytes, size_t len);
bool ls_stress_vu_put_static(ls_stress_vu *u, const char *bytes, size_t len);

/* Send the output. False: the connection failed. */
bool ls_stress_vu_send(ls_stress_vu *u);

/* Count all outstanding requests as failed, or one error, and close the connection; the worker opens it again, that of
 * a listener not at once. Returns false, as callers do then. */
bool ls_stress_vu_fail(ls_stress_vu *u, ls_stress_error kind);

/* The same for an invalid response, with the first bytes of it for the report. */
bool ls_stress_vu_fail_answer(ls_stress_vu *u, const char *why, const char *bytes, size_t len);

/* The peer has closed: outstanding requests have failed, and so has a listener, because of `why` (NULL: nothing to
 * record); an idle connection closes without an error. */
void ls_stress_vu_peer_closed(ls_stress_vu *u, const char *why);

typedef struct ls_stress_head { /* the head of a response */
    const char *at;             /* after an error, what was received of it */
    size_t len;
    const char *why; /* of an error; a static text */
} ls_stress_head;

/* Continue u->http.reader with the next bytes. Received bytes are kept only while the head is incomplete. Returns how
 * many of these belong to the head, which is complete, and to interim responses; 0: all of them, and the head is
 * incomplete; or LS_EPROTO, LS_ENOMEM. out->at is valid as long as these bytes; if u->http.buf has bytes, it is
 * there. */
int ls_stress_vu_head(ls_stress_vu *u, const char *bytes, size_t len, ls_stress_head *out);

/* The oldest request has ended; nothing is recorded. */
void ls_stress_vu_retire(ls_stress_vu *u);

/* The oldest request is complete: record its latency and its status (0: the protocol has no status). Of a publication
 * only the status: its deliveries are the requests of the reports. */
void ls_stress_vu_complete(ls_stress_vu *u, unsigned status);

#endif
