/* file_win32.c - the calls of file.h on Windows: CreateFileW, GetFileInformationByHandle, ReadFile at an offset,
 * WriteFile, FlushFileBuffers, ReplaceFileW, MoveFileExW, DeleteFileW. Files are opened with full sharing: other
 * programs may read, write, rename and delete them meanwhile, as on POSIX. */
#include "port/file/file_internal.h"

#include <windows.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err_win32.h"
#include "base/os/wide_win32.h"
#include "port/file/shared_file.h"

const uint32_t ls_shared_file_copy_max = UINT32_MAX;

bool ls_file_is_absolute(const char *path)
{
    const char letter = (char)(*path | 0x20);
    return *path == '/' || *path == '\\' || (letter >= 'a' && letter <= 'z' && path[1] == ':');
}

/* The path in UTF-16, which the caller frees; NULL: *err is set. */
static wchar_t *wide_of(const char *path, int *err)
{
    wchar_t *wide = ls_wide_of(path);
    if (wide == NULL) *err = errno == ENOMEM ? LS_ENOMEM : LS_ENOENT; /* an invalid name cannot exist */
    return wide;
}

static HANDLE handle_of(ls_fd fd)
{
    return (HANDLE)fd; /* NOLINT(performance-no-int-to-ptr) */
}

static HANDLE open_path(const wchar_t *path, DWORD access, DWORD disposition)
{
    /* FILE_FLAG_BACKUP_SEMANTICS opens directories as well. */
    return CreateFileW(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, disposition,
                       FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

/* The error of a failed call with this path. Windows reports a directory as ERROR_ACCESS_DENIED. */
static int path_error(const wchar_t *path)
{
    const DWORD error = GetLastError();
    const DWORD attributes = error == ERROR_ACCESS_DENIED ? GetFileAttributesW(path) : INVALID_FILE_ATTRIBUTES;
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) return LS_EISDIR;
    return ls_err_from_win32(error);
}

static int fill_info(ls_file_info *info, HANDLE file)
{
    static const uint64_t to_1970 = UINT64_C(116444736000000000); /* FILETIME begins in 1601, in units of 100 ns */
    BY_HANDLE_FILE_INFORMATION file_info;
    if (GetFileType(file) != FILE_TYPE_DISK) {
        *info = (ls_file_info){.type = LS_FILE_OTHER};
        return LS_OK;
    }
    if (!GetFileInformationByHandle(file, &file_info)) return ls_err_from_win32(GetLastError());
    const uint64_t time =
        (uint64_t)file_info.ftLastWriteTime.dwHighDateTime << 32 | file_info.ftLastWriteTime.dwLowDateTime;
    const int64_t since = (int64_t)(time - to_1970);
    const bool directory = file_info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
    int64_t seconds = since / 10000000, rest = since % 10000000;
    if (rest < 0) {
        rest += 10000000;
        seconds--;
    }
    *info = (ls_file_info){.type = directory ? LS_FILE_DIRECTORY : LS_FILE_REGULAR,
                           .bytes = directory ? 0 : (uint64_t)file_info.nFileSizeHigh << 32 | file_info.nFileSizeLow,
                           .modified_s = seconds,
                           .modified_ns = (uint32_t)rest * 100,
                           .volume = file_info.dwVolumeSerialNumber,
                           .file = (uint64_t)file_info.nFileIndexHigh << 32 | file_info.nFileIndexLow};
    return LS_OK;
}

static DWORD disposition_of(unsigned flags)
{
    if (!(flags & LS_FILE_CREATE)) return flags & LS_FILE_TRUNCATE ? TRUNCATE_EXISTING : OPEN_EXISTING;
    if (flags & LS_FILE_EXCLUSIVE) return CREATE_NEW;
    return flags & LS_FILE_TRUNCATE ? CREATE_ALWAYS : OPEN_ALWAYS;
}

int ls_file_open(const char *path, unsigned flags, ls_fd *out)
{
    int err = LS_OK;
    DWORD access = flags & LS_FILE_READ ? GENERIC_READ : 0;
    wchar_t *wide = wide_of(path, &err);
    if (wide == NULL) return err;
    if (flags & LS_FILE_WRITE) access |= flags & LS_FILE_APPEND ? FILE_APPEND_DATA | SYNCHRONIZE : GENERIC_WRITE;
    const HANDLE file = open_path(wide, access, disposition_of(flags));
    if (file == INVALID_HANDLE_VALUE) err = path_error(wide);
    free(wide);
    if (err < 0) return err;
    /* Administrators can open a directory for writing this way, although it cannot be written. */
    ls_file_info info;
    if ((flags & LS_FILE_WRITE) && fill_info(&info, file) == LS_OK && info.type == LS_FILE_DIRECTORY) {
        CloseHandle(file);
        return LS_EISDIR;
    }
    *out = (ls_fd)file;
    return LS_OK;
}

void ls_file_close(ls_fd fd)
{
    CloseHandle(handle_of(fd));
}

int ls_file_stat_on_disk(const char *path, ls_file_info *info)
{
    int err = LS_OK;
    wchar_t *wide = wide_of(path, &err);
    if (wide == NULL) return err;
    const HANDLE file = open_path(wide, FILE_READ_ATTRIBUTES, OPEN_EXISTING);
    err = file == INVALID_HANDLE_VALUE ? path_error(wide) : fill_info(info, file);
    if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
    free(wide);
    return err;
}

int ls_file_stat_open(ls_fd fd, ls_file_info *info)
{
    if (fd == LS_FD_NONE) return LS_EINVAL; /* the value is also the pseudo handle of the process */
    return fill_info(info, handle_of(fd));
}

int64_t ls_file_read(ls_fd fd, void *bytes, size_t len, uint64_t offset)
{
    enum { CALL_BYTES_MAX = 1 << 30 };
    size_t done = 0;
    if (fd == LS_FD_NONE) return LS_EINVAL;
    while (done < len) {
        const uint64_t from = offset + done;
        OVERLAPPED at = {.Offset = (DWORD)from, .OffsetHigh = (DWORD)(from >> 32)};
        DWORD n = 0;
        const DWORD want = len - done < CALL_BYTES_MAX ? (DWORD)(len - done) : CALL_BYTES_MAX;
        if (!ReadFile(handle_of(fd), (char *)bytes + done, want, &n, &at)) {
            const DWORD error = GetLastError();
            if (error == ERROR_HANDLE_EOF) break;
            ls_file_info info;
            const bool may_be_directory =
                error == ERROR_INVALID_FUNCTION || error == ERROR_INVALID_PARAMETER || error == ERROR_ACCESS_DENIED;
            if (may_be_directory && fill_info(&info, handle_of(fd)) == LS_OK && info.type == LS_FILE_DIRECTORY)
                return LS_EISDIR;
            return ls_err_from_win32(error);
        }
        if (n == 0) break;
        done += n;
    }
    return (int64_t)done;
}

int ls_file_write(ls_fd fd, const ls_slice *slices, unsigned count)
{
    enum { CALL_BYTES_MAX = 1 << 30 };
    for (unsigned i = 0; i < count; i++) {
        size_t done = 0;
        while (done < slices[i].len) {
            const size_t left = slices[i].len - done;
            DWORD n = 0;
            if (!WriteFile(handle_of(fd), slices[i].ptr + done, left < CALL_BYTES_MAX ? (DWORD)left : CALL_BYTES_MAX,
                           &n, NULL))
                return ls_err_from_win32(GetLastError());
            done += n;
        }
    }
    return LS_OK;
}

int ls_file_sync(ls_fd fd)
{
    return FlushFileBuffers(handle_of(fd)) ? LS_OK : ls_err_from_win32(GetLastError());
}

/* ReplaceFileW does that. */
int ls_file_copy_access(ls_fd fd, const char *path)
{
    return LS_OK;
}

int ls_file_resolve(const char *path, char **out)
{
    return (*out = _strdup(path)) != NULL ? LS_OK : LS_ENOMEM;
}

size_t ls_file_directory_len(const char *path)
{
    size_t len = strlen(path);
    while (len > 0 && strchr("/\\:", path[len - 1]) == NULL) len--;
    return len;
}

static int move(const wchar_t *from, const wchar_t *to, bool sync)
{
    return MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | (sync ? MOVEFILE_WRITE_THROUGH : 0)) ? LS_OK
                                                                                                  : path_error(to);
}

