/* log_stderr.h - the default sink of log.c: stderr, one line at a time, with the time and the level in front. */
#ifndef LS_BASE_LOG_STDERR_H
#define LS_BASE_LOG_STDERR_H

#include "base/io/log.h"

ls_log_sink ls_log_stderr;

/* For log_stderr.c: log_posix.c or log_win32.c implements it. Write the line as entries of the journal of systemd, if
 * that is what standard error leads to; false: it does not. */
bool ls_log_journal(int level, const char *line, size_t len);

#endif
