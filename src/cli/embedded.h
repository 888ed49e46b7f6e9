/* embedded.h - the files that `luaserve new` writes, embedded in the program. lua/embed.lua generates the table from
 * the list in lua/CMakeLists.txt. */
#ifndef LS_CLI_EMBEDDED_H
#define LS_CLI_EMBEDDED_H

#include <stddef.h>

typedef struct ls_embedded_file {
    const char *path; /* below lua/: "templates/api/site.lua", "definitions/luaserve.lua" */
    const char *bytes;
    size_t len;
} ls_embedded_file;

extern const ls_embedded_file ls_embedded_files[]; /* an entry with a NULL path ends it */

#endif
