/* cpu_limit_win32.c - cpu_limit.h with SuspendThread: the watchdog sets the hook while the thread is suspended.
 *
 * The watchdog does here what the signal handler does on POSIX. The thread may be suspended at any instruction;
 * lua_sethook allows that, because it is designed to be called from a signal handler. GetThreadContext returns only
 * after the thread has really stopped. Until ResumeThread the watchdog calls no function that takes a lock, the
 * allocator's included: the suspended thread may hold it.
 *
 * GetThreadTimes advances in steps of 10 to 16 ms, which is precise enough for a limit in seconds;
 * ls_cpu_watch_since_mark() accounts for shorter runs. (QueryThreadCycleTime counts cycles of an unknown rate, and
 * Wine 8 lacks it.) */
#include "script/core/cpu_limit.h"

#include <windows.h>

#include "base/err.h"

static _Atomic(lua_Hook) raise_hook; /* always the same function */

int ls_cpu_limit_install(lua_Hook hook)
{
    atomic_store(&raise_hook, hook);
    return LS_OK;
}

void ls_cpu_limit_uninstall(void)
{
    /* nothing of the process was changed */
}

void ls_cpu_limit_join(ls_cpu_watch *cpu)
{
    const HANDLE self = GetCurrentProcess();
    HANDLE thread = NULL;
    (void)DuplicateHandle(self, GetCurrentThread(), self, &thread, 0, FALSE, DUPLICATE_SAME_ACCESS);
    cpu->thread = thread; /* NULL: out of memory; the limit does not apply to this thread then */
    cpu->joined = true;
}

void ls_cpu_limit_leave(ls_cpu_watch *cpu)
{
    if (cpu->joined && cpu->thread != NULL) (void)CloseHandle(cpu->thread);
    cpu->joined = false;
}

uint64_t ls_cpu_limit_cpu_ns(const ls_cpu_watch *cpu)
{
    FILETIME created, ended, kernel, user;
    if (!GetThreadTimes(cpu->thread, &created, &ended, &kernel, &user)) return 0;
    const uint64_t in_kernel = (uint64_t)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime;
    const uint64_t in_user = (uint64_t)user.dwHighDateTime << 32 | user.dwLowDateTime;
    return (in_kernel + in_user) * 100;
}

uint64_t ls_cpu_limit_cpu_step_ns(void)
{
    return 16 * 1000000; /* the longest clock interrupt interval is 15.625 ms */
}

void ls_cpu_limit_send(ls_cpu_watch *cpu)
{
    CONTEXT context = {.ContextFlags = CONTEXT_CONTROL};
    if (SuspendThread(cpu->thread) == (DWORD)-1) return;
    if (GetThreadContext(cpu->thread, &context)) {
        const uint64_t run = atomic_load(&cpu->run);
        lua_State *L = atomic_load(&cpu->running);
        if (run != 0 && L != NULL && run == atomic_load(&cpu->end_run)) {
            atomic_store(&cpu->exceeded, 1);
            lua_sethook(L, atomic_load(&raise_hook), LUA_MASKCOUNT, 1);
        } else if (run != 0 && L != NULL && run == atomic_load(&cpu->look_run)) {
            lua_sethook(L, atomic_load(&raise_hook), LUA_MASKCOUNT, 1);
        }
    }
    (void)ResumeThread(cpu->thread);
}
