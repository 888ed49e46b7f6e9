/* fields.h - reads the fields of a Lua table into the members of a C struct, by a description: {name, type, place}.
 *
 *     static const ls_field fields[] = {
 *         LS_FIELD(BOOL, plan, keepalive), LS_FIELD(NUMBER, plan, connections), LS_FIELD(TEXT, plan, script), {0}};
 *
 * Threads: those of the Lua state. */
#ifndef LS_SCRIPT_FIELDS_H
#define LS_SCRIPT_FIELDS_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ls_field_type {
    LS_FIELD_BOOL,   /* bool, or an integer that is 0 or 1 */
    LS_FIELD_NUMBER, /* an unsigned integer of 1, 2, 4 or 8 bytes */
    LS_FIELD_REAL,   /* double */
    LS_FIELD_TEXT    /* const char *, NULL for nil; its memory is that of the string in the Lua state */
} ls_field_type;

typedef struct ls_field {
    const char *name; /* NULL ends a list */
    ls_field_type type;
    size_t offset, size;
} ls_field;

#define LS_FIELD(type, of, member)                                                              \
    {                                                                                           \
#member, LS_FIELD_##type, offsetof(struct of, member), sizeof(((struct of *)0)->member) \
    }

/* Set an unsigned integer of 1, 2, 4 or 8 bytes. */
void ls_field_set_number(void *member, size_t size, uint64_t value);

/* Set the members whose fields in the table at `index` are not nil. The values must be of the type and in the range of
 * the member; the Lua that makes the table checks them. */
void ls_fields_read(lua_State *L, int index, const ls_field *fields, void *to);

#endif
