/* rlimit.h - what the system allows this process. rlimit_posix.c or rlimit_win32.c supplies it. */
#ifndef LS_BASE_RLIMIT_H
#define LS_BASE_RLIMIT_H

#include <stdint.h>

/* Ask for `wanted` descriptors; returns how many the process may have now. */
uint32_t ls_descriptors_raise(uint32_t wanted);

#endif
