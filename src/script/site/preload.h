/* preload.h - the modules in C for a Lua state without a site, such as that of a script of `luaserve stress`. */
#ifndef LS_SCRIPT_PRELOAD_H
#define LS_SCRIPT_PRELOAD_H

#include <lua.h>

/* `require` finds cjson, cjson.safe, and luaserve.core with its functions that need no state of a site. Raises. */
void ls_site_preload(lua_State *L);

#endif
