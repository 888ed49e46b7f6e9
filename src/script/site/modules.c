/* modules.c - see bind/modules.h: the table. */
#include "script/bind/modules.h"

#define MODULE(name) [LS_SLOT_##name] = &ls_##name##_module,
const ls_module *const ls_modules[LS_SLOTS] = {LS_MODULES(MODULE)};
