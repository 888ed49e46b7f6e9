/* err_win32.h - maps the error numbers of Windows to the codes of err.h. For *_win32.c only. */
#ifndef LS_BASE_ERR_WIN32_H
#define LS_BASE_ERR_WIN32_H

#include <stdint.h>

#include "base/err.h"

/* The code for a number of GetLastError or WSAGetLastError, whose ranges do not overlap; LS_ESYS for a number outside
 * the table. */
int ls_err_from_win32(uint32_t system_error);

/* The code for the status of a completed operation (Internal of its OVERLAPPED, an NTSTATUS). */
int ls_err_from_status(uint32_t status);

#endif