/* ReplaceFileW keeps the attributes and the access list of the file that is replaced, which may be open. It needs one
 * to exist, and not every file system has it: then the file is moved. */
static int replace(const wchar_t *from, const wchar_t *to, bool sync)
{
    if (ReplaceFileW(to, from, NULL, REPLACEFILE_IGNORE_MERGE_ERRORS | REPLACEFILE_IGNORE_ACL_ERRORS, NULL, NULL))
        return LS_OK;
    return move(from, to, sync);
}

/* One at a time: of two moves onto one path the second finds the file of the first in use. */
static SRWLOCK moving = SRWLOCK_INIT;

static int with_two(const char *from, const char *to, int (*call)(const wchar_t *from, const wchar_t *to, bool sync),
                    bool sync)
{
    int err = LS_OK;
    wchar_t *wide_from = wide_of(from, &err), *wide_to = wide_of(to, &err);
    AcquireSRWLockExclusive(&moving);
    if (err == LS_OK) err = call(wide_from, wide_to, sync);
    ReleaseSRWLockExclusive(&moving);
    free(wide_from);
    free(wide_to);
    return err;
}

int ls_file_replace(const char *from, const char *to, bool sync)
{
    return with_two(from, to, replace, sync);
}

int ls_file_rename(const char *from, const char *to)
{
    return with_two(from, to, move, false);
}

static int with_path(const char *path, BOOL (*call)(const wchar_t *path))
{
    int err = LS_OK;
    wchar_t *wide = wide_of(path, &err);
    if (wide == NULL) return err;
    if (!call(wide)) err = ls_err_from_win32(GetLastError());
    free(wide);
    return err;
}

static BOOL remove_any(const wchar_t *path)
{
    const DWORD attributes = GetFileAttributesW(path);
    const bool directory = attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY);
    return directory ? RemoveDirectoryW(path) : DeleteFileW(path);
}

static BOOL make_directory(const wchar_t *path)
{
    return CreateDirectoryW(path, NULL);
}

int ls_file_remove(const char *path)
{
    return with_path(path, remove_any);
}

int ls_file_mkdir_one(const char *path)
{
    return with_path(path, make_directory);
}
