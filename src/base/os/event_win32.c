/* event_win32.c - see event.h: the loops of Windows wait for handles and messages, not for descriptors. */
#include "base/err.h"
#include "base/os/event.h"

int ls_event_open(ls_event *event)
{
    return LS_OK;
}

int ls_event_fd(const ls_event *event)
{
    return LS_ENOTSUP;
}

void ls_event_set(ls_event *event) {}

void ls_event_close(ls_event *event) {}
