/* clock.c - see clock.h: the clock of a site. */
#include "base/clock.h"

#include <stdatomic.h>

static _Atomic uint64_t moved_ns;

uint64_t ls_clock_moved_ns(void)
{
    return atomic_load_explicit(&moved_ns, memory_order_relaxed);
}

void ls_clock_move(uint64_t ns)
{
    atomic_fetch_add_explicit(&moved_ns, ns, memory_order_relaxed);
}

const char ls_month_names[37] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* The calculation counts days from 0000-03-01, so that the leap day is the last day of a year. An era is the period of
 * the calendar: 400 years, 146,097 days. */
ls_date ls_clock_date(int64_t wall_s)
{
    const int64_t first = -62167219200, last = 253402300799;
    if (wall_s < first) wall_s = first;
    if (wall_s > last) wall_s = last;
    const int64_t since_1970 = wall_s / 86400 - (wall_s % 86400 < 0);
    const unsigned second = (unsigned)(wall_s - since_1970 * 86400);
    const int64_t days = since_1970 + 719468; /* from 0000-03-01 to 1970-01-01 */
    const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    const unsigned day_of_era = (unsigned)(days - era * 146097);
    const unsigned year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const unsigned march_month = (5 * day_of_year + 2) / 153; /* 153 days: five months of 31, 30, 31, 30, 31 days */
    const unsigned month = march_month < 10 ? march_month + 3 : march_month - 9;
    return (ls_date){.year = (unsigned)((int64_t)year_of_era + era * 400 + (month <= 2)),
                     .month = month,
                     .day = day_of_year - (153 * march_month + 2) / 5 + 1,
                     .hour = second / 3600,
                     .minute = second / 60 % 60,
                     .second = second % 60,
                     .weekday = (unsigned)(((since_1970 + 4) % 7 + 7) % 7)}; /* 1970-01-01 was a Thursday */
}
