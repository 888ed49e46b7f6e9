/* option.h - reads a table of options that a module of lua/luaserve passes to the core into a struct.
 *
 * A reader has one constant table of ls_option for its struct. The names are those of the fields: names and units of
 * the core. lua/luaserve/options.lua describes the options of a site; its modules check the values, convert them and
 * fill in the defaults. So an error here names the field of the core.
 *
 * `index` is the stack index of the table. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_OPTION_H
#define LS_SCRIPT_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

enum ls_option_kind {
    LS_OPTION_NUMBER, /* an unsigned integer of any size; 8 bytes take every integer of Lua */
    LS_OPTION_FLOAT,  /* double */
    LS_OPTION_FLAG,   /* bool */
    LS_OPTION_TEXT,   /* char[]: a string without NUL, with its terminator */
    LS_OPTION_STRING, /* const char *: the string without NUL that the table holds */
    LS_OPTION_BYTES,  /* the same, which may have NUL */
    LS_OPTION_PATH    /* as STRING; a relative path begins at the folder of the site, and the table receives it */
};

typedef struct ls_option {
    const char *name; /* NULL ends a table */
    uint16_t offset, bytes;
    uint8_t kind;
    uint64_t max; /* of a number, or of the length of a text; 0: what the field can hold */
} ls_option;

#define LS_OPTION_KIND(field) \
    _Generic((field), double: LS_OPTION_FLOAT, bool: LS_OPTION_FLAG, char *: LS_OPTION_TEXT, \
             const char *: LS_OPTION_STRING, default: LS_OPTION_NUMBER)
#define LS_OPTION_FIELD(name, type, field, kind, max)                    \
    {                                                                    \
        name, offsetof(type, field), sizeof((type *)0)->field, kind, max \
    }
/* The option that has the name of its field, one with another name, one with a maximum, a path; the end. */
#define LS_OPTION(type, field)          LS_OPTION_AS(#field, type, field)
#define LS_OPTION_AS(name, type, field) LS_OPTION_FIELD(name, type, field, LS_OPTION_KIND(((type *)0)->field), 0)
#define LS_OPTION_MAX(type, field, max) LS_OPTION_FIELD(#field, type, field, LS_OPTION_KIND(((type *)0)->field), max)
#define LS_OPTION_FILE(type, field)     LS_OPTION_FIELD(#field, type, field, LS_OPTION_PATH, 0)
#define LS_OPTIONS_END   \
    {                    \
        NULL, 0, 0, 0, 0 \
    } /* the last entry */

/* Read the options of the table into *out. A field that is nil leaves that of *out unchanged. Raises for an invalid
 * value. */
void ls_options_read(lua_State *L, int index, const ls_option *options, void *out);

/* The same for options that a site passes to the function `call`, such as "req:json"; nil: none. Raises for other
 * names as well. */
void ls_options_take(lua_State *L, int index, const char *call, const ls_option *options, void *out);

/* The field, a function, as a registry reference. Raises for another value. */
int ls_option_function(lua_State *L, int index, const char *name);

#endif
