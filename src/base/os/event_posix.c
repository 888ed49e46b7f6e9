/* event_posix.c - see event.h. The end of a pipe whose other end is closed is readable. */
#define _GNU_SOURCE
#include "base/os/event.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/err.h"

int ls_event_open(ls_event *event)
{
    return pipe2(event->ends, O_CLOEXEC) == 0 ? LS_OK : ls_err_from_errno(errno);
}

int ls_event_fd(const ls_event *event)
{
    return event->ends[0];
}

void ls_event_set(ls_event *event)
{
    (void)close(event->ends[1]);
    event->ends[1] = -1;
}

void ls_event_close(ls_event *event)
{
    if (event->ends[1] >= 0) (void)close(event->ends[1]);
    (void)close(event->ends[0]);
}
