/* path_posix.c - see path.h: realpath(3) of the directory and of the longest part of the path that exists;
 * /proc/self/fd of an open file (proc(5)). */
#define _XOPEN_SOURCE 700
#include "base/io/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static bool is_beneath(const char *directory, const char *real)
{
    const size_t len = strlen(directory);
    if (strcmp(directory, "/") == 0) return true;
    return strncmp(real, directory, len) == 0 && (real[len] == '/' || real[len] == '\0');
}

/* Resolve `path`, which is shortened until it exists. */
static int check(const char *directory, size_t directory_len, char *path)
{
    for (;;) {
        struct stat st;
        char *real = realpath(path, NULL);
        if (real != NULL) {
            const bool beneath = is_beneath(directory, real);
            free(real);
            return beneath ? LS_OK : LS_EACCES;
        }
        if (errno != ENOENT && errno != ENOTDIR) return errno == ENOMEM ? LS_ENOMEM : LS_EACCES;
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) return LS_EACCES; /* its target does not exist */
        char *slash = strrchr(path, '/');
        if (slash == NULL || (size_t)(slash - path) < directory_len) return LS_OK; /* the rest does not exist */
        *slash = '\0';
    }
}

int ls_path_check_beneath(const char *directory, const char *path)
{
    int err = LS_ENOMEM;
    char *real = realpath(directory, NULL);
    if (real == NULL) return errno == ENOENT || errno == ENOTDIR ? LS_OK : ls_err_from_errno(errno);
    char *part = strdup(path);
    if (part != NULL) err = check(real, strlen(directory), part);
    free(part);
    free(real);
    return err;
}

int ls_path_check_open_beneath(const char *directory, intptr_t fd)
{
    char link[32], at[PATH_MAX];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%ld", (long)fd);
    const ssize_t len = readlink(link, at, sizeof at);
    if (len < 0) return errno == ENOENT || errno == ENOTDIR ? LS_ENOTSUP : ls_err_from_errno(errno);
    if ((size_t)len == sizeof at) return LS_EACCES; /* cut off */
    at[len] = '\0';
    char *real = realpath(directory, NULL);
    if (real == NULL) return ls_err_from_errno(errno);
    const bool beneath = is_beneath(real, at);
    free(real);
    return beneath ? LS_OK : LS_EACCES;
}

_Static_assert(LS_PATH_BYTES >= PATH_MAX, "realpath writes PATH_MAX bytes");

bool ls_path_absolute(const char *directory, char out[LS_PATH_BYTES])
{
    return realpath(directory, out) != NULL;
}
