/* json.h - the modules cjson and cjson.safe: lua-cjson with our patches (third_party/README.md). */
#ifndef LS_SCRIPT_JSON_H
#define LS_SCRIPT_JSON_H

#include <lua.h>

int ls_cjson_open(lua_State *L);
int ls_cjson_safe_open(lua_State *L);

#endif
