/* line_log.h - a file of lines that many threads fill, such as an access log, and a thread of its own writes.
 *
 *     a thread --> its ring --\
 *     a thread --> its ring ---+--> batch --> file, standard output, syslog
 *
 * A thread that puts a line copies it into its ring: it takes no lock and never waits. The writer empties the rings some
 * milliseconds later, at once when one is a quarter full. While the file takes no more (a full disk, a pipe whose reader has
 * stopped) the rings fill; further lines are dropped and counted, and the log says so once, with their number at the
 * end. A line is written whole or not at all.
 *
 * Lines of one thread keep their order. Those of several threads have the order in which the writer finds them. */
#ifndef LS_BASE_LINE_LOG_H
#define LS_BASE_LINE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_LINE_LOG_RING_BYTES = 1 << 20, LS_LINE_LOG_LINE_MAX = 1 << 15 };

typedef struct ls_line_log ls_line_log;

/* Open "stdout", "syslog" or the file of this name, to append to it; `threads`: the number of rings. LS_OK; LS_ENOTSUP:
 * no syslog on this system; or the error of the file. */
int ls_line_log_open(const char *name, unsigned threads, ls_line_log **out);

/* Put a line, with its line break, at most LS_LINE_LOG_LINE_MAX bytes. One thread at a time has this number. */
void ls_line_log_put(ls_line_log *log, unsigned thread, const char *line, size_t len);

/* Have the file opened again before the next write, because it was moved. Any thread. */
void ls_line_log_reopen(ls_line_log *log);
/* Lines that were dropped since the start. Any thread. */
uint64_t ls_line_log_dropped(const ls_line_log *log);
/* Nothing puts lines any more. Writes those that are left, for at most `ms`. */
void ls_line_log_close(ls_line_log *log, uint32_t ms);

/* ---- for line_log.c: line_log_posix.c or line_log_win32.c implements it ------------------------------------------ */

typedef struct ls_line_file {
    const char *name; /* of the owner */
    int fd;           /* -1: not open */
    void *stream;     /* where there are no descriptors */
    bool is_syslog;
} ls_line_file;

int ls_line_file_open(ls_line_file *file); /* LS_OK, or an error that leaves file->fd */
void ls_line_file_close(ls_line_file *file);
/* Write a part of the whole lines, at least one byte. The number of bytes, or an error: LS_EAGAIN, LS_ENOSPC ... */
int64_t ls_line_file_write(ls_line_file *file, const char *lines, size_t len);

#endif
