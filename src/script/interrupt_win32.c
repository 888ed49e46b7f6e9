/* interrupt_win32.c - interrupt.h by stopping the thread for a moment and setting the hook in its place.
 *
 * What a signal handler does on POSIX, on the thread itself, the watch does here while that thread stands still: it may
 * have stopped anywhere, which lua_sethook allows (it is made to be called from a signal handler). GetThreadContext waits
 * until it really stands. Nothing is called meanwhile that takes a lock, the allocator's included: the thread may hold it.
 *
 * GetThreadTimes advances in steps of 10 to 16 ms, which is good enough for a budget in seconds: ls_slot_since_mark()
 * accounts for runs that are shorter. (QueryThreadCycleTime counts cycles of an unknown rate, and Wine 8 lacks it.) */
#include "script/interrupt.h"

#include <windows.h>

#include "base/err.h"

static _Atomic(lua_Hook) raise_hook; /* always the same function */

int ls_interrupt_install(lua_Hook hook)
{
    atomic_store(&raise_hook, hook);
    return LS_OK;
}

void ls_interrupt_join(ls_slot *slot)
{
    const HANDLE self = GetCurrentProcess();
    HANDLE thread = NULL;
    (void)DuplicateHandle(self, GetCurrentThread(), self, &thread, 0, FALSE, DUPLICATE_SAME_ACCESS);
    slot->thread = thread; /* NULL: out of memory; then its runs are not watched */
    slot->joined = true;
}

void ls_interrupt_leave(ls_slot *slot)
{
    if (slot->joined && slot->thread != NULL) (void)CloseHandle(slot->thread);
    slot->joined = false;
}

uint64_t ls_interrupt_cpu_ns(const ls_slot *slot)
{
    FILETIME created, ended, kernel, user;
    if (!GetThreadTimes(slot->thread, &created, &ended, &kernel, &user)) return 0;
    const uint64_t in_kernel = (uint64_t)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime;
    const uint64_t in_user = (uint64_t)user.dwHighDateTime << 32 | user.dwLowDateTime;
    return (in_kernel + in_user) * 100;
}

uint64_t ls_interrupt_cpu_step_ns(void)
{
    return 16 * 1000000; /* the longest interval of the system's clock interrupt is 15.625 ms */
}

void ls_interrupt_send(ls_slot *slot)
{
    CONTEXT context = {.ContextFlags = CONTEXT_CONTROL};
    if (SuspendThread(slot->thread) == (DWORD)-1) return;
    if (GetThreadContext(slot->thread, &context)) {
        const uint64_t run = atomic_load(&slot->run);
        lua_State *L = atomic_load(&slot->running);
        if (run != 0 && L != NULL && run == atomic_load(&slot->end_run)) {
            atomic_store(&slot->over, 1);
            lua_sethook(L, atomic_load(&raise_hook), LUA_MASKCOUNT, 1);
        }
    }
    (void)ResumeThread(slot->thread);
}
