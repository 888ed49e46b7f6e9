/* thread.h - threads, mutexes and condition variables; the header that selects the platform's types.
 * The creation of a thread returns its errors. Mutexes and condition variables need no memory of their own: none of the
 * C libraries and systems of luaserve can fail to open one. A failed lock or unlock is a programming error, and
 * asserted. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#ifdef _WIN32
#include "base/os/thread_win32.h"
#else
#include "base/os/thread_posix.h"
#endif

typedef void ls_thread_fn(void *arg);

void ls_mutex_open(ls_mutex *mutex);
void ls_mutex_close(ls_mutex *mutex);
void ls_mutex_lock(ls_mutex *mutex);
bool ls_mutex_try_lock(ls_mutex *mutex); /* false: a thread holds it */
void ls_mutex_unlock(ls_mutex *mutex);

void ls_cond_open(ls_cond *cond); /* waits on the monotonic clock */
void ls_cond_close(ls_cond *cond);
void ls_cond_wait(ls_cond *cond, ls_mutex *mutex);
bool ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms); /* false: timed out */
void ls_cond_signal(ls_cond *cond);
void ls_cond_broadcast(ls_cond *cond);

/* Start fn(arg); `name` (at most 15 characters) appears in debuggers. The thread logs as its creator does
 * (ls_log_use), and blocks all signals. LS_OK, LS_ENOMEM
 * or LS_ESYS. */
int ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);

/* The same for a thread that may start child processes, which inherit the mask of blocked signals: the thread keeps
 * the mask of its creator. */
int ls_thread_start_parent(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);
void ls_thread_join(ls_thread *thread);
bool ls_thread_try_join(ls_thread *thread); /* false: it runs; does not wait */
void ls_thread_detach(ls_thread *thread);   /* instead of the join; its stack stays mapped */

/* The system's number of the calling thread. */
uint32_t ls_thread_id(void);

/* Let a thread of the process run at a lower priority than the others, or at that of the process's main thread again.
 * false: the system does not allow it. Linux lets any process lower the priority of a thread; to raise it again needs
 * CAP_SYS_NICE or RLIMIT_NICE. */
bool ls_thread_set_low(uint32_t id, bool low);

/* The calling thread only runs for microseconds at a time: the system may start it early when it wakes. */
void ls_thread_set_brief(void);

/* A full memory barrier in every running thread of the process, so that the others need none between a store and a
 * load (membarrier(2), FlushProcessWriteBuffers). It takes some microseconds; where the system has no such call,
 * milliseconds. */
void ls_thread_barrier(void);

unsigned ls_cpu_count(void); /* processors this process may run on (its affinity mask); at least 1 */

/* CPU time in nanoseconds that the calling thread has used since its start, plus, where the system reports it, the
 * time it has waited in the run queue. Linux reports both in /proc/thread-self/schedstat if the kernel is built with
 * schedstats (sched-stats.rst in the kernel's documentation); elsewhere the result is the CPU time, on Windows in
 * steps of up to 16 ms. Opens a file: not for frequent calls. */
uint64_t ls_thread_wanted_ns(void);

#endif
