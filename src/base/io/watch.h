/* watch.h - notices changes of files: folders that report events, and stamps of files.
 *
 * An event says only that something in a watched folder has changed. The caller then compares the stamps of its files:
 * so events that are lost, merged or of other files do no harm. Folders are watched instead of files, because editors
 * replace a file by another one with its name, and because a file may not exist yet.
 *
 *     ls_watch_path(watch, path)        for each file; again after each event, because folders come and go
 *     ls_watch_stamp_of(path, &stamp)   after that, so that no change is missed
 *     ls_watch_wait(watch, ms)
 *
 * Linux: inotify(7). Windows: ReadDirectoryChangesW. Thread: one at a time; any thread may call ls_watch_wake. */
#ifndef LS_BASE_WATCH_H
#define LS_BASE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_watch ls_watch;

/* LS_OK, or LS_ENOMEM, LS_EMFILE, LS_ESYS. */
int ls_watch_open(ls_watch **out);
void ls_watch_close(ls_watch *watch);

/* Watch the folder of the file `path` (UTF-8), which need not exist: without a folder, the nearest one above that
 * exists. A symbolic link is watched with its target. A folder that is watched already is no error; one remains
 * watched until it is removed or the watch is closed. LS_OK, or LS_ELIMIT (fs.inotify.max_user_watches), LS_EACCES,
 * LS_ENOMEM, LS_ENOENT. */
int ls_watch_path(ls_watch *watch, const char *path);

/* Wait for an event. LS_OK: something has changed since the last call; LS_ETIMEDOUT: nothing within `ms` (-1: no
 * limit); LS_ECANCELED: ls_watch_wake was called. */
int ls_watch_wait(ls_watch *watch, int ms);
/* End the current wait, or the next one. */
void ls_watch_wake(ls_watch *watch);

/* What differs when a file was written or replaced. */
typedef struct ls_watch_stamp {
    bool exists; /* and is a regular file; else the rest is 0 */
    uint64_t size, written, changed, identity;
} ls_watch_stamp;

void ls_watch_stamp_of(const char *path, ls_watch_stamp *out);

static inline bool ls_watch_stamp_same(const ls_watch_stamp *a, const ls_watch_stamp *b)
{
    return a->exists == b->exists && a->size == b->size && a->written == b->written && a->changed == b->changed &&
           a->identity == b->identity;
}

#endif
