/* console_posix.c - see rawsock.h. */
#include "net/rawsock.h"

void ls_console_raw(ls_fd fd)
{
    (void)
        fd; /* a terminal's lines stay with the terminal until they are read, and whether it makes lines is the user's (stty) */
}
