/* process_object.h - the processes of ls.process, of all states of a server. */
#ifndef LS_SCRIPT_PROCESS_H
#define LS_SCRIPT_PROCESS_H

#include "script/core/runtime.h"

/* The server ends with tasks that have not ended: kill their processes. Any thread. */
void ls_processes_kill(const ls_runtime *runtime);

#endif
