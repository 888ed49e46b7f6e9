/* interrupt.h - ends a computation of Lua from outside of its state: Ctrl-C of `luaserve repl`, the timeout of a test.
 *
 * core.interrupt() makes an object with a number and a flag. core.interruptible(object, fn, ...) calls fn with a hook
 * that looks at the flag every few hundred instructions, so it costs only the code that runs inside of it. Any thread
 * sets the flag by the number of the object: the server does so for a message of the control socket. */
#ifndef LS_SCRIPT_INTERRUPT_H
#define LS_SCRIPT_INTERRUPT_H

#include <stdint.h>

#include <lua.h>

#include "base/list.h"
#include "base/os/thread.h"

/* The objects of all states of a server. */
typedef struct ls_interrupts {
    ls_mutex mutex;
    ls_node list;  /* guarded by the mutex */
    uint64_t last; /* number of the last object; guarded by the mutex */
} ls_interrupts;

int ls_interrupts_open(ls_interrupts *all);   /* LS_OK or an error of ls_mutex_open */
void ls_interrupts_close(ls_interrupts *all); /* all states are closed */

/* Set the flag of the object with this number; 0: of every object. An unknown number has no effect. Any thread. */
void ls_interrupts_set(ls_interrupts *all, uint64_t number);

#endif
