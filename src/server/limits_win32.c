/* limits_win32.c - see limits.h. A process may have 16 million handles: memory ends before. */
#include "server/limits.h"

uint32_t ls_descriptors_raise(uint32_t wanted)
{
    return wanted;
}
