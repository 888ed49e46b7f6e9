/* access.h - the access logs of the sites of a server. */
#ifndef LS_SCRIPT_ACCESS_H
#define LS_SCRIPT_ACCESS_H

#include "script/core/runtime.h"

/* Have the files of all access logs opened again. Any thread. */
void ls_access_reopen(const ls_runtime *runtime);

#endif
