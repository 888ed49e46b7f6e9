/* json.h - the modules cjson and cjson.safe: lua-cjson with our patches (third_party/README.md). */
#ifndef LS_SCRIPT_JSON_H
#define LS_SCRIPT_JSON_H

#include <stdbool.h>

#include <lua.h>

#include "base/buf.h"
#include "script/bind/modules.h"
#include "script/core/state.h"

int ls_cjson_open(lua_State *L);
int ls_cjson_safe_open(lua_State *L);
/* Add decode_utf8, encode_utf8 and encode_sorted, with the members of objects in the order of their names, to the module cjson
 * on top of the stack: its functions, which take strings with any bytes, for texts that must be UTF-8 (RFC 8259 section 8.1). */
void ls_json_add_utf8(lua_State *L);
/* A Lua function: (value) -> the buffer of the encoder, a strbuf_t of cjson_buffer.h, which has the text until the
 * state encodes again. Its upvalue is that of cjson.encode. */
int ls_cjson_encode_body(lua_State *L);

typedef struct ls_json { /* of a state: registry references */
    int encode_ref;      /* ls_cjson_encode_body */
    int decode_ref;      /* cjson.decode_utf8: cjson.decode of texts in UTF-8 */
} ls_json;

static inline const ls_json *ls_json_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_json);
}

/* Encode the value at the absolute `index`. A text shorter than LS_STRING_SHARED_MIN stays in the buffer of the
 * encoder: true, and *text is valid until the state encodes again; the value is unchanged. A longer text replaces the
 * value: false. Raises. */
bool ls_json_encode(lua_State *L, int index, ls_slice *text);
/* The same, in the function `call`, such as "ls.publish", which begins the message of an error. */
bool ls_json_encode_in(lua_State *L, int index, const char *call, ls_slice *text);

#endif
