/* dev.c - see dev.h.
 *
 * ls_server_reload logs the result and calls ls_dev_server_load and ls_dev_server_loaded, so a reload for a signal has
 * the same effects.
 *
 * A round of the thread: watch the folders of all files, then compare the stamps of the files, then wait for an event.
 * The order matters: a change between two of these steps shows in the next one. A change is not reloaded before the
 * files have been quiet for QUIET_MS, because editors write in several steps and tools write several files; longer if a
 * file has vanished, because some editors remove it before they write it. */
#include "server/dev.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/watch.h"

enum { QUIET_MS = 20, VANISHED_MS = 200, NAME_BYTES = 512, MESSAGE_BYTES = 4096, LIST_BYTES = 2048 };

struct ls_dev_server {
    ls_dev *shared;
    ls_watch *watch;
    ls_server *server;
    ls_thread thread;
    bool started;
    bool limit_logged;
    _Atomic bool stopping;
};

static void wake(void *user)
{
    ls_dev_server *dev = user;
    ls_watch_wake(dev->watch);
}

int ls_dev_server_open(const char *editor, ls_dev_server **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_dev_server *dev = calloc(1, sizeof *dev);
    if (dev == NULL) goto fail;
    if ((err = ls_dev_open(editor, &dev->shared)) < 0) goto fail_alloc;
    if ((err = ls_watch_open(&dev->watch)) < 0) goto fail_shared;
    *out = dev;
    return LS_OK;

fail_shared:
    ls_dev_close(dev->shared);
fail_alloc:
    free(dev);
fail:
    (void)snprintf(message, message_bytes, "dev mode: cannot watch files: %s", ls_err_text(err));
    return err;
}

ls_dev *ls_dev_server_shared(ls_dev_server *dev)
{
    return dev->shared;
}

/* ---- files ------------------------------------------------------------------------------------------------- */

static void watch_one(void *user, const char *path, bool exists)
{
    ls_dev_server *dev = user;
    (void)exists;
    const int err = ls_watch_path(dev->watch, path);
    if (err != LS_ELIMIT || dev->limit_logged) return; /* else the folder is not there, or may not be read */
    dev->limit_logged = true;
    ls_log(LS_LOG_WARN, "dev: %s is not watched: the system allows no more watches (fs.inotify.max_user_watches)",
           path);
}

/* Watch the folders and compare the files. */
static unsigned changed(ls_dev_server *dev, bool *vanished, char name[NAME_BYTES])
{
    ls_dev_files(dev->shared, watch_one, dev);
    return ls_dev_changed(dev->shared, vanished, name, NAME_BYTES);
}

/* Wait for `ms`, whatever happens. false: the server stops. */
static bool pause_for(ls_dev_server *dev, int ms)
{
    const uint64_t until_ns = ls_clock_ns() + (uint64_t)ms * 1000000u;
    for (uint64_t now_ns; (now_ns = ls_clock_ns()) < until_ns;) {
        (void)ls_watch_wait(dev->watch, (int)((until_ns - now_ns + 999999u) / 1000000u));
        if (atomic_load(&dev->stopping)) return false;
    }
    return true;
}

/* Wait until files have changed and are quiet. `name` receives one of them. false: the server stops. */
static bool await_change(ls_dev_server *dev, char name[NAME_BYTES])
{
    char later[NAME_BYTES];
    bool vanished;
    while (changed(dev, &vanished, name) == 0) {
        (void)ls_watch_wait(dev->watch, -1);
        if (atomic_load(&dev->stopping)) return false;
    }
    for (;;) {
        if (!pause_for(dev, vanished ? VANISHED_MS : QUIET_MS)) return false;
        if (changed(dev, &vanished, later) == 0) return true;
    }
}

typedef struct file_list {
    char text[LIST_BYTES];
    size_t len;
    unsigned count, more;
} file_list;

static void list_one(void *user, const char *path, bool exists)
{
    file_list *list = user;
    if (!exists) return;
    list->count++;
    const size_t len = strlen(path);
    if (list->more > 0 || list->len + len + 3 > sizeof list->text) {
        list->more++;
        return;
    }
    list->len += (size_t)snprintf(list->text + list->len, sizeof list->text - list->len, "%s%s",
                                  list->len > 0 ? ", " : "", path);
}

static void log_files(ls_dev_server *dev)
{
    file_list list = {.len = 0};
    ls_dev_files(dev->shared, list_one, &list);
    if (list.more > 0)
        ls_log(LS_LOG_INFO, "dev: watching %u files: %s and %u more", list.count, list.text, list.more);
    else
        ls_log(LS_LOG_INFO, "dev: watching %s", list.text);
}

/* ---- loads ------------------------------------------------------------------------------------------------- */

void ls_dev_server_load(ls_dev_server *dev)
{
    ls_dev_load_begin(dev->shared);
}

void ls_dev_server_loaded(ls_dev_server *dev, const char *failure)
{
    ls_dev_load_end(dev->shared, failure);
}

void ls_dev_server_await(ls_dev_server *dev, const char *message)
{
    char name[NAME_BYTES];
    ls_log(LS_LOG_ERROR, "%s", message);
    ls_log(LS_LOG_INFO, "dev: waiting for a change of the file");
    ls_dev_load_end(dev->shared, message);
    (void)await_change(dev, name);
    ls_log(LS_LOG_INFO, "dev: %s has changed", name);
}

/* ls_server_reload logs the result. Another thread may be reloading for a signal. */
static bool reload(ls_dev_server *dev, const char *name)
{
    char message[MESSAGE_BYTES];
    ls_log(LS_LOG_INFO, "dev: %s has changed", name);
    while (ls_server_reload(dev->server, message, sizeof message) == LS_EBUSY)
        if (!pause_for(dev, QUIET_MS)) return false;
    return true;
}

static void run(void *arg)
{
    ls_dev_server *dev = arg;
    char name[NAME_BYTES];
    while (await_change(dev, name) && reload(dev, name)) continue;
}

int ls_dev_server_start(ls_dev_server *dev, ls_server *server)
{
    dev->server = server;
    ls_dev_on_added(dev->shared, wake, dev);
    log_files(dev);
    /* As the workers: the site may start programs while it loads. */
    const int err = ls_thread_start_parent(&dev->thread, "ls-dev", run, dev);
    dev->started = err == LS_OK;
    return err;
}

void ls_dev_server_stop(ls_dev_server *dev)
{
    atomic_store(&dev->stopping, true);
    if (!dev->started) return;
    dev->started = false;
    ls_watch_wake(dev->watch);
    ls_thread_join(&dev->thread);
}

void ls_dev_server_close(ls_dev_server *dev)
{
    ls_dev_server_stop(dev);
    ls_watch_close(dev->watch);
    ls_dev_close(dev->shared);
    free(dev);
}
