/* unistd.h - see posix_win32.h. */
#pragma GCC system_header
#include_next <unistd.h>

#include "win32/posix_win32.h"
