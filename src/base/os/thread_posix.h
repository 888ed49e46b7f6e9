/* thread_posix.h - the POSIX types of thread.h. */
#ifndef LS_BASE_THREAD_POSIX_H
#define LS_BASE_THREAD_POSIX_H

#include <pthread.h>

typedef pthread_mutex_t ls_mutex;
#define LS_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER /* of a static object, in place of ls_mutex_open */
typedef pthread_cond_t ls_cond;
typedef pthread_t ls_thread;

#endif
