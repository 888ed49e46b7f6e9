/* invariant.h - the equations at the tops of files, as code that debug and sanitizer builds run.
 *
 * A module has a function `..._check` that evaluates its equations, and calls it with LS_INVARIANT where they hold
 * again: at the end of an operation, before the unlock. Other builds compile the condition and do not evaluate it. */
#ifndef LS_BASE_INVARIANT_H
#define LS_BASE_INVARIANT_H

#include <assert.h>

#ifdef LS_RUN_INVARIANTS
#define LS_INVARIANT(condition) assert(condition)
#else
#define LS_INVARIANT(condition) ((void)(0 && (condition)))
#endif

#endif
