/* output.h - standard output and standard error, whose reader must not stop the server.
 *
 * A text is written by the caller while the file takes it without blocking. The rest, and what follows it, is queued,
 * and a thread writes it when the reader continues, or the disk has space again. It starts at the first text that is queued. A text that exceeds
 * the queue is dropped, and so are all after it until the queue is empty; then the log tells their number.
 *
 * Any thread. output.c has the queue; output_posix.c and output_win32.c write. */
#ifndef LS_BASE_OUTPUT_H
#define LS_BASE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum ls_output { LS_OUTPUT_STDOUT, LS_OUTPUT_STDERR, LS_OUTPUTS };

/* Write a text whole, or drop it whole. `wait`: return when it is written, however long that takes, and drop
 * nothing. */
void ls_output_write(enum ls_output to, const char *text, size_t len, bool wait);

/* The same for a text that need not be dropped, because its owner can keep it. false: earlier texts wait, and nothing was
 * written. */
bool ls_output_offer(enum ls_output to, const char *text, size_t len);

/* Whether texts for standard output wait, true at first. It becomes false for good when a server has listeners. */
bool ls_output_waits(void);
void ls_output_serve(void);

/* The stream of io.stdout: writes by ls_output_write. Where the C library has no such streams (Windows), and without
 * memory, it is stdout. */
FILE *ls_output_stdio(void);

/* Wait until the queues are empty, at most a second in the life of the process. */
void ls_output_flush(void);

/* For output.c: write as much of the text as the file takes within `ms`, 0: at once. Returns the number of bytes. The
 * bytes for a closed file count as written. */
size_t ls_output_put(enum ls_output to, const char *text, size_t len, uint32_t ms);

#endif
