/* thread_win32.c - thread.h on slim reader/writer locks, condition variables and CRT threads. */
#include <windows.h>

#include <assert.h>
#include <process.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io/log.h"
#include "base/os/thread.h"

/* As large as on POSIX, for the same reason. Only reserved: pages are committed when they are touched. */
enum { STACK_BYTES = 1024 * 1024 };

enum { NAME_BYTES = 16 };

static_assert(sizeof(SRWLOCK) == sizeof(ls_mutex), "an ls_mutex is an SRWLOCK");
static_assert(sizeof(CONDITION_VARIABLE) == sizeof(ls_cond), "an ls_cond is a CONDITION_VARIABLE");
static_assert(sizeof(HANDLE) == sizeof(ls_thread), "an ls_thread is a HANDLE");

static SRWLOCK *srw(ls_mutex *mutex)
{
    return (SRWLOCK *)(void *)&mutex->srw;
}

static CONDITION_VARIABLE *variable(ls_cond *cond)
{
    return (CONDITION_VARIABLE *)(void *)&cond->condition;
}

void ls_mutex_open(ls_mutex *mutex)
{
    InitializeSRWLock(srw(mutex));
}

void ls_mutex_close(ls_mutex *mutex)
{
    assert(mutex->srw == NULL); /* not locked */
}

void ls_mutex_lock(ls_mutex *mutex)
{
    AcquireSRWLockExclusive(srw(mutex));
}

bool ls_mutex_try_lock(ls_mutex *mutex)
{
    return TryAcquireSRWLockExclusive(srw(mutex));
}

void ls_mutex_unlock(ls_mutex *mutex)
{
    ReleaseSRWLockExclusive(srw(mutex));
}

void ls_cond_open(ls_cond *cond)
{
    InitializeConditionVariable(variable(cond));
}

void ls_cond_close(ls_cond *cond)
{
    (void)cond; /* owns no system resource */
}

void ls_cond_wait(ls_cond *cond, ls_mutex *mutex)
{
    (void)SleepConditionVariableSRW(variable(cond), srw(mutex), INFINITE, 0);
}

bool ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms)
{
    if (SleepConditionVariableSRW(variable(cond), srw(mutex), ms, 0)) return true;
    assert(GetLastError() == ERROR_TIMEOUT);
    return false;
}

void ls_cond_signal(ls_cond *cond)
{
    WakeConditionVariable(variable(cond));
}

void ls_cond_broadcast(ls_cond *cond)
{
    WakeAllConditionVariable(variable(cond));
}

typedef struct start {
    ls_thread_fn *fn;
    void *arg;
    const ls_log_target *log;
    wchar_t name[NAME_BYTES];
} start;

typedef HRESULT WINAPI set_description_fn(HANDLE thread, PCWSTR description);

/* The name is for debuggers only. SetThreadDescription exists since Windows 10 1607. */
static void set_name(const wchar_t *name)
{
    const FARPROC found = GetProcAddress(GetModuleHandleW(L"kernel32"), "SetThreadDescription");
    set_description_fn *set_description;
    static_assert(sizeof found == sizeof set_description, "one size of function pointers");
    memcpy(&set_description, &found, sizeof set_description);
    if (set_description != NULL) (void)set_description(GetCurrentThread(), name);
}

static unsigned __stdcall run(void *arg)
{
    const start s = *(start *)arg;
    free(arg);
    (void)ls_log_use(s.log);
    set_name(s.name);
    s.fn(s.arg);
    return 0;
}

int ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    start *s = malloc(sizeof *s);
    if (s == NULL) return LS_ENOMEM;
    s->fn = fn;
    s->arg = arg;
    (void)ls_log_use(s->log = ls_log_use(NULL));
    size_t n = 0;
    for (; n < NAME_BYTES - 1 && name[n] != '\0'; n++) s->name[n] = (wchar_t)(unsigned char)name[n];
    s->name[n] = L'\0';
    const uintptr_t handle = _beginthreadex(NULL, STACK_BYTES, run, s, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (handle == 0) {
        free(s);
        return LS_ENOMEM; /* too many threads, or no memory for a stack */
    }
    *thread = (HANDLE)handle;
    return LS_OK;
}

int ls_thread_start_parent(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    return ls_thread_start(thread, name, fn, arg);
}

void ls_thread_join(ls_thread *thread)
{
    const DWORD waited = WaitForSingleObject(*thread, INFINITE);
    assert(waited == WAIT_OBJECT_0);
    (void)waited;
    (void)CloseHandle(*thread);
}

bool ls_thread_try_join(ls_thread *thread)
{
    if (WaitForSingleObject(*thread, 0) != WAIT_OBJECT_0) return false;
    (void)CloseHandle(*thread);
    return true;
}

uint32_t ls_thread_id(void)
{
    return GetCurrentThreadId();
}

bool ls_thread_set_low(uint32_t id, bool low)
{
    const HANDLE thread = OpenThread(THREAD_SET_LIMITED_INFORMATION, FALSE, id);
    if (thread == NULL) return false;
    const bool set = SetThreadPriority(thread, low ? THREAD_PRIORITY_BELOW_NORMAL : THREAD_PRIORITY_NORMAL) != 0;
    (void)CloseHandle(thread);
    return set;
}

void ls_thread_set_brief(void)
{
    (void)SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_HIGHEST);
}

void ls_thread_detach(ls_thread *thread)
{
    (void)CloseHandle(*thread);
}

void ls_thread_barrier(void)
{
    FlushProcessWriteBuffers();
}

unsigned ls_cpu_count(void)
{
    DWORD_PTR ours = 0, systems = 0;
    unsigned count = 0;
    const bool known = GetProcessAffinityMask(GetCurrentProcess(), &ours, &systems);
    /* More than 64 processors form groups. From Windows 11 and Server 2022 on a process spans all of them; the mask is
     * that of its first group, or 0. A mask that was not set covers its group: then all processors count. Before, a
     * process stayed in one group, and threads in excess do no harm. */
    if (known && (ours != systems || GetActiveProcessorGroupCount() == 1))
        for (; ours != 0; ours &= ours - 1) count++;
    if (count > 0) return count;
    const DWORD all = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    return all > 0 ? (unsigned)all : 1;
}

uint64_t ls_thread_wanted_ns(void)
{
    FILETIME created, ended, kernel, user;
    if (!GetThreadTimes(GetCurrentThread(), &created, &ended, &kernel, &user)) return 0;
    const uint64_t in_kernel = (uint64_t)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime;
    const uint64_t in_user = (uint64_t)user.dwHighDateTime << 32 | user.dwLowDateTime;
    return (in_kernel + in_user) * 100;
}
