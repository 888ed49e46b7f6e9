/* dev_mode.c - see dev_mode.h.
 *
 * A round of the thread: watch the folders of all files, then compare the stamps of the files, then wait for an event.
 * The order matters: a change between two of these steps shows in the next one. A change is not reloaded before the
 * files have been quiet for QUIET_MS, because editors write in several steps and tools write several files; longer if
 * a file has vanished, because some editors remove it before they write it.
 *
 * The server calls ls_dev_load_begin and ls_dev_load_end around every load, so a reload for a signal has the same
 * effects. */
#include "script/bind/dev_mode.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/log.h"
#include "base/io/watch.h"
#include "base/os/thread.h"

enum { QUIET_MS = 20, VANISHED_MS = 200, NAME_BYTES = 512, LIST_BYTES = 2048 };

typedef struct file {
    ls_watch_stamp stamp; /* at its first use in the load, or at the last comparison */
    uint64_t load;        /* the last load that used it */
    bool source;          /* it is code: pages may show it */
    bool own;             /* the site writes it: it is not watched */
    bool asset;           /* it was only sent */
    char *path;
} file;

struct ls_dev {
    ls_mutex mutex; /* guards the fields from `files` to `warning_count` */
    const char *editor;
    file *files;
    size_t file_count, file_room, asset_count;
    uint64_t load;
    char *failure;   /* NULL: the last load has succeeded */
    char *traceback; /* NULL: none */
    char *warnings[LS_DEV_WARNINGS_MAX];
    size_t warning_count;
    _Atomic uint64_t version, styles;

    ls_watch *watch;
    ls_thread thread;
    int (*reload)(void *server);
    void *server;
    bool started;
    bool limit_logged, assets_logged;
    _Atomic bool stopping;
};

int ls_dev_open(const char *editor, ls_dev **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_dev *dev = calloc(1, sizeof *dev);
    if (dev == NULL || (err = ls_watch_open(&dev->watch)) < 0) goto fail;
    ls_mutex_open(&dev->mutex);
    dev->editor = editor != NULL ? editor : "";
    atomic_init(&dev->version, (uint64_t)ls_clock_wall_us() / 1000u);
    *out = dev;
    return LS_OK;

fail:
    free(dev);
    (void)snprintf(message, message_bytes, "dev mode: cannot watch files: %s", ls_err_text(err));
    return err;
}

static void drop_warnings(ls_dev *dev)
{
    while (dev->warning_count > 0) free(dev->warnings[--dev->warning_count]);
}

void ls_dev_close(ls_dev *dev)
{
    ls_dev_stop(dev);
    ls_watch_close(dev->watch);
    drop_warnings(dev);
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

/* NULL: out of memory */
static char *copy_of(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    if (copy != NULL) (void)strcpy(copy, text);
    return copy;
}

/* ---- files ------------------------------------------------------------------------------------------------- */

static file *find(const ls_dev *dev, const char *path)
{
    for (size_t n = 0; n < dev->file_count; n++)
        if (strcmp(dev->files[n].path, path) == 0) return &dev->files[n];
    return NULL;
}

static int add(ls_dev *dev, const char *path, const ls_watch_stamp *stamp, enum ls_dev_use use)
{
    if (use == LS_DEV_ASSET && dev->asset_count == LS_DEV_ASSETS_MAX) {
        if (!dev->assets_logged)
            ls_log(LS_LOG_WARN, "dev: more than %d files were sent: changes of %s and further ones are not noticed",
                   (int)LS_DEV_ASSETS_MAX, path);
        dev->assets_logged = true;
        return LS_ELIMIT;
    }
    if (dev->file_count == LS_DEV_FILES_MAX || strlen(path) > LS_DEV_PATH_BYTES_MAX) return LS_ELIMIT;
    if (dev->file_count == dev->file_room) {
        const size_t room = 2 * dev->file_room + 16;
        file *grown = realloc(dev->files, room * sizeof *grown);
        if (grown == NULL) return LS_ENOMEM;
        dev->files = grown;
        dev->file_room = room;
    }
    char *copy = copy_of(path);
    if (copy == NULL) return LS_ENOMEM;
    dev->files[dev->file_count++] = (file){.stamp = *stamp,
                                           .load = dev->load,
                                           .source = use == LS_DEV_SOURCE,
                                           .asset = use == LS_DEV_ASSET,
                                           .path = copy};
    if (use == LS_DEV_ASSET) dev->asset_count++;
    ls_watch_wake(dev->watch); /* the thread watches its folder */
    return LS_OK;
}

int ls_dev_file(ls_dev *dev, const char *path, enum ls_dev_use use)
{
    ls_watch_stamp stamp;
    int err = LS_OK;
    ls_watch_stamp_of(path, &stamp);
    ls_mutex_lock(&dev->mutex);
    file *known = find(dev, path);
    if (known == NULL) {
        if (use != LS_DEV_OWN) err = add(dev, path, &stamp, use);
    } else if (use == LS_DEV_OWN) {
        known->own = true;
    } else if (use != LS_DEV_ASSET) {
        if (known->asset) dev->asset_count--;
        known->asset = false;
        known->source |= use == LS_DEV_SOURCE;
        if (known->load != dev->load) known->stamp = stamp;
        /* else another state has loaded it before: its stamp shows a change in between */
        known->load = dev->load;
    }
    ls_mutex_unlock(&dev->mutex);
    return err;
}

bool ls_dev_find(ls_dev *dev, const char *name, char path[LS_DEV_PATH_BYTES_MAX + 1])
{
    const bool truncated = strncmp(name, "...", 3) == 0;
    const char *tail = truncated ? name + 3 : name;
    const size_t len = strlen(tail);
    bool found = false;
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count && !found; n++) {
        const file *one = &dev->files[n];
        const size_t path_len = strlen(one->path);
        if (len == 0 || !one->source || !one->stamp.exists || path_len < len || (!truncated && path_len > len))
            continue;
        found = strcmp(one->path + path_len - len, tail) == 0;
        if (found) (void)strcpy(path, one->path);
    }
    ls_mutex_unlock(&dev->mutex);
    return found;
}

