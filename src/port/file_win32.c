/* file_win32.c - the calls behind file.h on Windows: CreateFileW, GetFileInformationByHandle, ReadFile and WriteFile at an
 * offset, FlushFileBuffers, DeleteFileW, CloseHandle. Files are opened so that others may read, write, rename and delete
 * them meanwhile, as on POSIX. */
#include "port/file_internal.h"

#include <windows.h>

#include <stdlib.h>

#include "base/err_win32.h"

/* The path in UTF-16, to be freed; NULL: *err is set. */
static wchar_t *wide(const char *path, int *err)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    *err = LS_ENOENT; /* no name on this system */
    if (n <= 0) return NULL;
    wchar_t *text = malloc((size_t)n * sizeof *text);
    *err = LS_ENOMEM;
    if (text != NULL) (void)MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, text, n);
    return text;
}

static HANDLE open_path(const wchar_t *path, DWORD access, DWORD how)
{
    /* BACKUP_SEMANTICS: directories, too. */
    return CreateFileW(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, how,
                       FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

/* Of a failed call with this path: access to a directory is refused, which is not a matter of rights. */
static int path_error(const wchar_t *path)
{
    const DWORD error = GetLastError();
    const DWORD attributes = error == ERROR_ACCESS_DENIED ? GetFileAttributesW(path) : INVALID_FILE_ATTRIBUTES;
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) return LS_EISDIR;
    return ls_err_from_win32(error);
}

static int inform(ls_file_info *info, HANDLE file)
{
    static const uint64_t to_1970 = UINT64_C(116444736000000000); /* FILETIME begins in 1601, in units of 100 ns */
    BY_HANDLE_FILE_INFORMATION is;
    if (GetFileType(file) != FILE_TYPE_DISK) {
        *info = (ls_file_info){.type = LS_FILE_OTHER};
        return LS_OK;
    }
    if (!GetFileInformationByHandle(file, &is)) return ls_err_from_win32(GetLastError());
    const uint64_t time = (uint64_t)is.ftLastWriteTime.dwHighDateTime << 32 | is.ftLastWriteTime.dwLowDateTime;
    const int64_t since = (int64_t)(time - to_1970);
    const bool directory = is.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
    int64_t seconds = since / 10000000, rest = since % 10000000;
    if (rest < 0) {
        rest += 10000000;
        seconds--;
    }
    *info = (ls_file_info){.type = directory ? LS_FILE_DIRECTORY : LS_FILE_REGULAR,
                           .bytes = directory ? 0 : (uint64_t)is.nFileSizeHigh << 32 | is.nFileSizeLow,
                           .modified_s = seconds,
                           .modified_ns = (uint32_t)rest * 100,
                           .volume = is.dwVolumeSerialNumber,
                           .file = (uint64_t)is.nFileIndexHigh << 32 | is.nFileIndexLow};
    return LS_OK;
}

static int run_open(ls_file_op *op, const wchar_t *path)
{
    DWORD access = 0, how = OPEN_EXISTING;
    if (op->flags & LS_FILE_READ) access |= GENERIC_READ;
    if (op->flags & LS_FILE_WRITE) access |= GENERIC_WRITE;
    if (op->flags & LS_FILE_CREATE) how = OPEN_ALWAYS;
    if (op->flags & LS_FILE_TRUNCATE) how = op->flags & LS_FILE_CREATE ? CREATE_ALWAYS : TRUNCATE_EXISTING;
    if ((op->flags & LS_FILE_CREATE) && (op->flags & LS_FILE_EXCLUSIVE)) how = CREATE_NEW;
    const HANDLE file = open_path(path, access, how);
    if (file == INVALID_HANDLE_VALUE) return path_error(path);
    /* Administrators can open a directory for writing this way; nobody can write to it. */
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
    const int err = inform(&op->info, file);
    CloseHandle(file);
    return err;
}

static int run_path(ls_file_op *op)
{
    int err;
    wchar_t *path = wide(op->path, &err);
    if (path == NULL) return err;
    if (op->what == DO_OPEN)
        err = run_open(op, path);
    else if (op->what == DO_STAT)
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
    const BOOL done = op->what == DO_READ ? ReadFile(file, op->bytes, op->op.len, &n, &at)
                                          : WriteFile(file, op->bytes, op->op.len, &n, &at);
    if (done) return n;
    const DWORD error = GetLastError();
    if (op->what == DO_READ && error == ERROR_HANDLE_EOF) return 0;
    ls_file_info info;
    const bool odd =
        error == ERROR_INVALID_FUNCTION || error == ERROR_INVALID_PARAMETER || error == ERROR_ACCESS_DENIED;
    if (odd && inform(&info, file) == LS_OK && info.type == LS_FILE_DIRECTORY) return LS_EISDIR;
    return ls_err_from_win32(error);
}

void ls_file_drop(ls_fd fd)
{
    CloseHandle((HANDLE)fd); /* NOLINT(performance-no-int-to-ptr) */
}

int64_t ls_file_run(ls_file_op *op)
{
    const HANDLE file = (HANDLE)op->fd; /* NOLINT(performance-no-int-to-ptr) */
    const bool by_path = op->what == DO_OPEN || op->what == DO_STAT || op->what == DO_UNLINK;
    BOOL done;
    if (by_path) return run_path(op);
    if (op->fd == LS_FD_NONE) return LS_EINVAL; /* which is also how a process is called by itself */
    switch (op->what) {
    case DO_STAT_OPEN: return inform(&op->info, file);
    case DO_READ:
    case DO_WRITE: return transfer(op);
    case DO_SYNC: done = FlushFileBuffers(file); break;
    default: done = CloseHandle(file); break;
    }
    return done ? LS_OK : ls_err_from_win32(GetLastError());
}
