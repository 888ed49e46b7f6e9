/* test_sock_posix.c - the paths of Unix listeners: which are in use, their permissions, whose file is removed. */
#define _GNU_SOURCE
#include "port/port_fixture.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "base/os/thread.h"
#include "net/sock/sock.h"

typedef struct place {
    char dir[sizeof TEST_SCRATCH_PATH], path[64];
    ls_addr at;
} place;

static void place_open(place *p)
{
    char host[80];
    strcpy(p->dir, TEST_SCRATCH_PATH);
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/s", p->dir);
    snprintf(host, sizeof host, "unix:%s", p->path);
    assert_int_equal(ls_addr_parse(host, 0, &p->at), LS_OK);
}

static void place_close(const place *p)
{
    assert_int_equal(rmdir(p->dir), 0);
}

static int listen_at(const place *p, ls_fd *out)
{
    ls_addr bound;
    return ls_sock_listen(&p->at, 8, NULL, out, &bound);
}

static int bind_socket(const place *p, int type)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    strcpy(at.sun_path, p->path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static ls_path_id id_of(const place *p)
{
    ls_path_id id;
    ls_sock_path_id(&p->at, &id);
    return id;
}

TEST_IN(place, p, a_path_that_is_bound_but_not_listened_on_is_in_use)
{
    ls_fd fd;
    const int other = bind_socket(p, SOCK_STREAM);
    const ls_path_id before = id_of(p);
    assert_int_equal(listen_at(p, &fd), LS_EADDRINUSE);
    assert_int_equal(id_of(p).inode, before.inode);
    assert_int_equal(listen(other, 1), 0);
    assert_int_equal(listen_at(p, &fd), LS_EADDRINUSE);
    assert_int_equal(accept(other, NULL, NULL), -1); /* the check has not connected to it */
    close(other);
    assert_int_equal(listen_at(p, &fd), LS_OK);
    const ls_path_id id = id_of(p);
    ls_sock_unlink(&p->at, &id);
    ls_sock_discard(fd);
}

TEST_IN(place, p, a_socket_of_another_type_is_named)
{
    static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    ls_fd fd;
    for (size_t i = 0; i < 2; i++) {
        const int other = bind_socket(p, types[i]);
        assert_int_equal(listen_at(p, &fd), LS_EPROTOTYPE);
        if (types[i] == SOCK_SEQPACKET) assert_int_equal(listen(other, 4), 0);
        assert_int_equal(listen_at(p, &fd), LS_EPROTOTYPE);
        close(other);
        assert_int_equal(unlink(p->path), 0);
    }
}

TEST_IN(place, p, only_its_own_file_is_removed)
{
    ls_fd first, second;
    assert_int_equal(listen_at(p, &first), LS_OK);
    const ls_path_id id = id_of(p);
    assert_int_equal(unlink(p->path), 0);
    assert_int_equal(listen_at(p, &second), LS_OK);
    const ls_path_id other = id_of(p);
    ls_sock_unlink(&p->at, &id);
    assert_int_equal(id_of(p).inode, other.inode);
    ls_sock_unlink(&p->at, &other);
    assert_int_equal(id_of(p).inode, 0);
    ls_sock_unlink(&p->at, &other); /* nothing is there */
    ls_sock_discard(first);
    ls_sock_discard(second);
}

TEST(a_path_has_its_mode_and_owner)
{
    static const uint32_t modes[] = {0, 0600, 0660, 0777};
    place p;
    ls_fd fd;
    ls_addr bound;
    struct stat st;
    place_open(&p);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        const ls_path_access access = {.has_mode = true,
                                       .has_user = true,
                                       .has_group = true,
                                       .mode = modes[i],
                                       .user = geteuid(),
                                       .group = getegid()};
        assert_int_equal(ls_sock_listen(&p.at, 8, &access, &fd, &bound), LS_OK);
        assert_int_equal(lstat(p.path, &st), 0);
        assert_int_equal(st.st_mode & 07777, modes[i]);
        assert_int_equal(st.st_uid, geteuid());
        const ls_path_id id = id_of(&p);
        ls_sock_unlink(&p.at, &id);
        ls_sock_discard(fd);
    }
    if (geteuid() == 0) { /* only root gives a file away */
        const ls_path_access access = {.has_user = true, .user = 12345};
        assert_int_equal(ls_sock_listen(&p.at, 8, &access, &fd, &bound), LS_OK);
        assert_int_equal(lstat(p.path, &st), 0);
        assert_int_equal(st.st_uid, 12345);
        assert_int_equal(st.st_gid, getegid());
        const ls_path_id id = id_of(&p);
        ls_sock_unlink(&p.at, &id);
        ls_sock_discard(fd);
    } else {
        const ls_path_access access = {.has_user = true, .user = geteuid() + 1};
        assert_int_equal(ls_sock_listen(&p.at, 8, &access, &fd, &bound), LS_EACCES);
    }
    place_close(&p); /* so a failed listen leaves no path */
}

enum { RACERS = 4, ROUNDS = 50 };

typedef struct racer {
    const place *place;
    ls_thread thread;
    ls_fd fd;
    int result;
} racer;

static void race(void *arg)
{
    racer *r = arg;
    r->result = listen_at(r->place, &r->fd);
}

/* Several processes that start at a time find the path of one that was killed. */
TEST_IN(place, p, one_of_several_takes_an_abandoned_path)
{
    close(bind_socket(p, SOCK_STREAM));
    for (int round = 0; round < ROUNDS; round++) {
        racer racers[RACERS];
        int taken = 0;
        for (int i = 0; i < RACERS; i++) {
            racers[i] = (racer){.place = p};
            assert_int_equal(ls_thread_start(&racers[i].thread, "racer", race, &racers[i]), LS_OK);
        }
        for (int i = 0; i < RACERS; i++) {
            ls_thread_join(&racers[i].thread);
            if (racers[i].result == LS_OK)
                taken++;
            else
                assert_int_equal(racers[i].result, LS_EADDRINUSE);
        }
        assert_int_equal(taken, 1);
        for (int i = 0; i < RACERS; i++)
            if (racers[i].result == LS_OK) ls_sock_discard(racers[i].fd);
    }
    assert_int_equal(unlink(p->path), 0);
}
