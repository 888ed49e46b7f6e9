/* clock.h - monotonic time for deadlines, wall time for display. clock_posix.c or clock_win32.c implements it. Any
 * thread.
 *
 * The clock of a site is the monotonic one, and what `luaserve test` has moved it forward: ls.now, ls.sleep, timers
 * and the entries of dicts follow it, connections do not. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

uint64_t ls_clock_ns(void);        /* monotonic, full resolution */
uint64_t ls_clock_coarse_ms(void); /* monotonic, at most a few ms late, cheap; same origin as ls_clock_ns */
int64_t ls_clock_wall_s(void);     /* seconds since 1970-01-01 UTC, cheap */
int64_t ls_clock_wall_us(void);    /* microseconds since 1970-01-01 UTC */
void ls_clock_sleep_ms(uint32_t ms);

typedef struct ls_date {
    unsigned year, month, day, hour, minute, second; /* month and day from 1 on */
    unsigned weekday;                                /* 0: Sunday */
} ls_date;
extern const char ls_month_names[37]; /* three letters for each month */

/* The date and the time of day of a wall time, in UTC. Times outside of the years 0 to 9999 are clamped. */
ls_date ls_clock_date(int64_t wall_s);

uint64_t ls_clock_moved_ns(void); /* of this process; 0 unless a test has moved it */
void ls_clock_move(uint64_t ns);

#endif
