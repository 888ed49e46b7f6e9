/* dev_mode.h - dev mode of a server (`luaserve dev`): the files that the site has loaded or sent, a thread that
 * reloads the site or its pages when one of them has changed, and the outcome of the last load. The server and all Lua
 * states share one object, which survives reloads; a server without dev mode has none. dev_object.c and
 * lua/luaserve/dev.lua are its part in Lua.
 *
 * Each end of a load, and each change of a file that was sent, makes a new *version*: the number that a page of the
 * site compares with the one that it was made with. A change of style sheets alone makes a new number of styles
 * instead.
 *
 * Thread: any, where no comment says more. */
#ifndef LS_SCRIPT_DEV_MODE_H
#define LS_SCRIPT_DEV_MODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "script/bind/modules.h"
#include "script/core/runtime.h"

typedef struct ls_dev ls_dev;

/* `editor`: the URL that opens a line in an editor, with {file} and {line}, or NULL; it must outlive the object.
 * LS_OK, or a negative code with the reason in `message`. */
int ls_dev_open(const char *editor, ls_dev **out, char *message, size_t message_bytes);
void ls_dev_close(ls_dev *dev);               /* after the last Lua state */
const char *ls_dev_editor(const ls_dev *dev); /* "": none */

/* The object of the server; NULL: none. */
static inline ls_dev *ls_dev_of(const ls_runtime *runtime)
{
    return *(ls_dev *const *)ls_runtime_own(runtime, LS_SLOT_dev);
}

enum { LS_DEV_STATES = 3 }; /* Lua states of a site, from the start */

/* ---- files ---- */

enum { LS_DEV_FILES_MAX = 10000, LS_DEV_ASSETS_MAX = 2000, LS_DEV_PATH_BYTES_MAX = 4096 };

enum ls_dev_use {
    LS_DEV_SOURCE, /* it is about to be loaded, or was looked for */
    LS_DEV_DATA,   /* it is about to be read */
    LS_DEV_OWN,    /* the site is about to write it: it is not watched any more */
    LS_DEV_ASSET   /* it is sent as it is: a change reloads the pages, not the site. Kept over loads */
};

/* Record a file. Call it before the file is read: of a file that changes later, the change is then noticed. LS_OK,
 * LS_ENOMEM or LS_ELIMIT. */
int ls_dev_file(ls_dev *dev, const char *path, enum ls_dev_use use);

/* The source that was recorded by this name, and exists; then it may be shown. Lua truncates the beginning of a long
 * name in messages: "...ory/site.lua" finds the first one that ends so. false: none. */
bool ls_dev_find(ls_dev *dev, const char *name, char path[LS_DEV_PATH_BYTES_MAX + 1]);

/* Compare the files with their stamps, and keep the new stamps. Returns what the change concerns, 0 for no change;
 * *vanished: a file exists no more; `name` receives the path of a changed one, rather of one that the site has
 * loaded. */
enum { LS_DEV_CHANGED_STYLE = 1, LS_DEV_CHANGED_ASSET = 2, LS_DEV_CHANGED_SITE = 4 };
unsigned ls_dev_changed(ls_dev *dev, bool *vanished, char *name, size_t name_bytes);

/* ---- loads ---- */

void ls_dev_load_begin(ls_dev *dev);
/* failure: NULL, or the message of the load that has failed. After a success the files of earlier loads are
 * dropped. */
void ls_dev_load_end(ls_dev *dev, const char *failure);
/* Keep the traceback of the load that fails, for the error page. */
void ls_dev_traceback(ls_dev *dev, const char *text);
/* The first load has failed with `message`: log it and wait for a change of a file. */
void ls_dev_await(ls_dev *dev, const char *message);

/* The server serves: log the files, and start the thread, which calls reload(server) after a change; LS_EBUSY: another
 * reload is under way, call it again. LS_OK, or a negative code. */
int ls_dev_start(ls_dev *dev, int (*reload)(void *server), void *server);
/* End the thread, after a reload that runs. Before any part of the server is closed. */
void ls_dev_stop(ls_dev *dev);

/* Changes with each load; begins at the time of the start, so that it also differs after a restart. */
uint64_t ls_dev_version(const ls_dev *dev);

/* Changes with the style sheets. */
uint64_t ls_dev_styles(const ls_dev *dev);

/* Whether the last load has failed; copies its message, and its traceback or "". */
enum { LS_DEV_TEXT_BYTES = 8192 };
bool ls_dev_failure(ls_dev *dev, char message[LS_DEV_TEXT_BYTES], char traceback[LS_DEV_TEXT_BYTES]);

/* Whether this is the first call with this text since the last load began: a warning appears once, not in each state.
 * false also after LS_DEV_WARNINGS_MAX texts, or when out of memory. */
enum { LS_DEV_WARNINGS_MAX = 1000 };
bool ls_dev_once(ls_dev *dev, const char *text);

#endif
