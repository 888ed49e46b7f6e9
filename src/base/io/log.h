/* log.h - one line per event, written to one sink (default stderr). Lines never interleave; any thread may log. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum ls_log_level { LS_LOG_DEBUG, LS_LOG_INFO, LS_LOG_WARN, LS_LOG_ERROR, LS_LOG_OFF };

/* Receives one line without its newline; `level` is an enum ls_log_level. ls_log holds no lock during the call; a sink
 * takes its own. The type is that of ls_server_log_to() in luaserve.h. */
typedef void ls_log_sink(int level, const char *line, size_t len, void *user);

/* Of the process. NULL: stderr as "2026-01-31T12:00:00.123Z level text". Call before threads start. */
void ls_log_set_sink(ls_log_sink *sink, void *user);
void ls_log_set_level(enum ls_log_level level); /* drops lines below `level`; default INFO */
enum ls_log_level ls_log_level_get(void);       /* of the calling thread */

/* Where the lines of a thread go instead. */
typedef struct ls_log_target {
    ls_log_sink *sink; /* NULL: that of the process */
    void *user;
    int level; /* -1: that of the process */
} ls_log_target;
/* From now on of the calling thread, and of the threads that it starts; NULL: the process. Returns the one before. */
const ls_log_target *ls_log_use(const ls_log_target *target);
int ls_log_level_of(const char *name, enum ls_log_level *out); /* "debug".."off"; LS_EINVAL otherwise */
const char *ls_log_level_name(enum ls_log_level level);

/* printf(3) formats. A line break inside the text becomes "\n\t" so that one event stays recognisable. The bytes of
 * other control characters except the tab (U+0000 to U+001F, U+007F to U+009F), of bidirectional controls and of
 * invalid UTF-8 become \xNN. Trailing line breaks are removed. A line longer than 16 KiB is truncated and marked. */
LS_PRINTF(2, 3) void ls_log(enum ls_log_level level, const char *format, ...);
void ls_log_text(enum ls_log_level level, const char *text, size_t len); /* no format */

/* Whether a line about this place, "site.lua:12", is due: the last one was more than a minute ago. */
bool ls_log_is_due(const char *place);

#endif
