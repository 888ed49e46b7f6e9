/* dev.c - see dev.h. */
#include "script/core/dev.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "base/watch.h"

typedef struct file {
    ls_watch_stamp stamp; /* at its first use in the load, or at the last comparison */
    uint64_t load;        /* the last load that used it */
    char *path;
} file;

struct ls_dev {
    ls_mutex mutex; /* guards all but `version` */
    const char *editor;
    file *files;
    size_t file_count, file_room;
    void (*added)(void *user);
    void *added_user;
    uint64_t load;
    _Atomic uint64_t version;
    char *failure;   /* NULL: the last load has succeeded */
    char *traceback; /* NULL: none */
    char *warnings[LS_DEV_WARNINGS_MAX];
    size_t warning_count;
    ls_node waiters;
};

int ls_dev_open(const char *editor, ls_dev **out)
{
    ls_dev *dev = calloc(1, sizeof *dev);
    if (dev == NULL) return LS_ENOMEM;
    const int err = ls_mutex_open(&dev->mutex);
    if (err < 0) {
        free(dev);
        return err;
    }
    dev->editor = editor != NULL ? editor : "";
    atomic_init(&dev->version, (uint64_t)ls_clock_wall_us() / 1000u);
    ls_node_init(&dev->waiters);
    *out = dev;
    return LS_OK;
}

static void forget_warnings(ls_dev *dev)
{
    while (dev->warning_count > 0) free(dev->warnings[--dev->warning_count]);
}

void ls_dev_close(ls_dev *dev)
{
    forget_warnings(dev);
    for (size_t n = 0; n < dev->file_count; n++) free(dev->files[n].path);
    free(dev->files);
    free(dev->failure);
    free(dev->traceback);
    ls_mutex_close(&dev->mutex);
    free(dev);
}

const char *ls_dev_editor(const ls_dev *dev)
{
    return dev->editor;
}

/* ---- files ------------------------------------------------------------------------------------------------- */

static file *find(const ls_dev *dev, const char *path)
{
    for (size_t n = 0; n < dev->file_count; n++)
        if (strcmp(dev->files[n].path, path) == 0) return &dev->files[n];
    return NULL;
}

static int add(ls_dev *dev, const char *path, const ls_watch_stamp *stamp)
{
    if (dev->file_count == LS_DEV_FILES_MAX || strlen(path) > LS_DEV_PATH_BYTES_MAX) return LS_ELIMIT;
    if (dev->file_count == dev->file_room) {
        const size_t room = 2 * dev->file_room + 16;
        file *grown = realloc(dev->files, room * sizeof *grown);
        if (grown == NULL) return LS_ENOMEM;
        dev->files = grown;
        dev->file_room = room;
    }
    char *copy = malloc(strlen(path) + 1);
    if (copy == NULL) return LS_ENOMEM;
    (void)strcpy(copy, path);
    dev->files[dev->file_count++] = (file){*stamp, dev->load, copy};
    if (dev->added != NULL) dev->added(dev->added_user);
    return LS_OK;
}

int ls_dev_file(ls_dev *dev, const char *path)
{
    ls_watch_stamp stamp;
    int err = LS_OK;
    ls_watch_stamp_of(path, &stamp);
    ls_mutex_lock(&dev->mutex);
    file *known = find(dev, path);
    if (known == NULL) {
        err = add(dev, path, &stamp);
    } else if (known->load != dev->load) {
        known->load = dev->load;
        known->stamp = stamp;
    } /* else another state has loaded it before: its stamp shows a change in between */
    ls_mutex_unlock(&dev->mutex);
    return err;
}

bool ls_dev_has_file(ls_dev *dev, const char *path)
{
    ls_mutex_lock(&dev->mutex);
    const file *known = find(dev, path);
    const bool has = known != NULL && known->stamp.exists;
    ls_mutex_unlock(&dev->mutex);
    return has;
}

void ls_dev_files(ls_dev *dev, ls_dev_file_fn *each, void *user)
{
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count; n++) each(user, dev->files[n].path, dev->files[n].stamp.exists);
    ls_mutex_unlock(&dev->mutex);
}

unsigned ls_dev_changed(ls_dev *dev, bool *vanished, char *name, size_t name_bytes)
{
    unsigned changed = 0;
    *vanished = false;
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count; n++) {
        file *one = &dev->files[n];
        ls_watch_stamp now;
        ls_watch_stamp_of(one->path, &now);
        if (ls_watch_stamp_same(&now, &one->stamp)) continue;
        if (!now.exists) *vanished = true;
        one->stamp = now;
        if (changed++ == 0) (void)snprintf(name, name_bytes, "%s", one->path);
    }
    ls_mutex_unlock(&dev->mutex);
    return changed;
}

