/* thread.h - threads, mutexes and condition variables: the header that picks the platform's own.
 * Failure to create is returned; failure of lock or unlock is a programmer's error and asserted. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#ifdef _WIN32
#include "base/thread_win32.h"
#else
#include "base/thread_posix.h"
#endif

typedef void ls_thread_fn(void *arg);

int ls_mutex_open(ls_mutex *mutex);
void ls_mutex_close(ls_mutex *mutex);
void ls_mutex_lock(ls_mutex *mutex);
void ls_mutex_unlock(ls_mutex *mutex);

int ls_cond_open(ls_cond *cond); /* waits on the monotonic clock */
void ls_cond_close(ls_cond *cond);
void ls_cond_wait(ls_cond *cond, ls_mutex *mutex);
bool ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms); /* false: timed out */
void ls_cond_signal(ls_cond *cond);
void ls_cond_broadcast(ls_cond *cond);

/* Start fn(arg); `name` (at most 15 characters) shows in debuggers. Signals are blocked in it: the program's main
 * thread takes them. LS_OK, LS_ENOMEM or LS_ESYS. */
int ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);
void ls_thread_join(ls_thread *thread);

unsigned ls_cpu_count(void); /* processors this process may run on (its affinity mask); at least 1 */

/* Processor time in nanoseconds that the calling thread has had since it began and, where the system tells, has stood in
 * line for while others ran. Linux tells (/proc/thread-self/schedstat: sched-stats.rst in the kernel's documentation), when
 * it was built so; elsewhere it is the time it had, on Windows in ticks of up to 16 ms. For now and then: it opens a file. */
uint64_t ls_thread_wanted_ns(void);

#endif
