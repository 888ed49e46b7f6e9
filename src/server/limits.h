/* limits.h - what the system allows this process. limits_posix.c or limits_win32.c supplies it. */
#ifndef LS_SERVER_LIMITS_H
#define LS_SERVER_LIMITS_H

#include <stdint.h>

/* Ask for `wanted` descriptors; returns how many the process may have now. */
uint32_t ls_descriptors_raise(uint32_t wanted);

#endif
