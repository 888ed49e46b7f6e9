/* sim.h - the simulated world: threads, clocks, memory, network and disk of one process, decided by one seed.
 *
 * A program that links these files before the static library has its system calls answered here: they define the
 * functions of the C library that luaserve calls (recv, epoll_wait, pthread_mutex_lock, clock_gettime, malloc ...), so
 * the whole server, the back end epoll included, and the libraries that it uses run unchanged. One seed is one history:
 * two runs of a seed make the same calls in the same order, with the same results, at the same times and addresses.
 *
 * Threads are threads of the system, of which one runs at a time: it gives the turn to another one when it waits, and
 * sometimes in between, at the calls that are answered here. Only the thread whose turn it is touches the world, so
 * there are no locks. Time stands still while a thread computes; it moves a little with each call, and to the next
 * event when all threads wait.
 *
 *     the turn      sim_thread.c   pthread_*, and whose turn it is
 *     events, time  sim_world.c    the seed, the queue of events, the clocks, random bytes, the hash of the history
 *     memory        sim_memory.c   malloc and mmap: the same addresses in each run
 *     descriptors   sim_poll.c     the table; epoll, eventfd, timerfd, pipes, poll
 *     network       sim_net.c      sockets and datagrams
 *                   sim_stream.c   the bytes of connections, and their faults
 *     disk          sim_disk.c     files below /sim: what was not synced is lost in a crash
 *                   sim_file.c     open, pread, stat, rename, fopen ...
 *
 * Not simulated: processes, signals, inotify, terminals, folders below /sim, files outside it (they are those of the
 * system; a test should only read them). */
#ifndef LS_PORT_SIM_SIM_H
#define LS_PORT_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* ---- the world -------------------------------------------------------------------------------------------------- */

/* Probabilities are per million calls; times in microseconds. 0: never. */
typedef struct ls_sim_faults {
    uint32_t preempt;                         /* another thread gets the turn at a call */
    uint32_t stall, stall_us_max;             /* the thread does not run for a time, as on a busy machine */
    uint32_t latency_us_max, slow_link;       /* of a connection; a connection that carries few bytes a second */
    uint32_t reset;                           /* a segment is replaced by a reset of its connection */
    uint32_t connect_refused, connect_lost;   /* refused; never answered */
    uint32_t accept_error, no_descriptors;    /* ECONNABORTED; EMFILE */
    uint32_t datagram_lost, datagram_doubled; /* and a random latency each, which reorders them */
    uint32_t datagram_late;                   /* the queue of its socket is full, for a time */
    uint32_t write_short, write_full;         /* of a file: fewer bytes than asked for; ENOSPC */
    uint32_t clock_jump, clock_jump_s_max;    /* the wall clock, at a look at it, forward or back */
} ls_sim_faults;

extern ls_sim_faults ls_sim_faults_now; /* may be changed at any time */
void ls_sim_calm(void);                 /* no faults from now on but latency and preemption; slow links become fast */

/* Begin: the calling thread becomes the first one of the world, and has the turn. Once per process, before other
 * threads exist. */
void ls_sim_begin(uint64_t seed);

uint64_t ls_sim_now_ns(void);             /* since the beginning */
uint64_t ls_sim_below(uint64_t bound);    /* a number from the seed, below `bound`, which is > 0 */
bool ls_sim_chance(uint32_t per_million); /* false, without a draw, for 0 */

typedef struct ls_sim_figures {
    uint64_t hash, calls;          /* of the history so far; answered so far */
    unsigned threads, fds, blocks; /* that have not ended; that are open; of malloc, that are in use */
} ls_sim_figures;

extern ls_sim_figures ls_sim_total;

/* A step of the history: part of its hash, and with `names` a word, a line of the trace (LUASERVE_SIM_TRACE). */
void ls_sim_step(const char *name, int64_t a, int64_t b);

/* The world has come to an end that it must not have: prints the reason, the seed and the last steps, and ends the
 * process with status 3. */
