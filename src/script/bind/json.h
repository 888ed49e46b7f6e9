/* json.h - the modules cjson and cjson.safe: lua-cjson with our patches (third_party/README.md). */
#ifndef LS_SCRIPT_JSON_H
#define LS_SCRIPT_JSON_H

#include <lua.h>

int ls_cjson_open(lua_State *L);
int ls_cjson_safe_open(lua_State *L);

/* A Lua function: (value) -> text | address, length. Its upvalues are that of cjson.encode and a length. A shorter text
 * is not made a string: it stays in the buffer of the encoder, valid until the state encodes again. */
int ls_cjson_encode_body(lua_State *L);

#endif
