/* memory_posix.c - see memory.h. */
#define _GNU_SOURCE
#include "base/memory.h"

#include <malloc.h>

void ls_memory_trim(void)
{
    (void)malloc_trim(0);
}