static bool is_style(const char *path)
{
    const size_t len = strlen(path);
    return len >= 4 && strcmp(path + len - 4, ".css") == 0;
}

unsigned ls_dev_changed(ls_dev *dev, bool *vanished, char *name, size_t name_bytes)
{
    unsigned changed = 0;
    name[0] = '\0';
    *vanished = false;
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count; n++) {
        file *one = &dev->files[n];
        ls_watch_stamp now;
        if (one->own) continue;
        ls_watch_stamp_of(one->path, &now);
        if (ls_watch_stamp_same(&now, &one->stamp)) continue;
        if (!now.exists) *vanished = true;
        one->stamp = now;
        if (changed == 0 || (!one->asset && (changed & LS_DEV_CHANGED_SITE) == 0))
            (void)snprintf(name, name_bytes, "%s", one->path);
        changed |= !one->asset           ? LS_DEV_CHANGED_SITE
                   : is_style(one->path) ? LS_DEV_CHANGED_STYLE
                                         : LS_DEV_CHANGED_ASSET;
    }
    ls_mutex_unlock(&dev->mutex);
    return changed;
}

/* Watch the folders of all files. */
static void watch_files(ls_dev *dev)
{
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count; n++) {
        const char *path = dev->files[n].path;
        if (ls_watch_path(dev->watch, path) != LS_ELIMIT || dev->limit_logged)
            continue; /* after another error the folder is not there, or may not be read */
        dev->limit_logged = true;
        ls_log(LS_LOG_WARN, "dev: %s is not watched: the system allows no more watches (fs.inotify.max_user_watches)",
               path);
    }
    ls_mutex_unlock(&dev->mutex);
}

static void log_files(ls_dev *dev)
{
    char text[LIST_BYTES] = "";
    size_t len = 0;
    unsigned count = 0, more = 0;
    ls_mutex_lock(&dev->mutex);
    for (size_t n = 0; n < dev->file_count; n++) {
        const file *one = &dev->files[n];
        if (!one->stamp.exists || one->own || one->asset) continue;
        count++;
        if (more > 0 || len + strlen(one->path) + 3 > sizeof text)
            more++;
        else
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", len > 0 ? ", " : "", one->path);
    }
    ls_mutex_unlock(&dev->mutex);
    if (more > 0)
        ls_log(LS_LOG_INFO, "dev: watching %u files: %s and %u more", count, text, more);
    else
        ls_log(LS_LOG_INFO, "dev: watching %s", text);
}

/* ---- loads ------------------------------------------------------------------------------------------------- */

static void drop_old_files(ls_dev *dev)
{
    size_t count = 0;
    for (size_t n = 0; n < dev->file_count; n++) {
        if (dev->files[n].load == dev->load || dev->files[n].asset)
            dev->files[count++] = dev->files[n];
        else
            free(dev->files[n].path);
    }
    dev->file_count = count;
}

