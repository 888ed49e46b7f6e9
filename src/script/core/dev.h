/* dev.h - what the server and all Lua states share in dev mode (`luaserve dev`): the files that the site has loaded,
 * the outcome of the last load, and the tasks that wait for a change. It survives reloads. Only a server in dev mode
 * has one.
 *
 * The states record each file that they load, or look for; the server watches them (server/dev.c), reloads the site
 * between ls_dev_load_begin and ls_dev_load_end, and each such end makes a new *version*: the number that a page of
 * the site compares with the one that it was made with.
 *
 * Thread: any. Callbacks run under the lock and must not call functions of this header. */
#ifndef LS_SCRIPT_DEV_H
#define LS_SCRIPT_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

typedef struct ls_dev ls_dev;

/* `editor`: the URL that opens a line in an editor, with {file} and {line}, or NULL; it must outlive the object. LS_OK
 * or LS_ENOMEM. */
int ls_dev_open(const char *editor, ls_dev **out);
void ls_dev_close(ls_dev *dev);
const char *ls_dev_editor(const ls_dev *dev); /* "": none */

/* ---- files ---- */

enum { LS_DEV_FILES_MAX = 10000, LS_DEV_PATH_BYTES_MAX = 4096 };

/* Record a file that is about to be loaded, or that was looked for. Call it before the file is read: of a file that
 * changes later, the change is then noticed. LS_OK, LS_ENOMEM or LS_ELIMIT. */
int ls_dev_file(ls_dev *dev, const char *path);
/* Whether the file was recorded, and exists: then its source may be shown. */
bool ls_dev_has_file(ls_dev *dev, const char *path);

typedef void ls_dev_file_fn(void *user, const char *path, bool exists);
void ls_dev_files(ls_dev *dev, ls_dev_file_fn *each, void *user); /* in the order of the first load */

/* Compare the files with their stamps, and keep the new stamps. Returns the number of changed files; *vanished: one of
 * them exists no more; `name` receives the path of the first one. */
unsigned ls_dev_changed(ls_dev *dev, bool *vanished, char *name, size_t name_bytes);

/* added(user) is called when a file is recorded for the first time. */
void ls_dev_on_added(ls_dev *dev, void (*added)(void *user), void *user);

/* ---- loads ---- */

void ls_dev_load_begin(ls_dev *dev);
/* failure: NULL, or the message of the load that has failed. After a success the files of earlier loads are forgotten.
 * Makes a new version and wakes the waiters. */
void ls_dev_load_end(ls_dev *dev, const char *failure);
/* Keep the traceback of the load that fails, for the error page. */
void ls_dev_traceback(ls_dev *dev, const char *text);

/* Changes with each load; begins at the time of the start, so that it also differs after a restart. */
uint64_t ls_dev_version(const ls_dev *dev);

/* Whether the last load has failed: calls tell(user, message, traceback). `traceback` may be "". */
typedef void ls_dev_failure_fn(void *user, const char *message, const char *traceback);
bool ls_dev_failure(ls_dev *dev, ls_dev_failure_fn *tell, void *user);

/* Whether this is the first call with this text since the last load began: a warning appears once, not in each state.
 * false also after LS_DEV_WARNINGS_MAX texts, or when out of memory. */
enum { LS_DEV_WARNINGS_MAX = 1000 };
bool ls_dev_once(ls_dev *dev, const char *text);

/* ---- waiters ---- */

typedef struct ls_dev_waiter ls_dev_waiter;
struct ls_dev_waiter {
    ls_node node;
    const void *owner;                   /* of ls_dev_wake */
    void (*wake)(ls_dev_waiter *waiter); /* called once, without its place in the list */
};

/* false: the version is not `seen` any more, and the waiter was not added. */
bool ls_dev_wait(ls_dev *dev, ls_dev_waiter *waiter, uint64_t seen);
/* true: it was removed, and wake will not be called; false: wake was called before. */
bool ls_dev_wait_end(ls_dev *dev, ls_dev_waiter *waiter);
void ls_dev_wake(ls_dev *dev, const void *owner); /* wake the waiters of this owner */

#endif
