/* plan.h - everything about a run that is known before it: the options, the request or message, the script. options.h
 * makes the plan before the run; it is read-only during the run. */
#ifndef LS_STRESS_PLAN_H
#define LS_STRESS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"
#include "net/tls.h"
#include "proto/ws_handshake.h"
#include "stress/config.h"
#include "stress/schedule.h"
#include "stress/target.h"

enum {
    LS_STRESS_THREADS_MAX = 1024,
    LS_STRESS_CONNECTIONS_MAX = 1 << 20,
    LS_STRESS_PIPELINE_MAX = 1024,
    LS_STRESS_SENDS_MAX = 1000000000, /* for each connection: the number of all messages fits in 64 bits */
    LS_STRESS_HEADERS_MAX = 64,
    LS_STRESS_PROTOCOLS_MAX = 16,
    LS_STRESS_MESSAGE_BYTES_MAX = 64 << 20,
    LS_STRESS_HEAD_BYTES_MAX = 65536, /* of one response */
};

typedef enum ls_stress_plan_mode {
    LS_STRESS_PLAN_STATIC,  /* HTTP, always the same request: no Lua */
    LS_STRESS_PLAN_SCRIPT,  /* HTTP with hooks of a script */
    LS_STRESS_PLAN_ECHO,    /* messages that the server must echo, byte for byte */
    LS_STRESS_PLAN_FANOUT,  /* messages that the server must deliver to all subscribers */
    LS_STRESS_PLAN_HOLD,    /* connections stay idle */
    LS_STRESS_PLAN_CYCLES,  /* connections come and go */
    LS_STRESS_PLAN_SCENARIO /* a coroutine of the script for each connection */
} ls_stress_plan_mode;

typedef enum ls_stress_dialect {
    LS_STRESS_DIALECT_NONE,
    LS_STRESS_DIALECT_WRK,
    LS_STRESS_DIALECT_TABLE
} ls_stress_dialect;

enum { LS_STRESS_BODY_BYTES_DEFAULT = 1 << 20, LS_STRESS_BODY_BYTES_MAX = 1000000000 };

/* The expected response; each expectation is a check in the report. */
typedef struct ls_stress_plan_expect {
    uint16_t status_from, status_to; /* 0: any */
    bool has_length, has_crc, has_body;
    uint64_t length;
    uint32_t crc;
    const char *body; /* the bytes of the whole body */
    size_t body_len;
} ls_stress_plan_expect;

typedef struct ls_stress_plan {
    ls_stress_config config; /* threads, connections, ...: the part that the reports show */
    ls_stress_plan_mode mode;
    ls_stress_dialect dialect;
    ls_stress_target target;
    ls_tls *tls; /* of an https target; NULL: plain */
    ls_addr addr;
    ls_stress_schedule schedule;
    uint64_t sends; /* for each connection; 0: no limit */

    /* HTTP */
    const char *method, *path, *body; /* NULL: GET, the target's, none */
    size_t body_len;
    const char *headers[LS_STRESS_HEADERS_MAX]; /* "Name: value" */
    unsigned header_count;
    uint32_t body_bytes_max; /* of a response, for scripts that look at bodies */
    char *request;           /* LS_STRESS_PLAN_STATIC, and the frames of an echo: config.pipeline copies in a row */
    size_t request_len;      /* of one */
    char *packed;            /* the compressed frames of an echo, also copies; NULL: none */
    size_t packed_len;
    bool is_head;
    ls_stress_plan_expect expect;

    /* echo */
    const char *message;
    size_t message_len;
    bool numbered; /* "<i>. Thread <t> - <message>" */
    bool show;     /* print every echo */

    /* fan-out: `message` follows the head of each message (delivery.h). Both may contain {topic} */
    const char *publish_path; /* of publishers */
    const char *subscribe;    /* the first message of a subscriber or idle WebSocket; NULL: none */

    struct { /* WebSocket */
        bool binary, compress;
        const char *protocols[LS_STRESS_PROTOCOLS_MAX];
        unsigned protocol_count;
        ls_ws_request request; /* its handshake */
    } ws;

    const char *script_path;
    int script_argc; /* the arguments after "--" */
    char **script_argv;
} ls_stress_plan;

/* `copies` copies of one request, head and body, in allocated memory; *len is the length of one. method, path and
 * header lines must be valid: no control characters, and no white space in method and path. NULL: out of memory. */
char *ls_stress_plan_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                             size_t body_len, unsigned copies, size_t *len);

/* The share of thread `index` of `count` connections or publishers, and the shares of the threads before it. */
uint32_t ls_stress_plan_share(uint32_t count, unsigned threads, unsigned index);
uint32_t ls_stress_plan_share_before(uint32_t count, unsigned threads, unsigned index);

#endif
