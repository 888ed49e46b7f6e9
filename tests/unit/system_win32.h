/* system_win32.h - see system.h. What cannot be had here skips the test, and says why. */
#ifndef TESTS_UNIT_SYSTEM_WIN32_H
#define TESTS_UNIT_SYSTEM_WIN32_H

#include "win32/posix_win32.h"

/* Windows has no limit of handles that a process could lower: the port's calls of WSASocketW come here in test_port
 * (CMakeLists.txt), and while the door is closed there is a socket for each that was closed since. */
typedef int descriptors_before;

static struct {
    _Atomic int closed, free;
} door;

#ifdef TESTS_DOOR
extern SOCKET(WSAAPI *__real___imp_WSASocketW)(int, int, int, WSAPROTOCOL_INFOW *, GROUP, DWORD);
extern int(WSAAPI *__real___imp_closesocket)(SOCKET);

static SOCKET WSAAPI door_socket(int family, int type, int protocol, WSAPROTOCOL_INFOW *about, GROUP group,
                                 DWORD flags)
{
    if (door.closed && --door.free < 0) {
        door.free = 0;
        WSASetLastError(WSAEMFILE);
        return INVALID_SOCKET;
    }
    return __real___imp_WSASocketW(family, type, protocol, about, group, flags);
}

static int WSAAPI door_closesocket(SOCKET fd)
{
    const int result = __real___imp_closesocket(fd);
    if (result == 0) door.free++;
    return result;
}

SOCKET(WSAAPI *__wrap___imp_WSASocketW)(int, int, int, WSAPROTOCOL_INFOW *, GROUP, DWORD) = door_socket;
int(WSAAPI *__wrap___imp_closesocket)(SOCKET) = door_closesocket;
#endif

static inline void close_the_door(descriptors_before *before)
{
    *before = 0;
    door.free = 0;
    door.closed = 1;
}

static inline void open_the_door(const descriptors_before *before)
{
    (void)before;
    door.closed = 0;
}

/* There are no Unix datagrams, and those of UDP are dropped when nothing fits. */
static inline void need_datagrams_that_wait(void)
{
    print_message("skipped: a full UDP socket drops, no send waits\n");
    skip();
}

/* An error that was reported stays with the socket until it is fetched. Wine 8 takes it (SO_ERROR) when its server looks at
 * the socket: after a reset recv gives 0, after ICMP's refusal WSAEWOULDBLOCK; and a connected
 * datagram socket that was refused once receives nothing any more. */
static inline bool system_keeps_errors(void)
{
    return GetProcAddress(GetModuleHandleA("ntdll"), "wine_get_version") == NULL;
}

/* A connection that was reset has an error for good: polls tell it (AFD_POLL_ABORT) however often it is fetched. */
static inline bool system_resets_stay(void)
{
    return true;
}

static inline bool system_has_unix_sockets(void)
{
    return false;
}

/* Rights are lists here, which chmod does not change. */
static inline void rights_begin(void)
{
    print_message("skipped: chmod takes no rights away\n");
    skip();
}

static inline void rights_end(void)
{
}

/* What a process may open is bounded by memory alone; close_the_door is for sockets. */
static inline void need_a_limit_of_files(void)
{
    print_message("skipped: there is no limit of open files\n");
    skip();
}

/* A file is sparse here only when it is told to be: 5 GiB would be written. */
static inline void need_sparse_files(void)
{
    print_message("skipped: files have no holes\n");
    skip();
}

/* The system's resolver cannot be told whom to ask: it answers some time later. */
static inline int name_server_that_is_silent(char *servers, size_t bytes)
{
    (void)snprintf(servers, bytes, "%s", "");
    return -1;
}

static inline void name_server_end(int server)
{
    (void)server;
}

#endif
