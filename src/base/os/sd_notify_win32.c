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
