/* thread_win32.h - the Windows types of thread.h, without <windows.h>, which defines too many names to include
 * everywhere. Static assertions in thread_win32.c compare the sizes with the system's types. */
#ifndef LS_BASE_THREAD_WIN32_H
#define LS_BASE_THREAD_WIN32_H

typedef struct ls_mutex {
    void *srw; /* an SRWLOCK */
} ls_mutex;
/* SRWLOCK_INIT: of a static object, in place of ls_mutex_open. */
/* clang-format off */
#define LS_MUTEX_INIT {0}
/* clang-format on */

typedef struct ls_cond {
    void *condition; /* a CONDITION_VARIABLE */
} ls_cond;

typedef void *ls_thread; /* a HANDLE */

#endif
