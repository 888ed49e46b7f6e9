/* file_win32.c - the calls behind file.h on Windows: CreateFileW, GetFileInformationByHandle, ReadFile and WriteFile
 * at an offset, FlushFileBuffers, DeleteFileW, CloseHandle. Files are opened with full sharing: other programs may
 * read, write, rename and delete them meanwhile, as on POSIX. */
#include "port/file_internal.h"

#include <windows.h>

#include <stdlib.h>

#include "base/err_win32.h"
#include "port/shared_file.h"

const uint32_t ls_shared_file_copy_max = UINT32_MAX;

bool ls_file_is_absolute(const char *path)
{
    const char letter = (char)(*path | 0x20);
    return *path == '/' || *path == '\\' || (letter >= 'a' && letter <= 'z' && path[1] == ':');
}

/* The path in UTF-16, which the caller frees; NULL: *err is set. */
static wchar_t *wide(const char *path, int *err)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    *err = LS_ENOENT; /* an invalid name cannot exist */
    if (n <= 0) return NULL;
    wchar_t *text = malloc((size_t)n * sizeof *text);
    *err = LS_ENOMEM;
    if (text != NULL) (void)MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, text, n);
    return text;
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

static int run_open(ls_file_op *op, const wchar_t *path)
{
    DWORD access = 0, disposition = OPEN_EXISTING;
    if (op->flags & LS_FILE_READ) access |= GENERIC_READ;
    if (op->flags & LS_FILE_WRITE) access |= GENERIC_WRITE;
    if (op->flags & LS_FILE_CREATE) disposition = OPEN_ALWAYS;
    if (op->flags & LS_FILE_TRUNCATE) disposition = op->flags & LS_FILE_CREATE ? CREATE_ALWAYS : TRUNCATE_EXISTING;
    if ((op->flags & LS_FILE_CREATE) && (op->flags & LS_FILE_EXCLUSIVE)) disposition = CREATE_NEW;
    const HANDLE file = open_path(path, access, disposition);
    if (file == INVALID_HANDLE_VALUE) return path_error(path);
    /* Administrators can open a directory for writing this way, although it cannot be written. */
    FILE_BASIC_INFO basic;
    if ((op->flags & LS_FILE_WRITE) && GetFileInformationByHandleEx(file, FileBasicInfo, &basic, sizeof basic) &&
        (basic.FileAttributes & FILE_ATTRIBUTE_DIRECTORY)) {
        CloseHandle(file);
        return LS_EISDIR;
    }
    op->fd = (ls_fd)file;
    return LS_OK;
}

static int run_stat(ls_file_op *op, const wchar_t *path)
{
    const HANDLE file = open_path(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING);
    if (file == INVALID_HANDLE_VALUE) return path_error(path);
    const int err = fill_info(&op->info, file);
    CloseHandle(file);
    return err;
}

static int run_path(ls_file_op *op)
{
    int err;
    wchar_t *path = wide(op->path, &err);
    if (path == NULL) return err;
    if (op->action == DO_OPEN)
        err = run_open(op, path);
    else if (op->action == DO_STAT)
        err = run_stat(op, path);
    else
        err = DeleteFileW(path) ? LS_OK : path_error(path);
    free(path);
    return err;
}

static int64_t transfer(const ls_file_op *op)
{
    const HANDLE file = (HANDLE)op->fd; /* NOLINT(performance-no-int-to-ptr) */
    OVERLAPPED at = {.Offset = (DWORD)op->offset, .OffsetHigh = (DWORD)(op->offset >> 32)};
    DWORD n = 0;
    const BOOL done = op->action == DO_READ ? ReadFile(file, op->bytes, op->op.len, &n, &at)
                                            : WriteFile(file, op->bytes, op->op.len, &n, &at);
    if (done) return n;
    const DWORD error = GetLastError();
    if (op->action == DO_READ && error == ERROR_HANDLE_EOF) return 0;
    ls_file_info info;
    const bool may_be_directory =
        error == ERROR_INVALID_FUNCTION || error == ERROR_INVALID_PARAMETER || error == ERROR_ACCESS_DENIED;
    if (may_be_directory && fill_info(&info, file) == LS_OK && info.type == LS_FILE_DIRECTORY) return LS_EISDIR;
    return ls_err_from_win32(error);
}

void ls_file_drop(ls_fd fd)
{
    CloseHandle((HANDLE)fd); /* NOLINT(performance-no-int-to-ptr) */
}

int64_t ls_file_run(ls_file_op *op)
{
    const HANDLE file = (HANDLE)op->fd; /* NOLINT(performance-no-int-to-ptr) */
    const bool by_path = op->action == DO_OPEN || op->action == DO_STAT || op->action == DO_UNLINK;
    BOOL done;
    if (by_path) return run_path(op);
    if (op->fd == LS_FD_NONE) return LS_EINVAL; /* the value is also the pseudo handle of the process */
    switch (op->action) {
    case DO_STAT_OPEN: return fill_info(&op->info, file);
    case DO_READ:
    case DO_WRITE: return transfer(op);
    case DO_SYNC: done = FlushFileBuffers(file); break;
    default: done = CloseHandle(file); break;
    }
    return done ? LS_OK : ls_err_from_win32(GetLastError());
}
