/* rlimit.h - limits of the process set by the system. rlimit_posix.c or rlimit_win32.c implements it. */
#ifndef LS_BASE_RLIMIT_H
#define LS_BASE_RLIMIT_H

#include <stdint.h>

/* Raise the limit of open descriptors to `wanted` if possible; returns the limit now in force. */
uint32_t ls_descriptors_raise(uint32_t wanted);

#endif
