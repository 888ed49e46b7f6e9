/* fields.c - see fields.h. */
#include "script/core/lua/fields.h"


void ls_field_set_number(void *member, size_t size, uint64_t value)
{
    switch (size) {
    case 1: *(uint8_t *)member = (uint8_t)value; break;
    case 2: *(uint16_t *)member = (uint16_t)value; break;
    case 4: *(uint32_t *)member = (uint32_t)value; break;
    default: *(uint64_t *)member = value; break;
    }
}

void ls_fields_read(lua_State *L, int index, const ls_field *fields, void *to)
{
    index = lua_absindex(L, index);
    for (const ls_field *field = fields; field->name != NULL; field++) {
        void *member = (char *)to + field->offset;
        if (lua_getfield(L, index, field->name) == LUA_TNIL) {
            lua_pop(L, 1);
            continue;
        }
        switch (field->type) {
        case LS_FIELD_BOOL: ls_field_set_number(member, field->size, (uint64_t)lua_toboolean(L, -1)); break;
        case LS_FIELD_NUMBER: ls_field_set_number(member, field->size, (uint64_t)lua_tointeger(L, -1)); break;
        case LS_FIELD_REAL: *(double *)member = lua_tonumber(L, -1); break;
        case LS_FIELD_TEXT: *(const char **)member = lua_tostring(L, -1); break;
        }
        lua_pop(L, 1);
    }
}