void ls_dev_on_added(ls_dev *dev, void (*added)(void *user), void *user)
{
    ls_mutex_lock(&dev->mutex);
    dev->added = added;
    dev->added_user = user;
    ls_mutex_unlock(&dev->mutex);
}

/* ---- loads ------------------------------------------------------------------------------------------------- */

static void forget_old_files(ls_dev *dev)
{
    size_t kept = 0;
    for (size_t n = 0; n < dev->file_count; n++) {
        if (dev->files[n].load == dev->load)
            dev->files[kept++] = dev->files[n];
        else
            free(dev->files[n].path);
    }
    dev->file_count = kept;
}

/* NULL: out of memory */
static char *copy_of(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    if (copy != NULL) (void)strcpy(copy, text);
    return copy;
}

/* Wake the waiters of this owner; NULL: all. The caller holds the lock. */
static void wake(ls_dev *dev, const void *owner)
{
    for (ls_node *at = dev->waiters.next, *next; at != &dev->waiters; at = next) {
        ls_dev_waiter *waiter = LS_CONTAINER(at, ls_dev_waiter, node);
        next = at->next;
        if (owner != NULL && waiter->owner != owner) continue;
        ls_list_remove(at);
        waiter->wake(waiter);
    }
}

void ls_dev_load_begin(ls_dev *dev)
{
    ls_mutex_lock(&dev->mutex);
    dev->load++;
    free(dev->traceback);
    dev->traceback = NULL;
    forget_warnings(dev);
    ls_mutex_unlock(&dev->mutex);
}

void ls_dev_load_end(ls_dev *dev, const char *failure)
{
    ls_mutex_lock(&dev->mutex);
    free(dev->failure);
    dev->failure = failure != NULL ? copy_of(failure) : NULL;
    if (failure == NULL) forget_old_files(dev);
    (void)atomic_fetch_add(&dev->version, 1);
    wake(dev, NULL);
    ls_mutex_unlock(&dev->mutex);
}

void ls_dev_traceback(ls_dev *dev, const char *text)
{
    ls_mutex_lock(&dev->mutex);
    free(dev->traceback);
    dev->traceback = copy_of(text);
    ls_mutex_unlock(&dev->mutex);
}

uint64_t ls_dev_version(const ls_dev *dev)
{
    return atomic_load(&dev->version);
}

bool ls_dev_failure(ls_dev *dev, ls_dev_failure_fn *tell, void *user)
{
    ls_mutex_lock(&dev->mutex);
    const bool failed = dev->failure != NULL;
    if (failed) tell(user, dev->failure, dev->traceback != NULL ? dev->traceback : "");
    ls_mutex_unlock(&dev->mutex);
    return failed;
}

bool ls_dev_once(ls_dev *dev, const char *text)
{
    bool first = true;
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->warning_count && first; n++) first = strcmp(dev->warnings[n], text) != 0;
    if (first) {
        char *copy = dev->warning_count < LS_DEV_WARNINGS_MAX ? copy_of(text) : NULL;
        first = copy != NULL;
        if (first) dev->warnings[dev->warning_count++] = copy;
    }
    ls_mutex_unlock(&dev->mutex);
    return first;
}

/* ---- waiters ----------------------------------------------------------------------------------------------- */

bool ls_dev_wait(ls_dev *dev, ls_dev_waiter *waiter, uint64_t seen)
{
    ls_mutex_lock(&dev->mutex);
    const bool same = atomic_load(&dev->version) == seen;
    if (same) ls_list_push(&dev->waiters, &waiter->node);
    ls_mutex_unlock(&dev->mutex);
    return same;
}

bool ls_dev_wait_end(ls_dev *dev, ls_dev_waiter *waiter)
{
    ls_mutex_lock(&dev->mutex);
    const bool waits = !ls_list_empty(&waiter->node);
    if (waits) ls_list_remove(&waiter->node);
    ls_mutex_unlock(&dev->mutex);
    return waits;
}

void ls_dev_wake(ls_dev *dev, const void *owner)
{
    ls_mutex_lock(&dev->mutex);
    wake(dev, owner);
    ls_mutex_unlock(&dev->mutex);
}
