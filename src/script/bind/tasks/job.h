/* job.h - functions of ls.on as tasks of their own. */
#ifndef LS_SCRIPT_JOB_H
#define LS_SCRIPT_JOB_H

#include "script/core/state.h"

/* Run the registry's function `ref` in a new task. An error of it is logged with `what`, a static text such as
 * "in a timer". No task runs at the call. */
void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, enum ls_scope scope, const char *what);

#endif
