/* fcntl.h - see posix_win32.h. */
#pragma GCC system_header
#include_next <fcntl.h>

#include "win32/posix_win32.h"
