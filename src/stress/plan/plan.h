/* plan.h - everything about a run that is known before it, as far as C code uses it. lua/luaserve/stress/plan.lua
 * makes it from the options, with the same names; it is read-only during the run. Its texts belong to the Lua state of
 * the plan. */
#ifndef LS_STRESS_PLAN_H
#define LS_STRESS_PLAN_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/ws/ws_handshake.h"
#include "net/sock/addr.h"
#include "net/tls/tls.h"
#include "stress/plan/schedule.h"

enum {
    LS_STRESS_PIPELINE_MAX = 1024,
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

typedef enum ls_stress_target_kind {
    LS_STRESS_TARGET_HTTP,
    LS_STRESS_TARGET_TCP,
    LS_STRESS_TARGET_UDP,
    LS_STRESS_TARGET_WS
} ls_stress_target_kind;

typedef struct ls_stress_plan {
    ls_stress_plan_mode mode;
    const char *target; /* "http://127.0.0.1:8080/", as given */
    ls_stress_target_kind kind;
    const char *host; /* without brackets; "unix:/path" for a Unix socket */
    uint16_t port;
    const char *path; /* of an HTTP or WebSocket target: path and query */
    ls_tls *tls;      /* of an https or wss target; NULL: plain */
    ls_addr addr;

    unsigned threads, connections;
    uint64_t duration_ns; /* 0: until `requests` are done */
    uint64_t requests;    /* 0: no limit */
    uint64_t sends;       /* requests of each connection; 0: no limit */
    double rate;          /* per second, all threads together; 0: closed loop, or see the schedule */
    bool open_loop;
    ls_stress_schedule schedule;
    bool staged; /* the schedule has stages */
    bool http2;
    unsigned streams;    /* virtual users of a connection: 1, or of HTTP/2 that of its streams */
    unsigned pipeline;   /* outstanding requests per connection; 1: no pipelining */
    uint64_t timeout_ns; /* of a connect and of one request; 0: no limit */
    bool keepalive;

    const char *script; /* a file name, or NULL */
    bool native;        /* the script returns a table; else it is one for wrk */

    /* HTTP */
    const char *base;    /* of a request: after its path, up to the length of the body */
    const char *request; /* LS_STRESS_PLAN_STATIC, and the messages of an echo: `pipeline` copies in a row */
    size_t request_len;  /* of one */
    bool is_head;
    uint32_t body_bytes_max; /* of a response, for scripts that look at bodies */
    /* The expected response; each expectation is a check in the report. */
    uint16_t status_from, status_to; /* 0: any */
    bool has_length, has_crc;
    uint64_t length;
    uint32_t crc;
    const char *expected_body; /* NULL: any */
    size_t expected_body_len;

    /* echo */
    const char *message;
    size_t message_len;
    bool numbered; /* "<i>. Thread <t> - <message>" */
    bool show;     /* print every echo */

    /* fan-out: `connections` are the subscribers, `message` follows the head of each message (delivery.h). Texts may
     * contain {topic} */
    bool sse;                             /* messages are delivered as server-sent events */
    unsigned publishers, topics, stalled; /* `stalled` subscribers do not read */
    const char *publish_path;             /* of publishers */
    const char *post;                     /* of a publication with --sse: its head after the path */
    const char *subscribe;                /* the first message of a subscriber or idle WebSocket; NULL: none */

    /* WebSocket */
    bool websocket, binary, compress;
    const char *packed; /* the compressed frames of an echo, also copies; NULL: none */
    size_t packed_len;
    const char *protocols[LS_STRESS_PROTOCOLS_MAX];
    ls_ws_request ws_request; /* its handshake */
} ls_stress_plan;

/* Read the plan's table at `index`. The members `tls` and `addr` are unchanged. */
void ls_stress_plan_read(lua_State *L, int index, ls_stress_plan *plan);

/* The share of thread `index` of `count` connections or publishers, and the shares of the threads before it. */
uint32_t ls_stress_plan_share(uint32_t count, unsigned threads, unsigned index);
uint32_t ls_stress_plan_share_before(uint32_t count, unsigned threads, unsigned index);

/* A text with each {topic} replaced by the number, in allocated memory; NULL: out of memory. */
char *ls_stress_plan_topic(const char *text, unsigned topic);

#endif
