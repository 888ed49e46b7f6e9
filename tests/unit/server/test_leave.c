/* test_leave.c - ls_server_close after a stop that timed out, as an embedding program calls it: what has not ended is
 * left behind, and the process goes on. */
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "sched/workers_internal.h"
#include "server/server_internal.h"
#include "support.h"

static ls_server *left_behind; /* LeakSanitizer finds what it refers to */

static struct {
    ls_mutex mutex;
    ls_cond changed;
    unsigned blocked, returned;
    bool open;
    bool blocks_loads;
    double drain_s;
} gate;

static atomic_uint left_servers; /* of which the log tells */

static void note_line(int level, const char *line, size_t bytes, void *user)
{
    static const char text[] = "closed before its end";
    for (size_t at = 0; at + sizeof text - 1 <= bytes; at++)
        if (memcmp(line + at, text, sizeof text - 1) == 0) left_servers++;
}

/* block(): as a call of a library that hangs. */
static int block(lua_State *L)
{
    ls_mutex_lock(&gate.mutex);
    gate.blocked++;
    ls_cond_broadcast(&gate.changed);
    while (!gate.open) ls_cond_wait(&gate.changed, &gate.mutex);
    ls_mutex_unlock(&gate.mutex);
    return 0;
}

static void block_worker(ls_thread_ctx *ctx, ls_op *op)
{
    (void)block(NULL);
}

static void set_gate(bool open)
{
    ls_mutex_lock(&gate.mutex);
    gate.open = open;
    if (!open) gate.blocked = 0;
    ls_cond_broadcast(&gate.changed);
    ls_mutex_unlock(&gate.mutex);
}

/* returned(): the handler goes on behind block(). */
static int returned(lua_State *L)
{
    ls_mutex_lock(&gate.mutex);
    gate.returned++;
    ls_cond_broadcast(&gate.changed);
    ls_mutex_unlock(&gate.mutex);
    return 0;
}

static void await(const unsigned *count, unsigned value)
{
    ls_mutex_lock(&gate.mutex);
    while (*count < value) ls_cond_wait(&gate.changed, &gate.mutex);
    ls_mutex_unlock(&gate.mutex);
}

static int define(lua_State *L, void *user)
{
    lua_register(L, "block", block);
    lua_register(L, "returned", returned);
    lua_pushnumber(L, gate.drain_s);
    lua_setglobal(L, "drain_s");
    if (gate.blocks_loads) (void)block(L);
    return 0;
}

static const char site[] = "local ls = require 'luaserve' "
                           "local app = ls.app() "
                           "ls.config { drain_timeout = drain_s } "
                           "app:get('/', function() return 'served' end) "
                           "app:get('/sleep', function() returned() ls.sleep(100) end) "
                           "app:get('/block', function() block() end) "
                           "ls.listen(..., app)";

typedef struct place {
    ls_server *server;
    ls_thread thread;
    int result;
    char address[60];
} place;

static void run(void *arg)
{
    place *p = arg;
    p->result = ls_server_run(p->server);
}

static void start(place *p, const char *address)
{
    char message[300] = "";
    char *args[] = {(char *)(uintptr_t)address};
    const ls_server_options options = {.size = sizeof options,
                                       .site = "m.lua",
                                       .source = site,
                                       .argc = 1,
                                       .argv = args,
                                       .threads = 1,
                                       .open = define,
                                       .signals = 1};
    if (ls_server_open(&options, &p->server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_server_address(p->server, 0, p->address, sizeof p->address), LS_OK);
    assert_int_equal(ls_thread_start(&p->thread, "server", run, p), 0);
}

static int get(const place *p, const char *path)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[200];
    at.sin_port = htons((uint16_t)strtoul(strrchr(p->address, ':') + 1, NULL, 10));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    const int len =
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, p->address);
    assert_int_equal(write(fd, text, (size_t)len), len);
    return fd;
}

