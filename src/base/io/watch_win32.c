/* watch_win32.c - watch.h with ReadDirectoryChangesW. Each watched folder has one pending call, which completes at a
 * completion port of the watch. The kernel writes to a folder until its call has completed: a folder is freed only
 * after that. */
#include "base/io/watch.h"

#include <windows.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/err_win32.h"
#include "base/os/wide_win32.h"

enum { EVENT_BYTES = 4096, KEY_WAKE = 1, KEY_FOLDER = 2 };

typedef struct folder {
    OVERLAPPED call; /* first */
    struct folder *next;
    HANDLE handle;
    DWORD events[EVENT_BYTES / sizeof(DWORD)]; /* not read: the caller compares stamps */
    wchar_t path[];
} folder;

struct ls_watch {
    HANDLE port;
    folder *folders;
};

int ls_watch_open(ls_watch **out)
{
    ls_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) return LS_ENOMEM;
    watch->port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    if (watch->port == NULL) {
        free(watch);
        return LS_ESYS;
    }
    *out = watch;
    return LS_OK;
}

static bool post(folder *at)
{
    static const DWORD what = FILE_NOTIFY_CHANGE_FILE_NAME | FILE_NOTIFY_CHANGE_DIR_NAME | FILE_NOTIFY_CHANGE_SIZE |
                              FILE_NOTIFY_CHANGE_LAST_WRITE;
    memset(&at->call, 0, sizeof at->call);
    return ReadDirectoryChangesW(at->handle, at->events, sizeof at->events, FALSE, what, NULL, &at->call, NULL) != 0;
}

/* The folder has no pending call. */
static void drop_folder(ls_watch *watch, folder *at)
{
    folder **link = &watch->folders;
    while (*link != at) link = &(*link)->next;
    *link = at->next;
    (void)CloseHandle(at->handle);
    free(at);
}

void ls_watch_close(ls_watch *watch)
{
    for (folder *at = watch->folders; at != NULL; at = at->next) (void)CancelIoEx(at->handle, NULL);
    while (watch->folders != NULL) {
        DWORD bytes;
        ULONG_PTR key = 0;
        OVERLAPPED *call = NULL;
        (void)GetQueuedCompletionStatus(watch->port, &bytes, &key, &call, INFINITE);
        if (call != NULL) drop_folder(watch, (folder *)(void *)call);
    }
    (void)CloseHandle(watch->port);
    free(watch);
}

static int watch_one(ls_watch *watch, const wchar_t *path)
{
    for (const folder *at = watch->folders; at != NULL; at = at->next)
        if (wcscmp(at->path, path) == 0) return LS_OK;
    const HANDLE handle =
        CreateFileW(path, FILE_LIST_DIRECTORY, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OVERLAPPED, NULL);
    if (handle == INVALID_HANDLE_VALUE) return ls_err_from_win32(GetLastError());
    const size_t bytes = (wcslen(path) + 1) * sizeof *path;
    folder *made = calloc(1, sizeof *made + bytes);
    if (made == NULL) {
        (void)CloseHandle(handle);
        return LS_ENOMEM;
    }
    memcpy(made->path, path, bytes);
    made->handle = handle;
    if (CreateIoCompletionPort(handle, watch->port, KEY_FOLDER, 0) == NULL || !post(made)) {
        const int err = ls_err_from_win32(GetLastError()); /* ERROR_INVALID_FUNCTION, ...: a file, not a folder */
        (void)CloseHandle(handle);
        free(made);
        return err;
    }
    made->next = watch->folders;
    watch->folders = made;
    return LS_OK;
}

int ls_watch_path(ls_watch *watch, const char *path)
{
    int err = LS_ENOENT;
    wchar_t *wide = ls_wide_of(path);
    if (wide == NULL) return LS_ENOENT;
    for (bool at_root = false; err != LS_OK && !at_root;) {
        size_t len = wcslen(wide);
        while (len > 0 && wide[len - 1] != L'/' && wide[len - 1] != L'\\') len--;
        at_root = len == 0 || (len == 3 && wide[1] == L':') || len == 1;
        if (len == 0) {
            err = watch_one(watch, L".");
            break;
        }
        wide[at_root ? len : len - 1] = L'\0';
        err = watch_one(watch, wide);
        if (err == LS_ENOMEM) break;
    }
    free(wide);
    return err;
}

int ls_watch_wait(ls_watch *watch, int ms)
{
    const uint64_t until_ns = ls_clock_ns() + (uint64_t)(ms > 0 ? ms : 0) * 1000000u;
    bool changed = false;
    for (;;) {
        const uint64_t now_ns = ls_clock_ns();
        const DWORD left = changed             ? 0
                           : ms < 0            ? INFINITE
                           : now_ns < until_ns ? (DWORD)((until_ns - now_ns + 999999u) / 1000000u)
                                               : 0;
        DWORD bytes;
        ULONG_PTR key = 0;
        OVERLAPPED *call = NULL;
        const bool good = GetQueuedCompletionStatus(watch->port, &bytes, &key, &call, left) != 0;
        if (call == NULL && good) return LS_ECANCELED; /* ls_watch_wake */
        if (call == NULL) return changed ? LS_OK : LS_ETIMEDOUT;
        folder *at = (folder *)(void *)call;
        if (!good || !post(at))
            drop_folder(watch, at); /* the folder was removed: the next ls_watch_path finds one above */
        changed = true;
    }
}

void ls_watch_wake(ls_watch *watch)
{
    (void)PostQueuedCompletionStatus(watch->port, 0, KEY_WAKE, NULL);
}

static uint64_t joined(DWORD high, DWORD low)
{
    return (uint64_t)high << 32 | low;
}

void ls_watch_stamp_of(const char *path, ls_watch_stamp *out)
{
    WIN32_FILE_ATTRIBUTE_DATA data;
    wchar_t *wide = ls_wide_of(path);
    *out = (ls_watch_stamp){0};
    if (wide != NULL && GetFileAttributesExW(wide, GetFileExInfoStandard, &data) &&
        (data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0) {
        out->exists = true;
        out->size = joined(data.nFileSizeHigh, data.nFileSizeLow);
        out->written = joined(data.ftLastWriteTime.dwHighDateTime, data.ftLastWriteTime.dwLowDateTime);
        out->changed = joined(data.ftCreationTime.dwHighDateTime, data.ftCreationTime.dwLowDateTime);
    }
    free(wide);
}
