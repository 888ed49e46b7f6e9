/* rlimit_win32.c - see rlimit.h. A process may have 2^24 handles (Mark Russinovich, "Pushing the Limits of Windows:
 * Handles"); memory runs out earlier, and there is no limit to raise. */
#include "base/os/rlimit.h"

enum { HANDLES_MAX = 1 << 24 };

uint32_t ls_descriptors_raise(uint32_t wanted)
{
    return HANDLES_MAX;
}
