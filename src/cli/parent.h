/* parent.h - the pipes of a process of `luaserve test` to the one that has started it: standard input and output,
 * which the process keeps for itself, so that what its site prints goes to standard error. parent_posix.c,
 * parent_win32.c. */
#ifndef LS_CLI_PARENT_H
#define LS_CLI_PARENT_H

#include <stdio.h>

/* Once, before any other thread: returns the stream of the reports to the parent. From now on, `ended()` is called on
 * a thread of its own when the pipe from the parent is closed. NULL: out of memory or descriptors. */
FILE *ls_parent_open(void (*ended)(void));

/* The absolute path of this program: 0; -1: it is unknown, or longer than `bytes`. */
int ls_parent_program(char *path, size_t bytes);

#endif
