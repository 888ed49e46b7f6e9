/* sd_notify_win32.c - see sd_notify.h: Windows has no such socket. */
#include "base/os/sd_notify.h"

void ls_sd_open(void)
{
}

void ls_sd_tell(const char *state, const char *format, ...)
{
}

void ls_sd_tell_reloading(void)
{
}

bool ls_sd_store(intptr_t fd, const char *name)
{
    return false;
}

void ls_sd_remove(const char *name)
{
}

void ls_sd_tell_main(long process)
{
}

unsigned ls_sd_variables(char *out[LS_SD_VARIABLES])
{
    return 0;
}

uint64_t ls_sd_watchdog_ms(void)
{
    return 0;
}

void ls_sd_feed(void)
{
}
