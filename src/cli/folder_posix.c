/* folder_posix.c - see folder.h: stat(2), readdir(3), mkdir(2). */
#define _GNU_SOURCE
#include "cli/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum ls_folder_kind ls_folder_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) return LS_FOLDER_NONE;
    return S_ISDIR(st.st_mode) ? LS_FOLDER_FOLDER : LS_FOLDER_FILE;
}

int ls_folder_read(lua_State *L, const char *path)
{
    DIR *dir = opendir(path);
    int err = 0;
    if (dir == NULL) return errno;
    for (;;) {
        struct stat st;
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            err = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const int known = fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        ls_folder_add(L, entry->d_name, known && S_ISDIR(st.st_mode));
    }
    (void)closedir(dir);
    return err;
}

int ls_folder_is_absolute(const char *path)
{
    return path[0] == '/';
}

int ls_folder_make(const char *path)
{
    return mkdir(path, 0777) == 0 ? 0 : errno;
}

FILE *ls_folder_create_file(const char *path)
{
    return fopen(path, "wbxe");
}
