/* test_sock.c - listening sockets: free ports, ports in use, and abandoned Unix paths. */
/* sanitizers: asan; no thread starts */
#include "port/port_fixture.h"

#include <netinet/tcp.h>
#include <sys/un.h>

#include "net/sock/sock.h"
#include "system.h"

static ls_addr addr(const char *host, uint16_t port)
{
    ls_addr at;
    assert_int_equal(ls_addr_parse(host, port, &at), LS_OK);
    return at;
}

/* A new directory, and an address inside it. */
static ls_addr unix_addr(char *dir)
{
    char host[64];
    assert_non_null(mkdtemp(dir));
    snprintf(host, sizeof host, "unix:%s/s", dir);
    return addr(host, 0);
}

static const char *path_of(const ls_addr *at)
{
    static char path[sizeof at->bytes + 1];
    memcpy(path, at->bytes, at->bytes_len);
    path[at->bytes_len] = '\0';
    return path;
}

static bool exists(const ls_addr *at)
{
    return access(path_of(at), F_OK) == 0;
}

static int dial(const ls_addr *to)
{
    ls_sockaddr sa;
    ls_addr_to(to, &sa);
    const int fd = socket(to->family == LS_ADDR_UNIX ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)sa.bytes, sa.len) == 0) return fd;
    close(fd);
    return -1;
}

TEST(port_0_picks_a_free_one)
{
    const ls_addr at = addr("127.0.0.1", 0);
    ls_addr bound, other;
    ls_fd fd, second;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &second, &other), LS_OK);
    assert_int_equal(bound.family, LS_ADDR_IP4);
    assert_int_not_equal(bound.port, 0);
    assert_int_not_equal(bound.port, other.port);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    ls_sock_discard(second);
    ls_sock_discard(fd);
}

TEST(listening_twice_is_refused)
{
    ls_addr at = addr("127.0.0.1", 0), bound, untouched;
    ls_fd fd, second = -7;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    memset(&untouched, 0x5a, sizeof untouched);
    const ls_addr before = untouched;
    assert_int_equal(ls_sock_listen(&bound, 8, NULL, &second, &untouched), LS_EADDRINUSE);
    assert_int_equal(second, -7);
    assert_memory_equal(&untouched, &before, sizeof before);

    /* Nor can another program take over the address with SO_REUSEADDR, which Windows permits unless the listener has
     * requested exclusive use. */
    const int thief = socket(AF_INET, SOCK_STREAM, 0);
    ls_sockaddr wanted;
    ls_addr_to(&bound, &wanted);
    assert_int_equal(setsockopt(thief, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    assert_true(bind(thief, (const struct sockaddr *)wanted.bytes, wanted.len) != 0 || listen(thief, 1) != 0);
    close(thief);

    /* A served connection leaves TIME_WAIT, which does not block the port. */
    ls_sockaddr from;
    ls_fd ours;
    const int theirs = dial(&bound);
    assert_true(theirs >= 0);
    assert_int_equal(ls_sock_accept(fd, &ours, &from), LS_OK);
    ls_sock_discard(ours);
    close(theirs);
    ls_sock_discard(fd);
    assert_int_equal(ls_sock_listen(&bound, 8, NULL, &fd, &at), LS_OK);
    assert_int_equal(at.port, bound.port);
    ls_sock_discard(fd);
}

TEST(an_address_of_another_machine)
{
    const ls_addr at = addr("192.0.2.1", 0); /* for documentation, RFC 5737 */
    ls_addr bound;
    ls_fd fd;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_EADDRNOTAVAIL);
}

TEST(accepting)
{
    const ls_addr at = addr("127.0.0.1", 0);
    ls_addr bound, local, peer;
    ls_sockaddr from;
    ls_fd fd, ours = -7;
    int nodelay = 0;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    assert_int_equal(ls_sock_accept(fd, &ours, &from), LS_EAGAIN);
    assert_int_equal(ours, -7);
    const int theirs = dial(&bound);
    assert_true(theirs >= 0);
    assert_int_equal(ls_sock_accept(fd, &ours, &from), LS_OK);
    assert_true(fcntl(ours, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(ours, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_NODELAY, &nodelay, &(socklen_t){sizeof nodelay}), 0);
    assert_true(nodelay);
    assert_int_equal(ls_sock_local(ours, &local), LS_OK);
    assert_int_equal(local.port, bound.port);
    ls_addr_of(&from, &peer);
    assert_int_equal(ls_sock_local(theirs, &local), LS_OK);
    assert_int_equal(peer.port, local.port);
    assert_true(ls_sock_local(-1, &local) < 0);
    close(theirs);
    ls_sock_discard(ours);
    ls_sock_discard(fd);
}

/* Without Unix sockets every path is refused. */
static bool is_refused(const ls_addr *at)
{
    ls_addr bound;
    ls_fd fd;
    if (system_has_unix_sockets()) return false;
    assert_int_equal(ls_sock_listen(at, 8, NULL, &fd, &bound), LS_ENOTSUP);
    assert_int_equal(ls_sock_open(LS_ADDR_UNIX, &fd), LS_ENOTSUP);
    return true;
}

/* As a listener does when it stops. */
static void remove_path(const ls_addr *at, ls_fd fd)
{
    ls_path_id id;
    ls_sock_path_id(at, &id);
    ls_sock_unlink(at, &id);
    ls_sock_discard(fd);
    assert_false(exists(at));
}

TEST(an_abandoned_path_is_replaced)
{
    char dir[] = TEST_SCRATCH_PATH;
    const ls_addr at = unix_addr(dir);
    if (is_refused(&at)) return;
    ls_addr bound;
    ls_fd fd, second;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    assert_memory_equal(bound.bytes, at.bytes, at.bytes_len);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &second, &bound), LS_EADDRINUSE); /* in use */
    const int theirs = dial(&at);
    assert_true(theirs >= 0);
    close(theirs);
    ls_sock_discard(fd); /* as when a process is killed: the path stays */
    assert_true(exists(&at));
    assert_int_equal(dial(&at), -1);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    remove_path(&at, fd);
    assert_int_equal(rmdir(dir), 0);
}

TEST(a_path_of_another_file_type_is_kept)
{
    char dir[] = TEST_SCRATCH_PATH;
    const ls_addr at = unix_addr(dir);
    if (is_refused(&at)) return;
    ls_addr bound;
    ls_fd fd;
    const int file = open(path_of(&at), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_EEXIST);
    assert_true(exists(&at));
    assert_int_equal(unlink(path_of(&at)), 0);
    assert_int_equal(rmdir(dir), 0);
}

TEST(an_abstract_name_has_no_path)
{
    char name[64];
    ls_addr bound;
    ls_fd fd, second;
    snprintf(name, sizeof name, "unix:@luaserve-test-%d", (int)getpid());
    const ls_addr at = addr(name, 0);
    if (is_refused(&at)) return;
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &second, &bound), LS_EADDRINUSE);
    ls_path_id id;
    ls_sock_path_id(&at, &id);
    ls_sock_unlink(&at, &id); /* no path to remove */
    ls_sock_discard(fd);
    assert_int_equal(ls_sock_listen(&at, 8, NULL, &fd, &bound), LS_OK);
    ls_sock_discard(fd);
}
