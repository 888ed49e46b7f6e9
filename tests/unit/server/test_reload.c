/* test_reload.c - the reload as an embedding program calls it: only luaserve.h, in this process. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/os/thread.h"
#include "support.h"

/* ---- a gate in front of a thread
 * --------------------------------------------------------------------------------- */

typedef struct gate {
    ls_mutex mutex;
    ls_cond changed;
    unsigned waiting;
    bool open;
} gate;

static void gate_init(gate *g)
{
    *g = (gate){.open = false};
    ls_mutex_open(&g->mutex);
    ls_cond_open(&g->changed);
}

static void gate_free(gate *g)
{
    ls_cond_close(&g->changed);
    ls_mutex_close(&g->mutex);
}

static void gate_pass(gate *g)
{
    ls_mutex_lock(&g->mutex);
    g->waiting++;
    ls_cond_broadcast(&g->changed);
    while (!g->open) ls_cond_wait(&g->changed, &g->mutex);
    g->waiting--;
    ls_mutex_unlock(&g->mutex);
}

/* Wait until a thread is in front of the gate. */
static void gate_await(gate *g)
{
    ls_mutex_lock(&g->mutex);
    while (g->waiting == 0) ls_cond_wait(&g->changed, &g->mutex);
    ls_mutex_unlock(&g->mutex);
}

static void gate_set(gate *g, bool open)
{
    ls_mutex_lock(&g->mutex);
    g->open = open;
    ls_cond_broadcast(&g->changed);
    ls_mutex_unlock(&g->mutex);
}

/* ---- a server
 * ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    ls_server *server;
    ls_thread thread;
    int result;
    gate in_open, in_lua, serving; /* open function of the program; pass() of Lua; the callback `serving` */
    ls_thread reloader;
    int reloaded;
    char message[300];
    int told; /* by the callback `reloaded` */
    char told_message[300];
} place;

static int pass(lua_State *L)
{
    gate_pass(lua_touserdata(L, lua_upvalueindex(1)));
    return 0;
}

static int define(lua_State *L, void *user)
{
    place *p = user;
    gate_pass(&p->in_open);
    lua_pushlightuserdata(L, &p->in_lua);
    lua_pushcclosure(L, pass, 1);
    lua_setglobal(L, "pass");
    return 0;
}

static void serving(void *user)
{
    gate_set(&((place *)user)->serving, true);
}

static void reloaded(void *user, int result, const char *message)
{
    place *p = user;
    p->told = result;
    snprintf(p->told_message, sizeof p->told_message, "%s", message);
}

static void run(void *arg)
{
    place *p = arg;
    p->result = ls_server_run(p->server);
}

static void reload(void *arg)
{
    place *p = arg;
    p->reloaded = ls_server_reload(p->server, p->message, sizeof p->message);
}

/* All gates but in_lua are open. */
static void place_open(place *p, const char *text, bool idle)
{
    memset(p, 0, sizeof *p);
    gate_init(&p->in_open);
    gate_init(&p->in_lua);
    gate_init(&p->serving);
    gate_set(&p->in_open, true);
    const ls_server_options options = {.size = sizeof options,
                                       .site = "site.lua",
                                       .source = text,
                                       .source_bytes = strlen(text),
                                       .open = define,
                                       .serving = serving,
                                       .reloaded = reloaded,
                                       .idle = idle,
                                       .user = p};
    if (ls_server_open(&options, &p->server, p->message, sizeof p->message) < 0) fail_msg("%s", p->message);
}

static void start(place *p)
{
    assert_int_equal(ls_thread_start(&p->thread, "server", run, p), 0);
}

static void place_close(place *p)
{
    ls_server_close(p->server);
    gate_free(&p->in_open);
    gate_free(&p->in_lua);
    gate_free(&p->serving);
}

static void stop(place *p)
{
    ls_server_stop(p->server);
    ls_thread_join(&p->thread);
    assert_int_equal(p->result, 0);
}

