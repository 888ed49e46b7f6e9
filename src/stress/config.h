/* config.h - the options of a run: the part of the plan (plan.h) that the results (result.h) show as well. */
#ifndef LS_STRESS_CONFIG_H
#define LS_STRESS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The load moves from its previous value to this one, in a straight line, within the duration. */
typedef struct ls_stress_stage {
    uint64_t duration_ns;
    double rate;          /* requests per second at its end; 0: closed loop */
    unsigned connections; /* at its end; 0: unchanged */
} ls_stress_stage;

typedef struct ls_stress_config {
    const char *target;  /* "http://127.0.0.1:8080/", as given */
    const char *script;  /* file name, or NULL */
    const char *backend; /* of the port: "epoll", ... */
    unsigned threads;
    unsigned connections;
    uint64_t duration_ns; /* 0: until `requests` are done */
    uint64_t requests;    /* 0: no limit */
    double rate;          /* per second, all threads together; 0: closed loop, or see the stages */
    unsigned pipeline;    /* outstanding requests per connection; 1: no pipelining */
    bool keepalive;
    bool tls, tls_resume; /* an https or wss target; its connections resume the session of an earlier one */
    bool websocket;       /* a ws or wss target */
    bool fanout, sse; /* messages of publishers are delivered to `connections` subscribers; as server-sent events */
    unsigned publishers, topics, stalled; /* fan-out; `stalled` subscribers do not read */
    size_t message_bytes;                 /* of an echo, or of a published message; else 0 */
    bool hold;                            /* the connections stay idle */
    uint64_t timeout_ns;                  /* of a connect and of one request; 0: no limit */
    const ls_stress_stage *stages;
    size_t stage_count;
    bool latency; /* --latency: the text report prints the distribution */
    bool open_loop;
} ls_stress_config;

#endif
