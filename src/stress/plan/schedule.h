/* schedule.h - when each request is due, and how many connections are in use: constant, or in stages that move from
 * one value to the next in a straight line. Pure; times are nanoseconds since the start of the run.
 *
 * Requests of the whole run are numbered from 0. Request k is due when the integral of the rate reaches k: within a
 * stage from rate a to rate b over a time T, that is the root of  a t + (b - a) t^2 / 2T = k - (requests of earlier
 * stages). So requests are evenly spaced without randomness, and any thread can compute the due time of any
 * request. */
#ifndef LS_STRESS_SCHEDULE_H
#define LS_STRESS_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

enum { LS_STRESS_STAGES_MAX = 64 };

/* The load moves from its previous value to this one, in a straight line, within the duration. */
typedef struct ls_stress_stage {
    uint64_t duration_ns;
    double rate;          /* requests per second at its end; 0: closed loop */
    unsigned connections; /* at its end; 0: unchanged */
} ls_stress_stage;

typedef struct ls_stress_schedule_stage {
    double from_s, length_s;
    double rate_from, rate_to; /* per second */
    double count_from;         /* requests due before it */
    double count;              /* requests due within it */
    double connections_from, connections_to;
} ls_stress_schedule_stage;

typedef struct ls_stress_schedule {
    ls_stress_schedule_stage stages[LS_STRESS_STAGES_MAX];
    unsigned count;
    uint64_t duration_ns; /* of all stages */
} ls_stress_schedule;

/* A constant rate (0: no request is ever due) and number of connections; duration_ns may be UINT64_MAX. */
void ls_stress_schedule_constant(ls_stress_schedule *s, double rate, unsigned connections, uint64_t duration_ns);

/* Stages, at most LS_STRESS_STAGES_MAX, beginning at `rate` and `connections`. A stage with connections == 0 leaves
 * their number unchanged. */
void ls_stress_schedule_stages(ls_stress_schedule *s, double rate, unsigned connections, const ls_stress_stage *stages,
                               size_t count);

/* The due time of request k; UINT64_MAX: never. */
uint64_t ls_stress_schedule_due_ns(const ls_stress_schedule *s, uint64_t k);

/* The number of connections in use at that time. */
unsigned ls_stress_schedule_connections(const ls_stress_schedule *s, uint64_t at_ns);

#endif