static void expect(int fd, const char *text)
{
    char response[500] = "";
    for (size_t len = 0, n; len < sizeof response - 1; len += n)
        if ((n = (size_t)read(fd, response + len, sizeof response - 1 - len)) == 0 || n == (size_t)-1) break;
    close(fd);
    if (strstr(response, text) == NULL) fail_msg("no \"%s\" in \"%s\"", text, response);
}

static void expect_served(const place *p)
{
    expect(get(p, "/"), "\r\n\r\nserved");
}

/* Stop the server; its drain is to time out, or to be cut by a second stop. */
static void close_early(place *p, int result)
{
    ls_server_stop(p->server);
    if (result == LS_ECANCELED) ls_server_stop(p->server);
    ls_thread_join(&p->thread);
    assert_int_equal(p->result, result);
    ls_server_close(p->server);
}

/* Two threads of the server are inside a C function, which returns only when the next server serves. */
TEST(blocked_threads_are_left_behind)
{
    place p, next;
    int fds[2];
    start(&p, "127.0.0.1:0");
    for (unsigned n = 0; n < 2; n++) {
        fds[n] = get(&p, "/block");
        await(&gate.blocked, n + 1);
    }
    expect_served(&p);
    close_early(&p, LS_ETIMEDOUT);
    left_behind = p.server;
    assert_int_equal(left_servers, 1);
    start(&next, p.address); /* the listener is closed */
    expect_served(&next);
    set_gate(true);
    for (int n = 0; n < 2; n++) close(fds[n]);
    expect_served(&next);
    ls_server_stop(next.server);
    ls_thread_join(&next.thread);
    assert_int_equal(next.result, LS_OK);
    ls_server_close(next.server);
}

TEST(waiting_handlers_are_ended)
{
    place p, next;
    gate.returned = 0;
    start(&p, "127.0.0.1:0");
    const int fd = get(&p, "/sleep");
    await(&gate.returned, 1);
    close_early(&p, LS_ECANCELED);
    expect(fd, ""); /* its connection ends */
    start(&next, p.address);
    expect_served(&next);
    ls_server_stop(next.server);
    ls_thread_join(&next.thread);
    ls_server_close(next.server);
}

/* The thread of a reload is inside a C function at the second stop, and returns before the close. */
TEST(a_load_that_has_ended_is_not_left_behind)
{
    place p;
    set_gate(false);
    left_servers = 0;
    gate.drain_s = 100;
    start(&p, "127.0.0.1:0");
    expect_served(&p);
    gate.blocks_loads = true;
    assert_int_equal(raise(SIGHUP), 0);
    await(&gate.blocked, 1);
    gate.blocks_loads = false;
    ls_server_stop(p.server);
    ls_server_stop(p.server);
    ls_thread_join(&p.thread);
    assert_int_equal(p.result, LS_ECANCELED);
    set_gate(true);
    ls_server_close(p.server);
    assert_int_equal(left_servers, 0);
}

/* A thread is inside a C function when all else has ended and the threads are stopped. It returns before the close. */
TEST(a_thread_that_ends_late_is_not_left_behind)
{
    ls_op op = {.done = block_worker};
    place p;
    set_gate(false);
    left_servers = 0;
    gate.drain_s = 100; /* this drain reaches its end */
    start(&p, "127.0.0.1:0");
    expect_served(&p);
    ls_port_post(p.server->port, &op, 0);
    await(&gate.blocked, 1);
    ls_server_stop(p.server);
    while (!atomic_load(&p.server->workers->stop)) ls_clock_sleep_ms(1);
    ls_server_stop(p.server);
    ls_thread_join(&p.thread);
    assert_int_equal(p.result, LS_ECANCELED);
    set_gate(true);
    ls_server_close(p.server);
    assert_int_equal(left_servers, 0);
}

int main(void)
{
    ls_server_log_to(note_line, NULL);
    gate.drain_s = 0.05;
    ls_mutex_open(&gate.mutex);
    ls_cond_open(&gate.changed);
    return test_run(NULL, NULL);
}
