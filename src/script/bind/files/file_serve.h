/* file_serve.h - from a path to a response: looks files up in the cache of the site, or loads them while the task
 * waits. res:file and app:static use it. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_FILE_SERVE_H
#define LS_SCRIPT_FILE_SERVE_H

#include "codec/coding/http_accept.h"
#include "script/bind/files/file_response.h"
#include "script/bind/modules.h"

enum { LS_SERVE_PATH_BYTES = 4096 }; /* with the terminator; PATH_MAX of Linux */

typedef struct ls_serve ls_serve;

/* Called for each file that the request looks at, inside the task. `entry`: the file, whose reference passes to the
 * callee, or an entry that says that it is missing; NULL: `err`, an LS_E* code. Either ends with the results of the
 * Lua function that called ls_serve_begin, >= 0, or sets s->path to the next file and returns LS_SERVE_NEXT. Must not
 * raise while it holds a reference outside of `s`. */
typedef int ls_serve_found_fn(lua_State *L, ls_serve *s, ls_cached_file *entry, int err);

enum { LS_SERVE_NEXT = -1 };

/* The cache of the server. */
static inline ls_file_cache *ls_file_cache_of(const ls_runtime *runtime)
{
    return *(ls_file_cache *const *)ls_runtime_own(runtime, LS_SLOT_files);
}

struct ls_serve {
    ls_serve_found_fn *found;
    const char *beneath; /* files must lie beneath this directory, with which every path begins; NULL: anywhere. Lives
                             as long as the request */
    size_t beneath_len;
    bool keep_missing;    /* keep an entry in the cache if the file at `path` does not exist */
    unsigned step;        /* for `found`: which file `path` is */
    bool fallback;        /* for `found`: `file` stands in for the file that was asked for */
    ls_cached_file *file; /* for `found`: a reference that is dropped at the end */
    enum ls_coding codings[LS_CODINGS];
    unsigned coding, coding_count;
    size_t path_len;
    char path[LS_SERVE_PATH_BYTES];
};

/* Prepare all fields but codings and path. */
void ls_serve_init(ls_serve *s, ls_serve_found_fn *found, const char *beneath, size_t beneath_len);

/* Look the files up, from s->path on. `s` is on the C stack; when a file must be loaded, the search begins again with
 * a copy on the Lua stack, and the task waits. Returns what the Lua function returns. Raises where a task cannot
 * wait. */
int ls_serve_begin(lua_State *L, ls_serve *s);

#endif