_Noreturn void ls_sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Call fn(arg, number) at this time, on any thread: it must not wait. */
void ls_sim_at(uint64_t ns, void (*fn)(void *arg, uint64_t number), void *arg, uint64_t number);
/* The time of the next event; UINT64_MAX: none. Runs those that are due; moves the time. For sim_thread.c. */
uint64_t ls_sim_next_event(void);
void ls_sim_run_events(void);
void ls_sim_move_to(uint64_t ns);

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Each call of the world begins with this: time passes, events that are due run, another thread may get the turn. */
void ls_sim_call(void);

/* Wait for ls_sim_wake of `object`, or until `until_ns`; UINT64_MAX: without an end. false: the time was over. */
bool ls_sim_wait(const void *object, uint64_t until_ns);
void ls_sim_wake_one(const void *object); /* a thread that waits for it, drawn from the seed */
void ls_sim_wake_all(const void *object);

/* The calling thread computes for a time, while others run. */
void ls_sim_compute(uint64_t ns);

unsigned ls_sim_thread_number(void);     /* of the calling thread, from 1 */
uint64_t ls_sim_cpu_ns(clockid_t clock); /* that its thread has computed; of a clock of no thread, UINT64_MAX */
void ls_sim_threads_open(void);

void ls_sim_memory_begin(void);

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

enum { LS_SIM_FD_FIRST = 2000, LS_SIM_FDS_MAX = 60000 }; /* lower ones are the system's */

typedef struct ls_sim_file ls_sim_file;

typedef struct ls_sim_kind {             /* of a descriptor; NULL: EINVAL, and nothing to close */
    unsigned (*poll)(ls_sim_file *file); /* EPOLL* that hold now */
    ssize_t (*transfer)(ls_sim_file *file, const struct iovec *bytes, bool writes);
    void (*close)(ls_sim_file *file); /* the last descriptor was closed */
    void (*stat)(ls_sim_file *file, struct stat *out);
} ls_sim_kind;

struct ls_sim_file {
    const ls_sim_kind *kind;
    unsigned refs;   /* descriptors */
    uint64_t number; /* of the inode: not used again */
    bool waits;      /* a call that cannot be carried out waits; false: EAGAIN */
    struct ls_sim_watch *watches;
};

/* A descriptor for the file, the lowest that is free; -1 and EMFILE, and the file is unchanged. */
int ls_sim_fd_open(ls_sim_file *file, const ls_sim_kind *kind, bool waits);
ls_sim_file *ls_sim_file_of(int fd, const ls_sim_kind *kind); /* NULL: not of this kind (NULL: of any); errno is set */
bool ls_sim_fd_is(int fd);

/* The state of the file has changed: `events` of EPOLL* may hold now. Wakes those who wait for the file. */
void ls_sim_changed(ls_sim_file *file, unsigned events);

/* ---- what others answer ----------------------------------------------------------------------------------------- */

/* The image of the disk: `memory` that the processes of all lives have at this address, zeros in life 1, of which few
 * pages are used. In a further life the files are as a crash has left them, drawn from the seed. Without this call the
 * disk ends with the process. */
extern const size_t ls_sim_disk_bytes;
void ls_sim_disk_begin(void *memory, unsigned life);
/* Call fn at the disk's change of this number, from now: a write, a name, the start or the end of an fsync. 0: never. */
void ls_sim_disk_crash_after(uint64_t changes, void (*fn)(void));

/* The function of this name in the C library. */
#define LS_SIM_REAL(name) ((__typeof__(name) *)ls_sim_real(#name))
void *ls_sim_real(const char *name);
long ls_sim_syscall(long number, long a, long b, long c, long d, long e, long f); /* -errno */
long ls_sim_result(long result); /* of ls_sim_syscall: errno is set, as the C library does */
int ls_sim_failed(int error);    /* -1, and errno */

#endif
