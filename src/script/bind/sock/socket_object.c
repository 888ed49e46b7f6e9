/* socket_object.c - ls.socket: a non-blocking socket, for which the script waits with ls.notify.
 *
 * No call here waits: a call that would block returns nil, "would block", "EAGAIN". */
#include <string.h>

#include "net/sock/rawsock.h"
#include "net/sock/sock.h"
#include "script/bind/bind_aux.h"
#include "script/bind/sock/notify_internal.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/sock/udp_object_internal.h"
#include "script/core/lua/udata.h"

enum { RECEIVE_BYTES_DEFAULT = 65536, RECEIVE_BYTES_MAX = 16 * 1024 * 1024 };

static const ls_object_type socket_type;

typedef struct raw_socket {
    const void *tag;
    ls_fd fd; /* LS_FD_NONE: closed */
    bool stream;
} raw_socket;

static raw_socket *socket_at(lua_State *L, int index)
{
    return ls_udata_test(L, index, &socket_type, sizeof(raw_socket));
}

bool ls_socket_test(lua_State *L, int index, ls_fd *fd)
{
    const raw_socket *sock = socket_at(L, index);
    if (sock != NULL) *fd = sock->fd;
    return sock != NULL;
}

static raw_socket *socket_check(lua_State *L)
{
    raw_socket *sock = ls_udata_check(L, 1, &socket_type, sizeof *sock, "socket");
    if (sock->fd == LS_FD_NONE) luaL_error(L, "this socket was closed");
    return sock;
}

static raw_socket *socket_push(lua_State *L, bool stream)
{
    raw_socket *sock = ls_object_push(L, sizeof *sock, 0, &socket_type);
    sock->fd = LS_FD_NONE;
    sock->stream = stream;
    return sock;
}

/* core.socket("tcp"|"udp" [, "ip4"|"ip6"]) -> socket | nil, message, code */
static int core_socket(lua_State *L)
{
    static const char *const kinds[] = {"udp", "tcp", NULL}, *const families[] = {"ip4", "ip6", NULL};
    const bool stream = luaL_checkoption(L, 1, NULL, kinds) == 1;
    const uint8_t family = luaL_checkoption(L, 2, "ip4", families) == 1 ? LS_ADDR_IP6 : LS_ADDR_IP4;
    raw_socket *sock = socket_push(L, stream);
    ls_sockets_make_room(L);
    int err = ls_rawsock_open(stream, family, &sock->fd);
    if (ls_sockets_collect(L, err)) err = ls_rawsock_open(stream, family, &sock->fd);
    if (err < 0) return ls_push_failure(L, err);
    ls_sockets_opened(ls_state_of(L));
    return 1;
}

/* Read an address from the host at `index` and the port after it. false: nil, message, code are on the stack. */
static bool check_address(lua_State *L, int index, bool any_port, ls_addr *out)
{
    int whole;
    (void)luaL_checkstring(L, index);
    const lua_Integer port = lua_tointegerx(L, index + 1, &whole);
    if (!whole || port < (any_port ? 0 : 1) || port > 65535)
        luaL_argerror(L, index + 1, "port must be a whole number from 1 to 65535 (0 binds to a free port)");
    if (ls_udp_check_host(L, index, (uint16_t)port, out)) return true;
    (void)ls_udp_push_bad_host(L, index);
    return false;
}

/* socket:bind(host, port) -> true | nil, message, code
 * Binds the socket to an address; port 0 picks a free one. */
static int socket_bind(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    ls_addr at;
    if (!check_address(L, 2, true, &at)) return 3;
    return ls_push_result(L, ls_rawsock_bind(sock->fd, sock->stream, &at));
}

/* socket:listen([backlog: integer]) -> true | nil, message, code
 * Accepts connections from now on; the default of `backlog` is 1024. */
static int socket_listen(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    return ls_push_result(L, ls_rawsock_listen(sock->fd, (int)luaL_optinteger(L, 2, 1024)));
}

/* socket:accept() -> socket, host, port | nil, message, code
 * Takes a connection; its peer has the address. */
static int socket_accept(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    raw_socket *accepted = socket_push(L, true);
    char text[LS_ADDR_TEXT_BYTES];
    ls_sockaddr from;
    ls_addr addr;
    ls_sockets_make_room(L);
    int err = ls_sock_accept(sock->fd, &accepted->fd, &from);
    if (ls_sockets_collect(L, err)) err = ls_sock_accept(sock->fd, &accepted->fd, &from);
    if (err < 0) return ls_push_failure(L, err);
    ls_sockets_opened(ls_state_of(L));
    ls_addr_of(&from, &addr);
    lua_pushstring(L, ls_addr_host(&addr, text));
    lua_pushinteger(L, addr.port);
    return 3;
}

/* socket:connect(host, port) -> true | nil, message, code
 * Connects. After EAGAIN wait for "out", then call socket:error(). */
static int socket_connect(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    ls_addr to;
    if (!check_address(L, 2, false, &to)) return 3;
    return ls_push_result(L, ls_rawsock_connect(sock->fd, &to));
}

static size_t check_room(lua_State *L, int index)
{
    const lua_Integer room = luaL_optinteger(L, index, RECEIVE_BYTES_DEFAULT);
    luaL_argcheck(L, room >= 1 && room <= RECEIVE_BYTES_MAX, index, "size must be from 1 byte to 16 MiB");
    return (size_t)room;
}

