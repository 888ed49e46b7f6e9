/* console_posix.c - see rawsock.h. */
#include "net/sock/rawsock.h"

void ls_console_raw(ls_fd fd)
{
    (void)fd; /* the tty driver keeps lines until they are read; its mode belongs to the user (stty) */
}
