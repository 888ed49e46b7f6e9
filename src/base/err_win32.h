/* err_win32.h - what the system's own error numbers mean in the table of err.h. For *_win32.c only. */
#ifndef LS_BASE_ERR_WIN32_H
#define LS_BASE_ERR_WIN32_H

#include <stdint.h>

#include "base/err.h"

/* The code for a number of GetLastError or WSAGetLastError, which do not overlap; LS_ESYS where the table has none. */
int ls_err_from_win32(uint32_t system_error);

/* The code for the status that a completed operation left in its OVERLAPPED (Internal, an NTSTATUS). */
int ls_err_from_status(uint32_t status);

#endif
