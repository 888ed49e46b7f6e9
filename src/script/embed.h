/* embed.h - the Lua modules of lua/luaserve/, kept in the program as bytes. Generated at build time by lua/embed.cmake;
 * read-only, any thread. `require` finds them by name before it looks at package.path. */
#ifndef LS_SCRIPT_EMBED_H
#define LS_SCRIPT_EMBED_H

#include <stddef.h>

typedef struct ls_embedded {
    const char *name;  /* "luaserve" for init.lua, "luaserve.<file>" for the others */
    const char *bytes; /* the source text, no terminator */
    size_t len;
} ls_embedded;

extern const ls_embedded ls_embedded_modules[]; /* sorted as listed; one entry with a NULL name follows the last */
extern const size_t ls_embedded_count;

#endif
