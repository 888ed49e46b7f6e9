/* plan.h - what a run is to do, as the command line and the script say it together. Made by one thread before the run,
 * only read while it runs. */
#ifndef LS_STRESS_PLAN_H
#define LS_STRESS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"
#include "stress/config.h"
#include "stress/schedule.h"
#include "stress/target.h"

enum {
    LS_STRESS_THREADS_MAX = 1024,
    LS_STRESS_CONNECTIONS_MAX = 1 << 20,
    LS_STRESS_PIPELINE_MAX = 1024,
    LS_STRESS_HEADERS_MAX = 64,
    LS_STRESS_HEAD_BYTES_MAX = 65536, /* of one response */
};

typedef enum ls_stress_plan_mode {
    LS_PLAN_STATIC,  /* HTTP, the same request again and again: no Lua */
    LS_PLAN_SCRIPT,  /* HTTP with hooks of a script */
    LS_PLAN_ECHO,    /* messages that must come back, byte for byte */
    LS_PLAN_SCENARIO /* a coroutine of the script for each connection */
} ls_stress_plan_mode;

typedef enum ls_stress_dialect { LS_DIALECT_NONE, LS_DIALECT_WRK, LS_DIALECT_TABLE } ls_stress_dialect;

/* What every answer must be; each is a check of its own in the report. */
typedef struct ls_stress_plan_expect {
    uint16_t status_from, status_to; /* 0: any */
    bool has_length, has_crc, has_body;
    uint64_t length;
    uint32_t crc;
    const char *body; /* the bytes of the whole body */
    size_t body_len;
} ls_stress_plan_expect;

typedef struct ls_stress_plan {
    ls_stress_config config; /* threads, connections, ...: also what the reports show */
    ls_stress_plan_mode mode;
    ls_stress_dialect dialect;
    ls_stress_target target;
    ls_addr addr;
    ls_stress_schedule schedule;
    uint64_t sends; /* for each connection; 0: no limit */

    /* http */
    const char *method, *path, *body; /* NULL: GET, the target's, none */
    size_t body_len;
    const char *headers[LS_STRESS_HEADERS_MAX]; /* "Name: value" */
    unsigned header_count;
    char *request; /* LS_PLAN_STATIC: config.pipeline copies, one behind the other */
    size_t request_len;
    bool to_head;
    ls_stress_plan_expect expect;

    /* echo */
    const char *message;
    size_t message_len;
    bool numbered; /* "<i>. Thread <t> - <message>" */
    bool show;     /* print every echo */

    const char *script_path;
    int script_argc; /* what the script's init gets */
    char **script_argv;
} ls_stress_plan;

/* The bytes of one request head and body, malloc'd; method and path must not hold white space or control characters,
 * header lines none of the latter. NULL: no memory. */
char *ls_stress_plan_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                             size_t body_len, unsigned copies, size_t *len);

#endif
