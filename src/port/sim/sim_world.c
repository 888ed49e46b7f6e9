/* sim_world.c - the seed, the queue of events, the clocks, random bytes and the history. See sim.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "port/sim/sim.h"

enum { EVENTS_FIRST = 1024, LAST_STEPS = 60, TRACE_BYTES = 1 << 16 };
static const int64_t wall_first_us = 1767225600000000; /* 2026-01-01 */
static const uint64_t start_ns = UINT64_C(1000000000); /* a monotonic clock of 0 means "never" in many programs */

ls_sim_faults ls_sim_faults_now;
ls_sim_figures ls_sim_total;

typedef struct event {
    uint64_t ns, order;
    void (*fn)(void *arg, uint64_t number);
    void *arg;
    uint64_t number;
} event;

typedef struct step {
    const char *name;
    uint64_t ns;
    int64_t a, b;
    unsigned thread;
} step;

static struct {
    uint64_t seed, draws, random; /* two generators: bytes for programs do not change what happens */
    uint64_t now_ns;
    int64_t wall_jump_us;
    uint64_t steps;
    event *events; /* a binary heap: the earliest first, and of the same time in their order */
    size_t event_count, event_room;
    uint64_t event_order;
    step last[LAST_STEPS];
    FILE *trace;
    char trace_room[TRACE_BYTES];
    bool is_failing;
} world;

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* splitmix64, of Steele, Lea and Flood: "Fast splittable pseudorandom number generators", 2014. */
static uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t ls_sim_below(uint64_t bound)
{
    return next_number(&world.draws) % bound;
}

bool ls_sim_chance(uint32_t per_million)
{
    return per_million > 0 && ls_sim_below(1000000) < per_million;
}

ssize_t getrandom(void *to, size_t len, unsigned flags)
{
    (void)flags;
    for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
        const uint64_t number = next_number(&world.random);
        memcpy((char *)to + at, &number, len - at < sizeof number ? len - at : sizeof number);
    }
    return (ssize_t)len;
}

/* ---- the history ------------------------------------------------------------------------------------------------ */

static void mix(uint64_t value)
{
    ls_sim_total.hash = (ls_sim_total.hash ^ value) * UINT64_C(0x100000001b3);
    ls_sim_total.hash ^= ls_sim_total.hash >> 29;
}

static void print_step(FILE *to, const step *s)
{
    fprintf(to, "%12.6f  thread %-3u %-18s %lld %lld\n", (double)(s->ns - start_ns) / 1e9, s->thread, s->name,
            (long long)s->a, (long long)s->b);
}

void ls_sim_step(const char *name, int64_t a, int64_t b)
{
    const step s = {name, world.now_ns, a, b, ls_sim_thread_number()};
    mix((uintptr_t)name); /* a literal: at a fixed address */
    mix((uint64_t)a);
    mix((uint64_t)b);
    mix(s.ns);
    mix(s.thread);
    world.last[world.steps++ % LAST_STEPS] = s;
    if (world.trace != NULL) print_step(world.trace, &s);
}

_Noreturn void ls_sim_fail(const char *format, ...)
{
    va_list args;
    if (world.is_failing) _exit(3);
    world.is_failing = true;
    const uint64_t first = world.steps > LAST_STEPS ? world.steps - LAST_STEPS : 0;
    for (uint64_t i = first; i < world.steps; i++) print_step(stderr, &world.last[i % LAST_STEPS]);
    fprintf(stderr, "seed %llu, at %.6f s: ", (unsigned long long)world.seed, (double)(world.now_ns - start_ns) / 1e9);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(NULL);
    _exit(3);
}

