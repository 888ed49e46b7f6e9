/* posix_win32.c - the calls of posix_win32.h whose names the C library defines as functions: they replace those. */
#include "posix_win32.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>

int close(int fd)
{
    if (closesocket((SOCKET)fd) == 0) return 0;
    if (_get_osfhandle(fd) != -1) return _close(fd);
    return CloseHandle((HANDLE)(intptr_t)fd) ? 0 : -1;
}

/* The handle of a file; "/proc/self/exe" is this program. */
int open(const char *path, int flags, ...)
{
    char self[MAX_PATH];
    if (strcmp(path, "/proc/self/exe") == 0 && GetModuleFileNameA(NULL, self, sizeof self) > 0) path = self;
    return (int)(intptr_t)CreateFileA(path, GENERIC_READ | (flags & (O_WRONLY | O_CREAT) ? GENERIC_WRITE : 0),
                                      FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                                      flags & O_CREAT ? CREATE_NEW : OPEN_EXISTING, 0, NULL);
}

int dup(int fd)
{
    WSAPROTOCOL_INFOW about;
    if (!posix_is_socket(fd)) return _dup(fd);
    if (WSADuplicateSocketW((SOCKET)fd, GetCurrentProcessId(), &about) != 0) return -1;
    return (int)WSASocketW(FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, &about, 0,
                           WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
}

static HANDLE reserved; /* opened first, so lower than any other */

__attribute__((constructor)) static void take_reserved(void)
{
    reserved = CreateEventW(NULL, FALSE, FALSE, NULL);
}

/* For sockets: a duplicate with the number freed by the close. Wine assigns the lowest free number, and
 * DuplicateHandle takes one temporarily before the number of the duplicate: so all numbers below `to` are taken except
 * the reserved one. */
int dup2(int from, int to)
{
    enum { FILLERS_MAX = 1024 };
    static HANDLE fillers[FILLERS_MAX];
    int n = 0;
    if (!posix_is_socket(from)) return _dup2(from, to);
    do fillers[n] = CreateEventW(NULL, FALSE, FALSE, NULL);
    while ((intptr_t)fillers[n++] < to && n < FILLERS_MAX);
    (void)close(to);
    CloseHandle(reserved);
    const int got = dup(from);
    take_reserved();
    while (n-- > 0) CloseHandle(fillers[n]);
    return got;
}

int posix_pipe(int fds[2])
{
    HANDLE from, to;
    if (!CreatePipe(&from, &to, NULL, 65536)) return -1;
    fds[0] = (int)(intptr_t)from;
    fds[1] = (int)(intptr_t)to;
    return 0;
}

int read(int fd, void *to, unsigned len)
{
    return posix_is_socket(fd) ? posix_recv(fd, to, len, 0) : _read(fd, to, len);
}

int write(int fd, const void *from, unsigned len)
{
    DWORD written;
    if (posix_is_socket(fd)) return posix_send(fd, from, len, 0);
    /* a handle returned by fileno */
    return WriteFile((HANDLE)(intptr_t)fd, from, len, &written, NULL) ? (int)written : -1;
}

/* In the directory for temporary files, ignoring the directory in the pattern. */
char *mkdtemp(char *pattern)
{
    const size_t len = strlen(pattern);
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(pattern + len - 6, 7, "%06u", (unsigned)GetCurrentProcessId() * 1000 % 999000 + i);
        if (_mkdir(pattern) == 0) return pattern;
    }
    return NULL;
}