static void check_serves_text(const place *p, const char *body)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[128], response[500];
    size_t len = 0;
    ssize_t n;
    assert_int_equal(ls_server_address(p->server, 0, text, sizeof text), 0);
    at.sin_port = htons((uint16_t)strtoul(strrchr(text, ':') + 1, NULL, 10));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
    while ((n = read(fd, response + len, sizeof response - 1 - len)) > 0) len += (size_t)n;
    response[len] = '\0';
    close(fd);
    const char *found = strstr(response, "\r\n\r\n");
    assert_non_null(found);
    assert_string_equal(found + 4, body);
}

static void check_serves(const place *p)
{
    check_serves_text(p, "served");
}

static void check_refused(const place *p, int result, const char *message)
{
    char text[300];
    assert_int_equal(ls_server_reload(p->server, text, sizeof text), result);
    assert_string_equal(text, message);
}

static const char plain[] = "local ls = require 'luaserve' "
                            "local app = ls.app() "
                            "app:get('/', function() return 'served' end) "
                            "ls.listen({ host = '127.0.0.1', port = 0, handler = app })";

/* ---- when it is possible
 * ------------------------------------------------------------------------------------------- */

TEST_IN(place, p, it_is_refused_before_the_run_and_after_the_stop, plain, false)
{
    check_refused(p, LS_EBUSY, "the server does not serve yet");
    start(p);
    gate_pass(&p->serving);
    assert_int_equal(ls_server_reload(p->server, NULL, 0), 0);
    check_serves(p);
    stop(p);
    check_refused(p, LS_EBUSY, "the server stops");
}

/* Its plan would replace the one of the start, whose listeners have not been started. */
TEST(it_is_refused_during_the_start)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local app = ls.app() "
                               "app:get('/', function() return 'served' end) "
                               "ls.config { threads = 1, threads_max = 1 } "
                               "ls.on('start', pass) " /* holds the only thread before the packet of the start */
                               "ls.listen({ host = '127.0.0.1', port = 0, handler = app })";
    place p;
    place_open(&p, text, false);
    start(&p);
    gate_await(&p.in_lua);
    check_refused(&p, LS_EBUSY, "the server does not serve yet");
    gate_set(&p.in_lua, true);
    gate_pass(&p.serving);
    check_serves(&p);
    assert_int_equal(ls_server_reload(p.server, NULL, 0), 0);
    check_serves(&p);
    stop(&p);
    place_close(&p);
}

TEST_IN(place, p, one_at_a_time, plain, false)
{
    start(p);
    gate_pass(&p->serving);
    gate_set(&p->in_open, false);
    assert_int_equal(ls_thread_start(&p->reloader, "reload", reload, p), 0);
    gate_await(&p->in_open);
    check_refused(p, LS_EBUSY, "another reload is under way");
    gate_set(&p->in_open, true);
    ls_thread_join(&p->reloader);
    assert_int_equal(p->reloaded, 0);
    assert_string_equal(p->message, "");
    check_serves(p);
    stop(p);
}

/* The stop waits for the function of the program, which it cannot interrupt; nothing of the new site is left. */
TEST_IN(place, p, a_stop_cancels_a_reload_that_loads, plain, false)
{
    start(p);
    gate_pass(&p->serving);
    gate_set(&p->in_open, false);
    assert_int_equal(ls_thread_start(&p->reloader, "reload", reload, p), 0);
    gate_await(&p->in_open);
    ls_server_stop(p->server);
    gate_set(&p->in_open, true);
    ls_thread_join(&p->reloader);
    assert_int_equal(p->reloaded, LS_ECANCELED);
    assert_string_equal(p->message, "the server stops");
    ls_thread_join(&p->thread);
    assert_int_equal(p->result, 0);
}

