/* log.h - one line per event to one sink (stderr unless set). Lines never interleave; any thread may log. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <stdarg.h>
#include <stddef.h>

#include "base/compiler.h"

enum ls_log_level { LS_LOG_DEBUG, LS_LOG_INFO, LS_LOG_WARN, LS_LOG_ERROR, LS_LOG_OFF };

/* Takes a whole line without its newline; called with no lock of the log held but the sink's own. */
typedef void ls_log_sink(void *user, enum ls_log_level level, const char *line, size_t len);

/* NULL: stderr as "2026-01-31T12:00:00.123Z level text". Set before threads start. */
void ls_log_set_sink(ls_log_sink *sink, void *user);
void ls_log_set_level(enum ls_log_level level); /* lines below are dropped; default INFO */
enum ls_log_level ls_log_level_get(void);
int ls_log_level_of(const char *name, enum ls_log_level *out); /* "debug".."off"; LS_EINVAL otherwise */
const char *ls_log_level_name(enum ls_log_level level);

/* printf(3) formats. A line break inside becomes "\n\t" so that one event stays recognisable, other control characters
 * but the tab become \xNN, line breaks at the end go; at most 16 KiB, the rest is cut and marked. */
LS_PRINTF(2, 3) void ls_log(enum ls_log_level level, const char *format, ...);
void ls_log_text(enum ls_log_level level, const char *text, size_t len); /* no format */

#endif
