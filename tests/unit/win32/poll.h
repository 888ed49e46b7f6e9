/* poll.h - see posix_win32.h. */
#include "win32/posix_win32.h"
