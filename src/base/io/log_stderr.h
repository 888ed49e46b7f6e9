/* log_stderr.h - the default sink of log.c: stderr, one line at a time. log_posix.c or log_win32.c implements it. */
#ifndef LS_BASE_LOG_STDERR_H
#define LS_BASE_LOG_STDERR_H

#include "base/io/log.h"

ls_log_sink ls_log_stderr;

#endif