/* socket:receive([max]) -> data: string | nil, message, code
 * Receives at most `max` bytes (65536); "" at the end of a TCP connection. */
static int socket_receive(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    const size_t room = check_room(L, 2);
    luaL_Buffer text;
    char *bytes = luaL_buffinitsize(L, &text, room);
    const int got = ls_rawsock_receive(sock->fd, bytes, room, NULL, NULL);
    luaL_pushresultsize(&text, got < 0 ? 0 : (size_t)got);
    return got < 0 ? ls_push_failure(L, got) : 1;
}

/* socket:receivefrom([max]) -> data: string, host, port, truncated: boolean | nil, message, code
 * Receives a datagram, at most `max` bytes of it (65536), and its sender. */
static int socket_receivefrom(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    const size_t room = check_room(L, 2);
    char text[LS_ADDR_TEXT_BYTES];
    luaL_Buffer data;
    ls_addr from;
    bool truncated;
    if (sock->stream) return luaL_error(L, "receivefrom is for UDP sockets; use receive on a TCP socket");
    char *bytes = luaL_buffinitsize(L, &data, room);
    const int got = ls_rawsock_receive(sock->fd, bytes, room, &from, &truncated);
    luaL_pushresultsize(&data, got < 0 ? 0 : (size_t)got);
    if (got < 0) return ls_push_failure(L, got);
    lua_pushstring(L, ls_addr_host(&from, text));
    lua_pushinteger(L, from.port);
    lua_pushboolean(L, truncated);
    return 4;
}

static int send_to(lua_State *L, const raw_socket *sock, const ls_addr *to)
{
    const ls_text bytes = ls_check_text(L, 2);
    const int sent = ls_rawsock_send(sock->fd, bytes.ptr, bytes.len, to);
    if (sent < 0) return ls_push_failure(L, sent);
    return ls_push_integer(L, sent);
}

/* socket:send(data: string|number) -> bytes: integer | nil, message, code
 * Sends; returns the number of bytes that the system has accepted. */
static int socket_send(lua_State *L)
{
    return send_to(L, socket_check(L), NULL);
}

/* socket:sendto(data: string|number, host, port) -> bytes: integer | nil, message, code
 * Sends a datagram. */
static int socket_sendto(lua_State *L)
{
    const raw_socket *sock = socket_check(L);
    ls_addr to;
    if (!check_address(L, 3, false, &to)) return 3;
    return send_to(L, sock, &to);
}

/* socket:error() -> nil | nil, message, code
 * Returns and clears the pending error of the socket (SO_ERROR); nothing without one. */
static int socket_error(lua_State *L)
{
    const int err = ls_rawsock_error(socket_check(L)->fd);
    return err < 0 ? ls_push_failure(L, err) : 0;
}

/* socket:shutdown() -> true | nil, message, code
 * Ends the sending direction. */
static int socket_shutdown(lua_State *L)
{
    return ls_push_result(L, ls_rawsock_shutdown(socket_check(L)->fd));
}

/* socket:close()
 * Closes the socket. A task that waits for a notification of it wakes with ENOENT. */
static int socket_close(lua_State *L)
{
    raw_socket *sock = ls_udata_check(L, 1, &socket_type, sizeof *sock, "socket");
    const ls_fd fd = sock->fd;
    sock->fd = LS_FD_NONE;
    if (fd == LS_FD_NONE) return 0;
    ls_notify_unregister(L, fd);
    ls_sock_discard(fd);
    ls_sockets_closed(ls_state_of(L));
    return 0;
}

/* socket is a Socket: a non-blocking socket of ls.socket. A call that would wait returns nil, a message and "EAGAIN".
 * socket.fd: integer? - the number of the descriptor; nil when closed
 * socket.local_ip: string? - address of this side; nil when closed
 * socket.local_port: integer? - port of this side
 * socket.local_addr: string? - both as text */
static int socket_index(lua_State *L)
{
    const raw_socket *sock = socket_at(L, 1);
    ls_addr local;
    if (ls_push_method(L, "a socket")) return 1;
    if (sock == NULL || sock->fd == LS_FD_NONE) return 0;
    const char *name = lua_tostring(L, 2);
    if (strcmp(name, "fd") != 0)
        return ls_sock_local(sock->fd, &local) == LS_OK ? ls_push_addr_field(L, name, &local) : 0;
    return ls_push_integer(L, (lua_Integer)sock->fd);
}

static const luaL_Reg methods[] = {
    {"socket:bind(host, port)", socket_bind}, {"socket:listen(backlog)", socket_listen},
    {"socket:accept()", socket_accept},       {"socket:connect(host, port)", socket_connect},
    {"socket:receive(max)", socket_receive},  {"socket:receivefrom(max)", socket_receivefrom},
    {"socket:send(data)", socket_send},       {"socket:sendto(data, host, port)", socket_sendto},
    {"socket:error()", socket_error},         {"socket:shutdown()", socket_shutdown},
    {"socket:close()", socket_close},         {NULL, NULL}};
static const char *const fields[] = {"fd", "local_ip", "local_port", "local_addr", NULL};
static const ls_object_type socket_type = {
    .name = "socket", .methods = methods, .fields = fields, .index = socket_index, .drop = socket_close};

static const luaL_Reg functions[] = {{"socket", core_socket}, {NULL, NULL}};

const ls_module ls_socket_module = {.name = "socket", .bytes = sizeof(ls_sockets), .functions = functions};