void ls_sim_begin(uint64_t seed)
{
    const char *trace = getenv("LUASERVE_SIM_TRACE");
    ls_sim_memory_begin();
    world.seed = seed;
    world.draws = seed * 2 + 1;
    world.random = ~seed;
    world.now_ns = start_ns;
    FILE *const to = fopen(trace != NULL ? trace : "/dev/null", "ae"); /* each life of a run adds its own */
    if (to != NULL) setvbuf(to, world.trace_room, _IOFBF, sizeof world.trace_room);
    if (trace != NULL) world.trace = to; /* memory is the same with a trace and without */
    ls_sim_threads_open();
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static bool is_before(const event *a, const event *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void ls_sim_at(uint64_t ns, void (*fn)(void *arg, uint64_t number), void *arg, uint64_t number)
{
    if (world.event_count == world.event_room) {
        world.event_room = world.event_room == 0 ? EVENTS_FIRST : 2 * world.event_room;
        world.events = realloc(world.events, world.event_room * sizeof *world.events);
        if (world.events == NULL) ls_sim_fail("no memory for events");
    }
    const event e = {ns > world.now_ns ? ns : world.now_ns, world.event_order++, fn, arg, number};
    size_t hole = world.event_count++;
    for (; hole > 0 && is_before(&e, &world.events[(hole - 1) / 2]); hole = (hole - 1) / 2)
        world.events[hole] = world.events[(hole - 1) / 2];
    world.events[hole] = e;
}

uint64_t ls_sim_next_event(void)
{
    return world.event_count > 0 ? world.events[0].ns : UINT64_MAX;
}

static event pop(void)
{
    const event first = world.events[0], last = world.events[--world.event_count];
    size_t hole = 0;
    for (size_t child; (child = 2 * hole + 1) < world.event_count; hole = child) {
        if (child + 1 < world.event_count && is_before(&world.events[child + 1], &world.events[child])) child++;
        if (!is_before(&world.events[child], &last)) break;
        world.events[hole] = world.events[child];
    }
    world.events[hole] = last;
    return first;
}

void ls_sim_run_events(void)
{
    while (world.event_count > 0 && world.events[0].ns <= world.now_ns) {
        const event e = pop();
        e.fn(e.arg, e.number);
    }
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

uint64_t ls_sim_now_ns(void)
{
    return world.now_ns;
}

void ls_sim_move_to(uint64_t ns)
{
    if (ns > world.now_ns) world.now_ns = ns;
    ls_sim_total.calls++;
}

static int64_t wall_us(void)
{
    if (ls_sim_chance(ls_sim_faults_now.clock_jump) && ls_sim_faults_now.clock_jump_s_max > 0) {
        const int64_t most_us = (int64_t)ls_sim_faults_now.clock_jump_s_max * 1000000;
        world.wall_jump_us += (int64_t)ls_sim_below((uint64_t)(2 * most_us)) - most_us;
        ls_sim_step("wall clock jumps", world.wall_jump_us, 0);
    }
    return wall_first_us + (int64_t)(world.now_ns / 1000) + world.wall_jump_us;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    ls_sim_call();
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        *out = timespec_of((uint64_t)wall_us() * 1000);
    else
        *out = timespec_of(ls_sim_cpu_ns(clock) != UINT64_MAX ? ls_sim_cpu_ns(clock) : world.now_ns);
    return 0;
}

time_t time(time_t *out)
{
    const time_t now = (time_t)(wall_us() / 1000000);
    if (out != NULL) *out = now;
    return now;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    const int64_t us = wall_us();
    (void)zone;
    *out = (struct timeval){.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    return 0;
}

clock_t clock(void)
{
    return (clock_t)((world.now_ns - start_ns) / 1000 * (CLOCKS_PER_SEC / 1000000));
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)left;
    ls_sim_call();
    (void)ls_sim_wait(&world, world.now_ns + (uint64_t)wanted->tv_sec * 1000000000 + (uint64_t)wanted->tv_nsec);
    return 0;
}

int usleep(useconds_t us)
{
    return nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

/* ---- the C library ---------------------------------------------------------------------------------------------- */

pid_t getpid(void)
{
    return LS_SIM_FD_FIRST;
}

void *ls_sim_real(const char *name)
{
    void *const function = dlsym(RTLD_NEXT, name);
    if (function == NULL) ls_sim_fail("the C library has no %s", name);
    return function;
}

/* The back end makes the calls of each request without the C library (epoll_syscall.h). */
long syscall(long number, ...)
{
    va_list args;
    long a[6];
    va_start(args, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    switch (number) {
    case SYS_recvfrom: return recvfrom((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (void *)a[5]);
    case SYS_sendto: return sendto((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t)a[5]);
    case SYS_recvmmsg: return recvmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3], NULL);
    case SYS_sendmmsg: return sendmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3]);
    case SYS_epoll_pwait: return epoll_wait((int)a[0], (void *)a[1], (int)a[2], (int)a[3]);
    case SYS_gettid: return getpid() + (long)ls_sim_thread_number();
    case SYS_membarrier:
    case SYS_sched_setattr: return 0; /* one thread runs at a time */
    default: break;
    }
    return ls_sim_result(ls_sim_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
