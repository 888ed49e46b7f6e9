/* keys_posix.c - see plain.h. */
#include "net/plain.h"

void ls_plain_keys(ls_fd fd)
{
    (void)
        fd; /* a terminal's lines stay with the terminal until they are read, and whether it makes lines is the user's (stty) */
}
