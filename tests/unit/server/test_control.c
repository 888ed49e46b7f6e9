/* test_control.c - the control socket without a site: its path, "stats", "interrupt", "reload", lines that it does not
 * know. The test's thread is the worker. Sessions are tested with `luaserve repl --attach`. */
#include "port/port_fixture.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "net/stream/stream.h"
#include "server/control.h"

typedef struct control_place {
    net_place net;
    ls_deadlines *deadlines;
    ls_site_host host;
    ls_runtime *runtime;
    char dir[40], path[60];
    ls_control *control;
} control_place;

static void stats(void *server, ls_site_stat_fn *each, void *to)
{
    each(to, "one", 1);
    each(to, "half", 0.5);
}

static const char *reload_fails; /* the reason; NULL: it does not */
static ls_node *reload_waits;    /* NULL: a reload ends at once */

static void reload(void *server, ls_reload_wait *wait)
{
    if (reload_waits != NULL)
        ls_list_push(reload_waits, &wait->node);
    else
        wait->ended(wait, reload_fails == NULL ? LS_OK : LS_ESCRIPT, reload_fails == NULL ? "" : reload_fails);
}

/* A new process that waits for a file. */
static void upgrade(void *server, ls_reload_wait *wait)
{
    wait->ended(wait, LS_OK, "items.db");
}

static void status(void *server, ls_reload_wait *wait)
{
    wait->ended(wait, LS_OK, "one\ntwo\n");
}

static const ls_control_calls calls = {reload, upgrade, status};

static uint64_t interrupted; /* the last number */

void __wrap_ls_interrupts_set(const ls_runtime *runtime, uint64_t number);
void __wrap_ls_interrupts_set(const ls_runtime *runtime, uint64_t number)
{
    interrupted = number;
}

static void control_place_open(control_place *p)
{
    memset(p, 0, sizeof *p);
    net_place_open(&p->net);
    assert_int_equal(ls_stream_deadlines_open(p->net.port, &p->deadlines), LS_OK);
    p->host = (ls_site_host){.stats = stats};
    assert_int_equal(ls_site_runtime_open(&p->host, &p->runtime), LS_OK);
    strcpy(p->dir, TEST_SCRATCH_PATH);
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/control", p->dir);
}

static void start(control_place *p)
{
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, p->path, false, &p->control),
                     LS_OK);
    ls_control_start(&p->net.ctx, p->control);
}

