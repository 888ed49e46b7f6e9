/* clock_win32.c - the clocks of clock.h. On current machines the performance counter continues through sleep and is
 * read without a system call, so the coarse clock uses it as well: GetTickCount64 has another origin and drifts. */
#include <windows.h>

#include <stdatomic.h>

#include "base/clock.h"

enum { HNS_PER_S = 10000000 };                                  /* 100 ns, the unit of a FILETIME */
static const uint64_t epoch_hns = UINT64_C(116444736000000000); /* 1970-01-01 as a FILETIME, which begins in 1601 */

static uint64_t ticks_per_s(void)
{
    static _Atomic uint64_t known; /* constant while the system runs: every thread stores the same value */
    uint64_t rate = atomic_load_explicit(&known, memory_order_relaxed);
    if (rate == 0) {
        LARGE_INTEGER frequency;
        (void)QueryPerformanceFrequency(&frequency); /* cannot fail since Windows XP, nor can the counter */
        rate = (uint64_t)frequency.QuadPart;
        atomic_store_explicit(&known, rate, memory_order_relaxed);
    }
    return rate;
}

/* Counter ticks in units of 1/per_s, without overflow. */
static uint64_t now(uint64_t per_s)
{
    LARGE_INTEGER counter;
    const uint64_t rate = ticks_per_s();
    (void)QueryPerformanceCounter(&counter);
    const uint64_t ticks = (uint64_t)counter.QuadPart;
    return ticks / rate * per_s + ticks % rate * per_s / rate;
}

uint64_t ls_clock_ns(void)
{
    return now(1000000000);
}

uint64_t ls_clock_coarse_ms(void)
{
    return now(1000);
}

static int64_t since_epoch_hns(const FILETIME *time)
{
    return (int64_t)(((uint64_t)time->dwHighDateTime << 32 | time->dwLowDateTime) - epoch_hns);
}

int64_t ls_clock_wall_s(void)
{
    FILETIME time;
    GetSystemTimeAsFileTime(&time);
    return since_epoch_hns(&time) / HNS_PER_S;
}

int64_t ls_clock_wall_us(void)
{
    FILETIME time;
    GetSystemTimePreciseAsFileTime(&time);
    return since_epoch_hns(&time) / 10;
}

void ls_clock_sleep_ms(uint32_t ms)
{
    Sleep(ms);
}
