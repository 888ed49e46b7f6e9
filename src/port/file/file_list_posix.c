/* file_list_posix.c - the names of a directory on POSIX systems: readdir(3), fstatat(2). See ls_file_list in
 * file.h. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/io/path.h"
#include "port/file/file_posix.h"

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_link(int dir, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type == DT_LNK; /* some file systems do not tell it */
    return fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Whether the link does not lead out of the directory `beneath`. */
static bool stays(const char *path, const char *name, const char *beneath)
{
    char *whole;
    if (asprintf(&whole, "%s/%s", path, name) < 0) return false;
    const bool beneath_it = ls_path_check_beneath(beneath, whole) == LS_OK;
    free(whole);
    return beneath_it;
}

/* Make room for one more name. */
static int reserve(ls_file_names **names, unsigned *room)
{
    if ((*names)->count < *room) return LS_OK;
    const unsigned more = *room * 2;
    ls_file_names *grown = realloc(*names, sizeof *grown + more * sizeof grown->names[0]);
    if (grown == NULL) return LS_ENOMEM;
    *names = grown;
    *room = more;
    return LS_OK;
}

static int add(ls_file_names **names, unsigned *room, int dir, const char *name, bool link, bool all)
{
    struct stat st;
    const bool examined = fstatat(dir, name, &st, 0) == 0; /* else it was removed meanwhile, or is a link to no file */
    if (!examined && (!all || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)) return LS_OK;
    if (reserve(names, room) < 0) return LS_ENOMEM;
    struct ls_file_name *entry = &(*names)->names[(*names)->count];
    if ((entry->name = strdup(name)) == NULL) return LS_ENOMEM;
    entry->link = link;
    ls_file_fill_info(&entry->info, &st);
    (*names)->count++;
    return LS_OK;
}

int ls_file_list_on_disk(const char *path, const char *beneath, unsigned most, ls_file_names **out)
{
    unsigned room = 32;
    int err = LS_OK;
    if (beneath != NULL && (err = ls_path_check_beneath(beneath, path)) < 0) return err;
    DIR *dir = opendir(path);
    if (dir == NULL) return errno == ENOTDIR ? LS_ENOTDIR : ls_err_from_errno(errno);
    ls_file_names *names = malloc(sizeof *names + room * sizeof names->names[0]);
    if (names == NULL) err = LS_ENOMEM;
    if (names != NULL) *names = (ls_file_names){0};
    while (err == LS_OK && !names->more) {
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) break;
        if (is_dot(entry->d_name)) continue;
        const bool link = is_link(dirfd(dir), entry);
        if (link && beneath != NULL && !stays(path, entry->d_name, beneath)) continue;
        if (names->count == most)
            names->more = true;
        else
            err = add(&names, &room, dirfd(dir), entry->d_name, link, beneath == NULL);
    }
    (void)closedir(dir);
    if (err < 0)
        ls_file_names_free(names);
    else
        *out = names;
    return err;
}