static void pump(control_place *p)
{
    ls_packet packet;
    while (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

/* Stop and close; no connection is left. */
static void stop(control_place *p)
{
    ls_control_stop(&p->net.ctx, p->control);
    pump(p);
    assert_true(ls_control_idle(p->control));
    ls_control_close(p->control, &p->net.ctx);
}

static void control_place_close(control_place *p)
{
    assert_int_equal(rmdir(p->dir), 0); /* the path was removed */
    ls_site_runtime_close(p->runtime);
    net_place_close(&p->net);
    ls_deadlines_close(p->deadlines); /* after the port, which holds their timer */
}

static int dial(const control_place *p)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    strcpy(at.sun_path, p->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Send the line; the reply is this text, and then the end. */
static void check_reply_to(control_place *p, const char *line, size_t bytes, const char *expected)
{
    const int fd = dial(p);
    char reply[200];
    size_t len = 0;
    ssize_t n = -1;
    assert_int_equal(send(fd, line, bytes, MSG_NOSIGNAL), bytes);
    for (int tries = 0; tries < 1000 && n != 0; tries++) {
        pump(p);
        while ((n = read(fd, reply + len, sizeof reply - 1 - len)) > 0) len += (size_t)n;
        if (n < 0 && errno == ECONNRESET) n = 0;
        if (n < 0) ls_clock_sleep_ms(1);
    }
    reply[len] = '\0';
    assert_int_equal(n, 0);
    assert_string_equal(reply, expected);
    close(fd);
}

static void check_reply(control_place *p, const char *line, const char *expected)
{
    check_reply_to(p, line, strlen(line), expected);
}

TEST_IN(control_place, p, it_replies_and_closes)
{
    start(p);
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n");
    check_reply(p, "unknown\n", "");
    check_reply(p, "stats", ""); /* the line has no end */
    check_reply(p, "stats 1\n", "");
    check_reply_to(p, "stats\0\n", 7, "");
    check_reply_to(p, "reload\0x\n", 9, "");
    stop(p);
}

TEST_IN(control_place, p, interrupt_takes_a_whole_number)
{
    static const char *const wrong[] = {"interrupt \n",    "interrupt 0\n",  "interrupt x\n",  "interrupt 5abc\n",
                                        "interrupt  5\n",  "interrupt +5\n", "interrupt -5\n", "interrupt 5 \n",
                                        "interrupt 0x5\n", "interrupt 5\r\n"};
    start(p);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_reply(p, wrong[i], "");
        assert_int_equal(interrupted, 0);
    }
    check_reply(p, "interrupt 17\n", "");
    assert_int_equal(interrupted, 17);
    stop(p);
}

static void end_reloads(ls_node *waits)
{
    while (!ls_list_empty(waits)) {
        ls_reload_wait *wait = LS_CONTAINER(waits->next, ls_reload_wait, node);
        ls_list_remove(&wait->node);
        wait->ended(wait, LS_OK, "");
    }
}

/* All places are taken by clients that wait for a reload. Those that leave free theirs before it ends; for the last
 * one the end of the reload and its own are in the queue together. One that has closed its sending side waits. */
TEST_IN(control_place, p, a_client_that_leaves_a_queued_reload_holds_no_place)
{
    ls_node waits;
    int fds[LS_CONTROL_CONNECTIONS_MAX];
    char reply[3] = "";
    ls_node_init(&waits);
    start(p);
    reload_waits = &waits;
    for (size_t i = 0; i < LS_CONTROL_CONNECTIONS_MAX; i++) {
        fds[i] = dial(p);
        assert_int_equal(send(fds[i], "reload\n", 7, MSG_NOSIGNAL), 7);
        pump(p);
    }
    assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
    for (size_t i = 2; i < LS_CONTROL_CONNECTIONS_MAX; i++) close(fds[i]);
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n");
    close(fds[1]);
    end_reloads(&waits);
    for (int tries = 0; tries < 1000 && read(fds[0], reply, 2) != 2; tries++) pump(p);
    assert_string_equal(reply, "ok");
    close(fds[0]);
    reload_waits = NULL;
    stop(p);
}

/* Clients that ask and leave, while a site loads. */
TEST_IN(control_place, p, reloads_that_wait_are_limited)
{
    ls_node waits;
    ls_node_init(&waits);
    start(p);
    reload_waits = &waits;
    for (size_t i = 0; i < 1024; i++) {
        const int fd = dial(p);
        assert_int_equal(send(fd, "reload\n", 7, MSG_NOSIGNAL), 7);
        pump(p);
        close(fd);
    }
    check_reply(p, "reload\n", "failed too many reloads wait");
    end_reloads(&waits);
    reload_waits = NULL;
    check_reply(p, "reload\n", "ok");
    stop(p);
}

TEST_IN(control_place, p, a_reload_is_answered_with_its_result)
{
    start(p);
    check_reply(p, "reload\n", "ok");
    reload_fails = "site.lua:3: no";
    check_reply(p, "reload\n", "failed site.lua:3: no");
    check_reply(p, "upgrade\n", "ok items.db");
    check_reply(p, "status\n", "ok one\ntwo\n");
    reload_fails = NULL;
    stop(p);
}

/* A line of 63 bytes is looked at; one of 64 is too long. Neither is known. */
TEST_IN(control_place, p, long_lines_are_refused)
{
    char line[66];
    start(p);
    for (size_t len = 63; len <= 64; len++) {
        memset(line, 'x', len);
        strcpy(line + len, "\n");
        check_reply(p, line, "");
    }
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n");
    stop(p);
}

TEST_IN(control_place, p, only_the_owner_may_connect)
{
    struct stat found;
    start(p);
    assert_int_equal(stat(p->path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    stop(p);
}

TEST_IN(control_place, p, invalid_paths_leave_nothing_open)
{
    ls_control *control;
    char path[300];
    const size_t longest = sizeof((ls_addr *)NULL)->bytes;
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, "", false, &control), LS_EINVAL);
    memset(path, 'x', longest);
    path[longest] = '\0';
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, path, false, &control), LS_ELIMIT);
    (void)snprintf(path, sizeof path, "%s/none/control", p->dir);
    assert_true(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, path, false, &control) < 0);
    start(p);
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, p->path, false, &control),
                     LS_EADDRINUSE);
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n"); /* the first one goes on */
    stop(p);
}

/* A server that is closed without a run. */
TEST_IN(control_place, p, one_that_never_started_is_closed)
{
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, p->path, false, &p->control),
                     LS_OK);
    ls_control_close(p->control, &p->net.ctx);
}

/* The path belongs to the newer one from its start on, also when the older one stops. */
TEST_IN(control_place, p, one_that_replaces_another_takes_its_path_over)
{
    ls_control *newer;
    struct stat before, after;
    start(p);
    assert_int_equal(stat(p->path, &before), 0);
    assert_int_equal(ls_control_open(p->net.port, p->deadlines, p->runtime, &calls, p->path, true, &newer), LS_OK);
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n");
    ls_control_start(&p->net.ctx, newer);
    assert_int_equal(stat(p->path, &after), 0);
    assert_true(before.st_ino != after.st_ino);
    stop(p);
    p->control = newer;
    check_reply(p, "stats\n", "one 1\nhalf 0.5\n");
    stop(p);
    assert_int_equal(stat(p->path, &after), -1);
}
