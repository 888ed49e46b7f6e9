/* interrupt.h - ends a computation of Lua from outside of its state: Ctrl-C of `luaserve repl`, the timeout of a test.
 *
 * core.interrupt() makes an object with a number and a flag. core.interruptible(object, fn, ...) calls fn with a hook
 * that looks at the flag every few hundred instructions, so it costs only the code that runs inside of it. Any thread
 * sets the flag by the number of the object: the server does so for a message of the control socket. */
#ifndef LS_SCRIPT_INTERRUPT_H
#define LS_SCRIPT_INTERRUPT_H

#include <stdint.h>

#include "script/core/runtime.h"

/* Set the flag of the object with this number; 0: of every object. An unknown number has no effect. Any thread. */
void ls_interrupts_set(const ls_runtime *runtime, uint64_t number);

#endif