void ls_dev_load_begin(ls_dev *dev)
{
    ls_mutex_lock(&dev->mutex);
    dev->load++;
    free(dev->traceback);
    dev->traceback = NULL;
    drop_warnings(dev);
    ls_mutex_unlock(&dev->mutex);
}

void ls_dev_load_end(ls_dev *dev, const char *failure)
{
    ls_mutex_lock(&dev->mutex);
    free(dev->failure);
    dev->failure = failure != NULL ? copy_of(failure) : NULL;
    if (failure == NULL) drop_old_files(dev);
    (void)atomic_fetch_add(&dev->version, 1);
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

uint64_t ls_dev_styles(const ls_dev *dev)
{
    return atomic_load(&dev->styles);
}

bool ls_dev_failure(ls_dev *dev, char message[LS_DEV_TEXT_BYTES], char traceback[LS_DEV_TEXT_BYTES])
{
    ls_mutex_lock(&dev->mutex);
    const bool failed = dev->failure != NULL;
    if (failed) {
        (void)snprintf(message, LS_DEV_TEXT_BYTES, "%s", dev->failure);
        (void)snprintf(traceback, LS_DEV_TEXT_BYTES, "%s", dev->traceback != NULL ? dev->traceback : "");
    }
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

/* ---- the thread -------------------------------------------------------------------------------------------- */

/* Wait for `ms`, whatever happens. false: the server stops. */
static bool pause_for(ls_dev *dev, int ms)
{
    const uint64_t until_ns = ls_clock_ns() + (uint64_t)ms * 1000000u;
    for (uint64_t now_ns; (now_ns = ls_clock_ns()) < until_ns;) {
        (void)ls_watch_wait(dev->watch, (int)((until_ns - now_ns + 999999u) / 1000000u));
        if (atomic_load(&dev->stopping)) return false;
    }
    return true;
}

static unsigned changed(ls_dev *dev, bool *vanished, char name[NAME_BYTES])
{
    watch_files(dev);
    return ls_dev_changed(dev, vanished, name, NAME_BYTES);
}

/* Wait until files have changed and are quiet, and log the name of one. Returns what has changed; 0: the server
 * stops. */
static unsigned await_change(ls_dev *dev)
{
    char name[NAME_BYTES], later[NAME_BYTES];
    bool vanished;
    unsigned what, more;
    while ((what = changed(dev, &vanished, name)) == 0) {
        (void)ls_watch_wait(dev->watch, -1);
        if (atomic_load(&dev->stopping)) return 0;
    }
    do {
        if (!pause_for(dev, vanished ? VANISHED_MS : QUIET_MS)) return 0;
        what |= more = changed(dev, &vanished, later);
    } while (more != 0);
    ls_log(LS_LOG_INFO, "dev: %s has changed%s", name,
           what >= LS_DEV_CHANGED_SITE    ? ""
           : what == LS_DEV_CHANGED_STYLE ? ": pages load their style sheets again"
                                          : ": pages load again");
    return what;
}

void ls_dev_await(ls_dev *dev, const char *message)
{
    ls_log(LS_LOG_ERROR, "%s", message);
    ls_log(LS_LOG_INFO, "dev: waiting for a change of the file");
    ls_dev_load_end(dev, message);
    (void)await_change(dev);
}

static void run(void *arg)
{
    ls_dev *dev = arg;
    unsigned what;
    while ((what = await_change(dev)) != 0) {
        if (what < LS_DEV_CHANGED_SITE) {
            (void)atomic_fetch_add(what == LS_DEV_CHANGED_STYLE ? &dev->styles : &dev->version, 1);
            continue;
        }
        while (dev->reload(dev->server) == LS_EBUSY) /* for a signal */
            if (!pause_for(dev, QUIET_MS)) return;
    }
}

int ls_dev_start(ls_dev *dev, int (*reload)(void *server), void *server)
{
    dev->reload = reload;
    dev->server = server;
    log_files(dev);
    /* As the workers: the site may start programs while it loads. */
    const int err = ls_thread_start_parent(&dev->thread, "ls-dev", run, dev);
    dev->started = err == LS_OK;
    return err;
}

void ls_dev_stop(ls_dev *dev)
{
    atomic_store(&dev->stopping, true);
    if (!dev->started) return;
    dev->started = false;
    ls_watch_wake(dev->watch);
    ls_thread_join(&dev->thread);
}
