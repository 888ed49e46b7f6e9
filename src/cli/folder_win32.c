/* folder_win32.c - see folder.h: GetFileAttributes, FindFirstFile, CreateDirectory. */
#include "cli/folder.h"

#include <windows.h>

#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/main_win32.h"

enum ls_folder_kind ls_folder_kind(const char *path)
{
    wchar_t *wide = ls_main_wide(path);
    const DWORD attributes = wide != NULL ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
    free(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) return LS_FOLDER_NONE;
    return (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? LS_FOLDER_FOLDER : LS_FOLDER_FILE;
}

static int errno_of(DWORD error)
{
    switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: return ENOENT;
    case ERROR_DIRECTORY: return ENOTDIR;
    case ERROR_ACCESS_DENIED: return EACCES;
    case ERROR_NOT_ENOUGH_MEMORY: return ENOMEM;
    default: return EIO;
    }
}

/* "path\*" as UTF-16; the caller frees it. */
static wchar_t *pattern_of(const char *path)
{
    static const char all[] = "\\*";
    char *pattern = malloc(strlen(path) + sizeof all);
    if (pattern == NULL) return NULL;
    strcat(strcpy(pattern, path), all);
    wchar_t *wide = ls_main_wide(pattern);
    free(pattern);
    return wide;
}

static void add(lua_State *L, const WIN32_FIND_DATAW *entry)
{
    const DWORD link = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT;
    if (wcscmp(entry->cFileName, L".") == 0 || wcscmp(entry->cFileName, L"..") == 0) return;
    char *name = ls_main_utf8(entry->cFileName);
    if (name == NULL) return; /* invalid Unicode: no name of a test file or of ours */
    ls_folder_add(L, name, (entry->dwFileAttributes & link) == FILE_ATTRIBUTE_DIRECTORY);
    free(name);
}

int ls_folder_read(lua_State *L, const char *path)
{
    WIN32_FIND_DATAW entry;
    wchar_t *pattern = pattern_of(path);
    if (pattern == NULL) return ENOMEM;
    const HANDLE found = FindFirstFileW(pattern, &entry);
    const DWORD error = GetLastError();
    free(pattern);
    if (found == INVALID_HANDLE_VALUE) return errno_of(error);
    do {
        add(L, &entry);
    } while (FindNextFileW(found, &entry));
    (void)FindClose(found);
    return 0;
}

int ls_folder_is_absolute(const char *path)
{
    return path[0] == '/' || path[0] == '\\' || (path[0] != '\0' && path[1] == ':');
}

int ls_folder_make(const char *path)
{
    wchar_t *wide = ls_main_wide(path);
    if (wide == NULL) return EINVAL;
    const int err = _wmkdir(wide) == 0 ? 0 : errno;
    free(wide);
    return err;
}

FILE *ls_folder_create_file(const char *path)
{
    wchar_t *wide = ls_main_wide(path);
    if (wide == NULL) {
        errno = EINVAL;
        return NULL;
    }
    const int fd = _wopen(wide, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    free(wide);
    return fd >= 0 ? _fdopen(fd, "wb") : NULL;
}
