/* log.h - one line per event, written to one sink (default stderr). Lines never interleave; any thread may log. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>

#include "base/compiler.h"
#include "base/os/thread.h"

enum ls_log_level { LS_LOG_DEBUG, LS_LOG_INFO, LS_LOG_WARN, LS_LOG_ERROR, LS_LOG_OFF };

/* Receives one line without its newline; `level` is an enum ls_log_level. ls_log holds no lock during the call; a sink
 * takes its own. The type is that of ls_server_log_to() in luaserve.h. */
typedef void ls_log_sink(int level, const char *line, size_t len, void *user);

/* Of the process. NULL: stderr as "2026-01-31T12:00:00.123Z level text". Call before threads start. */
void ls_log_set_sink(ls_log_sink *sink, void *user);
void ls_log_set_level(enum ls_log_level level); /* drops lines below `level`; default INFO */
enum ls_log_level ls_log_level_get(void);       /* of the calling thread */

/* The last lines of the level "error". */
enum { LS_LOG_KEPT = 16, LS_LOG_KEPT_BYTES = 2000 };
typedef struct ls_log_kept {
    ls_mutex mutex; /* guards the rest, which is zero at first */
    uint32_t count; /* so far: the number of the youngest */
    struct {
        int64_t at_us; /* wall time */
        size_t len;
        char text[LS_LOG_KEPT_BYTES]; /* the first bytes of the line */
    } at[LS_LOG_KEPT]; /* that of number n at n % LS_LOG_KEPT */
} ls_log_kept;

/* Where the lines of a thread go instead. */
typedef struct ls_log_target {
    ls_log_sink *sink; /* NULL: that of the process */
    void *user;
    int level; /* -1: that of the process */
    ls_log_kept *kept; /* NULL: none */
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

/* Whether lines name the network of a client in place of its address. Of the process; false at first. */
void ls_log_mask_addresses(bool mask);
bool ls_log_masks_addresses(void);

/* Lines of the default sink are objects of JSON: {"time":, "level":, "request_id":, "message":}. Of the process; false at
 * first. */
void ls_log_set_json(bool json);
bool ls_log_is_json(void);
/* The next line of this thread is about the request with this id, at most LS_LOG_ID_BYTES_MAX bytes, if it names it; with
 * `all` in any case. */
enum { LS_LOG_ID_BYTES_MAX = 64 };
void ls_log_about(const char *id, size_t len, bool all);

/* Whether a line about this place, "site.lua:12", is due: the last one was more than a minute ago. */
bool ls_log_is_due(const char *place);

#endif
