/* sock_win32.c - see sock.h. */
#include "net/sock/sock.h"


#include "net/sock/rawsock.h"
#include "port/winsock_win32.h"
#include <ws2tcpip.h>

/* The path of a Unix address in UTF-16; false for an abstract name and for other families. */
static bool path_of(const ls_addr *at, wchar_t path[sizeof at->bytes + 1])
{
    if (at->family != LS_ADDR_UNIX || at->bytes_len == 0 || at->bytes[0] == '\0') return false;
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, (const char *)at->bytes, at->bytes_len, path,
                                      (int)sizeof at->bytes);
    path[n] = L'\0';
    return n > 0;
}

/* No process listens on this path: the socket was left by a process that ended without removing it. */
static bool is_abandoned(const ls_addr *at, const ls_sockaddr *sa)
{
    ls_fd fd;
    u_long off = 0;
    if (ls_rawsock_open(true, at->family, &fd) < 0) return false;
    (void)ioctlsocket(fd, FIONBIO, &off); /* else the result may be WSAEWOULDBLOCK; a Unix connect does not wait */
    const bool refused = connect(fd, (const struct sockaddr *)(const void *)sa->bytes, (int)sa->len) != 0 &&
                         WSAGetLastError() == WSAECONNREFUSED;
    (void)closesocket(fd);
    return refused;
}

static int bind_to(SOCKET fd, const ls_addr *at)
{
    ls_sockaddr sa;
    ls_addr_to(at, &sa);
    const struct sockaddr *to = (const struct sockaddr *)(const void *)sa.bytes;
    if (bind(fd, to, (int)sa.len) == 0) return LS_OK;
    if (at->family != LS_ADDR_UNIX) return ls_winsock_bind_error("tcp", at->port);
    int err = ls_winsock_error();
    if (err == LS_EADDRINUSE && is_abandoned(at, &sa)) {
        wchar_t path[sizeof at->bytes + 1];
        if (path_of(at, path)) (void)DeleteFileW(path);
        if (bind(fd, to, (int)sa.len) == 0) return LS_OK;
        err = ls_winsock_error();
    }
    return err;
}

int ls_sock_set_access(const ls_addr *at, const ls_path_access *access)
{
    (void)access; /* a site cannot set it: core.user_id does not exist on Windows */
    return LS_OK;
}

int ls_sock_listen(const ls_addr *at, uint32_t backlog, const ls_path_access *access, ls_fd *out, ls_addr *bound)
{
    ls_fd fd;
    int err;
    (void)access; /* a site cannot set it: core.user_id does not exist on Windows */
    if (at->family == LS_ADDR_UNIX && at->bytes[0] == '\0') return LS_ENOTSUP; /* Windows has no abstract names */
    if ((err = ls_rawsock_open(true, at->family, &fd)) < 0) return err;
    if ((err = ls_sock_set_up_listener(fd, at)) < 0) goto fail;
    if ((err = bind_to(fd, at)) < 0) goto fail;
    if (listen(fd, at->family == LS_ADDR_UNIX ? (int)backlog : ls_winsock_backlog(backlog)) != 0) {
        err = ls_winsock_error();
        goto fail;
    }
    if ((err = ls_sock_local(fd, bound)) < 0) goto fail;
    *out = fd;
    return LS_OK;

fail:
    (void)closesocket(fd);
    return err;
}

int ls_sock_accept(ls_fd listener, ls_fd *out, ls_sockaddr *from)
{
    u_long on = 1;
    int len = sizeof from->bytes;
    const SOCKET fd = accept(listener, (struct sockaddr *)(void *)from->bytes, &len);
    if (fd == INVALID_SOCKET) return ls_winsock_error();
    (void)ioctlsocket(fd, FIONBIO, &on);
    (void)SetHandleInformation((HANDLE)fd, HANDLE_FLAG_INHERIT, 0);
    (void)ls_rawsock_set(fd, IPPROTO_TCP, TCP_NODELAY,
                         1); /* fails for a Unix socket, which sends without delay anyway */
    from->len = (uint32_t)len;
    *out = fd;
    return LS_OK;
}

bool ls_sock_unread(ls_fd fd)
{
    u_long bytes = 0;
    return ioctlsocket(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

int64_t ls_sock_receive_now(ls_fd fd, void *to, size_t len, bool peek)
{
    const int n = recv(fd, to, (int)len, peek ? MSG_PEEK : 0);
    return n >= 0 ? n : WSAGetLastError() == WSAEWOULDBLOCK ? LS_EAGAIN : LS_ERESET;
}

int ls_sock_peer_user(ls_fd fd, uint32_t *user)
{
    return LS_ENOTSUP;
}

void ls_sock_unsent_max(ls_fd fd, uint32_t bytes)
{
    /* No option of Windows limits them: it takes a send at a time, and we send 64 KiB at most. */
}

int ls_sock_keepalive(ls_fd fd, bool on, uint32_t idle_s)
{
    WSAPROTOCOL_INFOW about;
    int len = sizeof about;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)&about, &len) != 0) return ls_winsock_error();
    if (about.iAddressFamily == AF_UNIX) return LS_ENOTSUP;
    /* Sets SO_KEEPALIVE and its idle time in one call; 1 s between probes; the system chooses their number. */
    const ULONG most_s = 32767;
    struct tcp_keepalive wanted = {
        .onoff = on, .keepalivetime = (idle_s > most_s ? most_s : idle_s) * 1000, .keepaliveinterval = 1000};
    DWORD bytes;
    return WSAIoctl(fd, SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, NULL, 0, &bytes, NULL, NULL) != 0
               ? ls_winsock_error()
               : LS_OK;
}

void ls_sock_discard(ls_fd fd)
{
    (void)closesocket(fd);
}

void ls_sock_path_id(const ls_addr *at, ls_path_id *out)
{
    wchar_t path[sizeof at->bytes + 1];
    BY_HANDLE_FILE_INFORMATION info;
    *out = (ls_path_id){0, 0};
    if (!path_of(at, path)) return;
    const HANDLE file = CreateFileW(path, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                    OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE) return;
    if (GetFileInformationByHandle(file, &info))
        *out = (ls_path_id){info.dwVolumeSerialNumber, (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow};
    (void)CloseHandle(file);
}

void ls_sock_unlink(const ls_addr *at, const ls_path_id *id)
{
    wchar_t path[sizeof at->bytes + 1];
    ls_path_id now;
    if (!path_of(at, path)) return;
    ls_sock_path_id(at, &now);
    if (now.device == id->device && now.inode == id->inode) (void)DeleteFileW(path);
}
