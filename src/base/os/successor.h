/* successor.h - the process that replaces this one: the same command line, run again, with sockets of this process and
 * a channel between both. Messages are texts of at most LS_SUCCESSOR_TEXT_BYTES; server/upgrade.h says which.
 *
 * The new process gets the sockets as descriptors from 3 on, with LISTEN_FDS and LISTEN_FDNAMES, as from systemd
 * (net/sock/inherited.h), the channel and the memory after them, with LUASERVE_UPGRADE, and what systemd has told this process
 * (sd_notify.h). successor_posix.c implements it; on Windows ls_successor_start returns LS_ENOTSUP. */
#ifndef LS_BASE_SUCCESSOR_H
#define LS_BASE_SUCCESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LS_SUCCESSOR_TEXT_BYTES = 1100 };

typedef struct ls_successor {
    int pid;
    int channel; /* -1: closed */
    int memory;  /* a file without a name, which both processes have; -1: closed */
} ls_successor;

/* Start it. names: those of the sockets, separated by colons. LS_OK, or an error with the reason in `why`. */
int ls_successor_start(const intptr_t *sockets, unsigned count, const char *names, ls_successor *out, char *why,
                       size_t why_bytes);

/* Give it what this process is: the main process of the service, or of process 1 of a container. With `back` that is
 * this process again. */
void ls_successor_is_main(const ls_successor *s, bool back);

/* End it unless it has ended, and wait for it. Describes how it has ended: "exit status 1". */
void ls_successor_end(ls_successor *s, char *how, size_t how_bytes);
void ls_successor_leave(ls_successor *s); /* close channel and memory; it continues */

/* Both sides: open the memory, from its begin, to write ("w") or to read it ("r"), once. NULL: without memory. */
FILE *ls_successor_memory(ls_successor *s, const char *mode);

/* The side of the new process: whether it replaces another one. Takes the variable out of the environment. Once, while
 * no other thread reads the environment. *out is the channel. */
bool ls_predecessor_open(ls_successor *out);

/* Both sides. Receive the next message within `ms`: its bytes, 0: the other process has closed the channel or ended;
 * LS_ETIMEDOUT. */
int ls_successor_receive(const ls_successor *s, char text[LS_SUCCESSOR_TEXT_BYTES], unsigned ms);
void ls_successor_send(const ls_successor *s, const char *text);

#endif
