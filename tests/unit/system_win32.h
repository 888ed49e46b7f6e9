/* system_win32.h - see system.h. A state that Windows cannot reach skips the test, with the reason. */
#ifndef TESTS_UNIT_SYSTEM_WIN32_H
#define TESTS_UNIT_SYSTEM_WIN32_H

#include "port/fd.h"
#include "win32/posix_win32.h"

#include <winioctl.h>

enum { SYSTEM_SLOWNESS = 4 }; /* under Wine each socket call is a call of its server, which all programs share */

/* Windows has no limit of handles that a process could lower, so the tests that define TESTS_FD_LIMIT or
 * TESTS_FILE_LIMIT (CMakeLists.txt) replace WSASocketW and CreateFileW. While the limit is active, one socket can be
 * opened for each that was closed since, and no file. */
typedef int descriptors_before;

static struct {
    _Atomic int active, free;
} fd_limit;

#ifdef TESTS_FD_LIMIT
extern SOCKET(WSAAPI *__real___imp_WSASocketW)(int, int, int, WSAPROTOCOL_INFOW *, GROUP, DWORD);
extern int(WSAAPI *__real___imp_closesocket)(SOCKET);

static SOCKET WSAAPI limit_socket(int family, int type, int protocol, WSAPROTOCOL_INFOW *about, GROUP group,
                                  DWORD flags)
{
    if (fd_limit.active && --fd_limit.free < 0) {
        fd_limit.free = 0;
        WSASetLastError(WSAEMFILE);
        return INVALID_SOCKET;
    }
    return __real___imp_WSASocketW(family, type, protocol, about, group, flags);
}

static int WSAAPI limit_closesocket(SOCKET fd)
{
    const int result = __real___imp_closesocket(fd);
    if (result == 0) fd_limit.free++;
    return result;
}

SOCKET(WSAAPI *__wrap___imp_WSASocketW)(int, int, int, WSAPROTOCOL_INFOW *, GROUP, DWORD) = limit_socket;
int(WSAAPI *__wrap___imp_closesocket)(SOCKET) = limit_closesocket;
#endif

#ifdef TESTS_FILE_LIMIT
extern HANDLE(WINAPI *__real___imp_CreateFileW)(LPCWSTR, DWORD, DWORD, SECURITY_ATTRIBUTES *, DWORD, DWORD, HANDLE);

static HANDLE WINAPI limit_file(LPCWSTR path, DWORD access, DWORD share, SECURITY_ATTRIBUTES *security, DWORD how,
                                DWORD flags, HANDLE like)
{
    if (!fd_limit.active) return __real___imp_CreateFileW(path, access, share, security, how, flags, like);
    SetLastError(ERROR_TOO_MANY_OPEN_FILES);
    return INVALID_HANDLE_VALUE;
}

HANDLE(WINAPI *__wrap___imp_CreateFileW)
(LPCWSTR, DWORD, DWORD, SECURITY_ATTRIBUTES *, DWORD, DWORD, HANDLE) = limit_file;
#endif

static inline void exhaust_descriptors(descriptors_before *before)
{
    *before = 0;
    fd_limit.free = 0;
    fd_limit.active = 1;
}

static inline void restore_descriptors(const descriptors_before *before)
{
    fd_limit.active = 0;
}

/* Windows has no Unix datagrams, and a UDP datagram that does not fit is dropped. */
static inline void need_datagrams_that_wait(void)
{
    print_message("skipped: of another system: Unix datagrams, whose sends wait\n");
    skip();
}

static inline bool system_is_wine(void)
{
    return GetProcAddress(GetModuleHandleA("ntdll"), "wine_get_version") != NULL;
}

/* A reported error stays with the socket until it is fetched. Wine 8 clears it (SO_ERROR) when its server checks the
 * socket: after a reset recv returns 0, after an ICMP refusal WSAEWOULDBLOCK; and a connected datagram socket that was
 * refused once receives nothing any more. */
static inline bool system_keeps_errors(void)
{
    return !system_is_wine();
}

/* Wine 8 removes a folder when its last handle is closed, without an event for that handle. Windows ends the calls of
 * the handle with an error. */
static inline bool system_reports_removed_folders(void)
{
    return !system_is_wine();
}

/* A reset connection keeps its error: polls report it (AFD_POLL_ABORT) however often it is fetched. */
static inline bool system_resets_stay(void)
{
    return true;
}

/* Winsock has no event for the loss of a connection alone. */
static inline bool system_watches_connections(void)
{
    return false;
}

static inline bool system_has_unix_sockets(void)
{
    return false;
}

/* Wine 8 refuses to replace a file that is open. Windows replaces it when its readers have opened it with
 * FILE_SHARE_DELETE. */
static inline bool system_replaces_open_files(void)
{
    return !system_is_wine();
}

/* Access lists do not bind the user of Wine, so open both files without sharing. */
typedef struct access_before {
    HANDLE file, fresh;
} access_before;

static inline void deny_access(access_before *f, const char *dir, const char *file, const char *fresh)
{
    f->file = CreateFileA(file, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL);
    f->fresh = CreateFileA(fresh, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    assert_true(f->file != INVALID_HANDLE_VALUE && f->fresh != INVALID_HANDLE_VALUE);
}

static inline void restore_access(const access_before *f, const char *dir)
{
    CloseHandle(f->file);
    CloseHandle(f->fresh);
}

/* A file has holes only after FSCTL_SET_SPARSE: else 5 GiB would be written. */
static inline void make_sparse(ls_fd fd, uint64_t bytes)
{
    DWORD n;
    assert_true(DeviceIoControl((HANDLE)fd, FSCTL_SET_SPARSE, NULL, 0, NULL, 0, &n, NULL));
    assert_true(SetFilePointerEx((HANDLE)fd, (LARGE_INTEGER){.QuadPart = (LONGLONG)bytes}, NULL, FILE_BEGIN));
    assert_true(SetEndOfFile((HANDLE)fd));
}

#endif
