/* json.h - the modules cjson and cjson.safe: lua-cjson with our patches (third_party/README.md). */
#ifndef LS_SCRIPT_JSON_H
#define LS_SCRIPT_JSON_H

#include <lua.h>

#include "script/bind/modules.h"
#include "script/core/state.h"

int ls_cjson_open(lua_State *L);
int ls_cjson_safe_open(lua_State *L);

/* A Lua function: (value) -> text | address, length. Its upvalues are that of cjson.encode and a length. A shorter text
 * is not made a string: it stays in the buffer of the encoder, valid until the state encodes again. */
int ls_cjson_encode_body(lua_State *L);

typedef struct ls_json { /* of a state: registry references */
    int encode_ref;      /* ls_cjson_encode_body with LS_STRING_SHARED_MIN */
    int decode_ref;      /* cjson.decode */
} ls_json;

static inline const ls_json *ls_json_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_json);
}

#endif