/* A reload would open its listeners. */
TEST_IN(place, p, an_idle_server_is_not_reloaded, plain, true)
{
    start(p);
    gate_pass(&p->serving);
    check_refused(p, LS_ENOTSUP, "an idle server cannot be reloaded");
    stop(p);
}

/* ---- another text
 * ---------------------------------------------------------------------------------------------------- */

TEST(a_site_in_memory_gets_another_text)
{
    char text[sizeof plain];
    place p;
    memcpy(text, plain, sizeof text);
    memcpy(strstr(text, "served"), "second", 6);
    place_open(&p, plain, false);
    assert_int_equal(ls_server_reload_source(p.server, text, 0, NULL, 0), LS_EBUSY);
    start(&p);
    gate_pass(&p.serving);
    check_serves(&p);
    assert_int_equal(ls_server_reload_source(p.server, text, 0, p.message, sizeof p.message), LS_OK);
    assert_int_equal(p.told, LS_OK);
    assert_string_equal(p.message, "");
    memset(text, 'x', strlen(text)); /* it was copied */
    check_serves_text(&p, "second");
    assert_int_equal(ls_server_reload_source(p.server, "local x = = 1", 13, p.message, sizeof p.message), LS_ESCRIPT);
    assert_int_equal(p.told, LS_ESCRIPT);
    assert_string_equal(p.message, p.told_message);
    assert_non_null(strstr(p.told_message, "site.lua:1: unexpected symbol"));
    check_serves_text(&p, "second");
    assert_int_equal(ls_server_reload(p.server, NULL, 0), LS_OK); /* of the last text that could be served */
    check_serves_text(&p, "second");
    assert_int_equal(ls_server_reload_source(p.server, plain, strlen(plain), NULL, 0), LS_OK);
    check_serves(&p);
    stop(&p);
    assert_int_equal(ls_server_reload_source(p.server, plain, strlen(plain), NULL, 0), LS_EBUSY);
    place_close(&p);
}

/* ---- several servers
 * ----------------------------------------------------------------------------------------------- */

static void reload_often(void *arg)
{
    place *p = arg;
    for (int i = 0; i < 20 && p->reloaded == 0; i++) reload(p);
}

TEST(servers_are_reloaded_at_the_same_time)
{
    enum { SERVERS = 3 };
    place places[SERVERS];
    for (int i = 0; i < SERVERS; i++) {
        place_open(&places[i], plain, false);
        start(&places[i]);
        gate_pass(&places[i].serving);
    }
    for (int i = 0; i < SERVERS; i++)
        assert_int_equal(ls_thread_start(&places[i].reloader, "reload", reload_often, &places[i]), 0);
    for (int i = 0; i < SERVERS; i++) {
        ls_thread_join(&places[i].reloader);
        assert_int_equal(places[i].reloaded, 0);
        check_serves(&places[i]);
    }
    for (int i = 0; i < SERVERS; i++) {
        stop(&places[i]);
        place_close(&places[i]);
    }
}

/* The statistics are those of all generations, also of one that is being made. */
static void read_counters(void *arg)
{
    place *p = arg;
    for (bool last = false; !last;) {
        double states = 0;
        ls_mutex_lock(&p->in_lua.mutex);
        last = p->in_lua.open;
        ls_mutex_unlock(&p->in_lua.mutex);
        assert_int_equal(ls_server_counter(p->server, "lua_states", &states), 0);
        assert_true(states >= 1);
    }
}

TEST_IN(place, p, counters_are_read_during_reloads, plain, false)
{
    ls_thread reader;
    start(p);
    gate_pass(&p->serving);
    assert_int_equal(ls_thread_start(&reader, "reader", read_counters, p), 0);
    reload_often(p);
    assert_int_equal(p->reloaded, 0);
    gate_set(&p->in_lua, true);
    ls_thread_join(&reader);
    stop(p);
}

int main(void)
{
    (void)ls_server_log_level("off");
    return test_run(NULL, NULL);
}
