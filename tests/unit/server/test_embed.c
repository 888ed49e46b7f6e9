/* test_embed.c - the C interface as an embedding program uses it: only luaserve.h, in this process; and the program
 * examples/c/embed.c, whose path is the first argument, as a child process. */
#define _GNU_SOURCE
#include <locale.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio_ext.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "support.h"

static const char *embed; /* the program */

static bool no_ip6; /* as on a machine without IPv6 */

/* Replaces the function of the C library in this process. */
int socket(int domain, int type, int protocol)
{
    if (!no_ip6 || domain != AF_INET6) return (int)syscall(SYS_socket, domain, type, protocol);
    errno = EAFNOSUPPORT;
    return -1;
}

typedef struct place { /* a directory with a site and the path of its listener */
    char dir[40], site[60], address[60];
} place;

static void place_open(place *p, const char *text)
{
    strcpy(p->dir, TEST_SCRATCH_PATH);
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->site, sizeof p->site, "%s/site.lua", p->dir);
    snprintf(p->address, sizeof p->address, "unix:%s/s", p->dir);
    FILE *file = fopen(p->site, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void place_close(place *p)
{
    assert_int_equal(unlink(p->site), 0);
    assert_int_equal(rmdir(p->dir), 0); /* so the listener's path was removed */
}

static int dial(const place *p)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", p->address + 5);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* GET / with Connection: close; reads the whole response and closes the connection. */
static void ask(int fd, char *out, size_t room)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    size_t len = 0;
    ssize_t n;
    assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
    while ((n = read(fd, out + len, room - 1 - len)) > 0) len += (size_t)n;
    out[len] = '\0';
    close(fd);
}

/* The listener exists after ls_server_open. */
static void get(const place *p, char *out, size_t room)
{
    ask(dial(p), out, room);
}

static const char site[] = "local ls = require 'luaserve' "
                           "local app = ls.app() "
                           "local at, text = ... "
                           "app:get('/', function() return text end) "
                           "ls.listen(at, app)";

typedef struct running {
    ls_server *server;
    ls_thread thread;
    int result;
} running;

static void run(void *arg)
{
    running *r = arg;
    r->result = ls_server_run(r->server);
}

static void start(running *r, const place *p, const char *text)
{
    char message[300] = "";
    char *args[] = {(char *)(uintptr_t)p->address, (char *)(uintptr_t)text};
    const ls_server_options options = {.size = sizeof options, .site = p->site, .argc = 2, .argv = args, .threads = 1};
    if (ls_server_open(&options, &r->server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_thread_start(&r->thread, "server", run, r), 0);
}

static void stop(running *r)
{
    ls_server_stop(r->server);
    ls_thread_join(&r->thread);
    assert_int_equal(r->result, 0);
    ls_server_close(r->server);
}

TEST(two_servers_in_one_program_one_after_the_other)
{
    place places[2];
    running r[2];
    char response[500];
    for (int i = 0; i < 2; i++) place_open(&places[i], site);
    for (int round = 0; round < 2; round++) {
        start(&r[0], &places[0], "one");
        start(&r[1], &places[1], "two");
        get(&places[0], response, sizeof response);
        assert_non_null(strstr(response, "HTTP/1.1 200 OK\r\n"));
        assert_non_null(strstr(response, "\r\n\r\none"));
        stop(&r[0]);
        get(&places[1], response, sizeof response); /* the other server continues */
        assert_non_null(strstr(response, "\r\n\r\ntwo"));
        stop(&r[1]);
    }
    for (int i = 0; i < 2; i++) place_close(&places[i]);
}

typedef struct notified {
    ls_server *server;
    int times;
} notified;

static void stop_when_serving(void *user)
{
    notified *t = user;
    t->times++;
    ls_server_stop(t->server);
}

TEST_IN(place, p, serving_is_called_once_and_may_stop_it, site)
{
    notified t = {NULL, 0};
    char message[300] = "";
    char *args[] = {p->address, "text"};
    const ls_server_options options = {.size = sizeof options,
                                       .site = p->site,
                                       .argc = 2,
                                       .argv = args,
                                       .threads = 1,
                                       .serving = stop_when_serving,
                                       .user = &t};
    assert_int_equal(ls_server_open(&options, &t.server, message, sizeof message), 0);
    assert_int_equal(t.times, 0);
    assert_int_equal(ls_server_run(t.server), 0);
    assert_int_equal(t.times, 1);
    ls_server_close(t.server);
}

TEST_IN(place, p, a_stop_may_come_before_the_run, site)
{
    char message[300];
    ls_server *server;
    char *args[] = {p->address};
    const ls_server_options options = {.size = sizeof options, .site = p->site, .argc = 1, .argv = args};
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    ls_server_stop(server);
    assert_int_equal(ls_server_run(server), 0);
    ls_server_close(server);

    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    ls_server_close(server); /* without a run */
}

TEST(the_loopback_may_have_one_address)
{
    static const char two[] = "local ls = require 'luaserve' "
                              "local app = ls.app() "
                              "app:get('/', function() return 'text' end) "
                              "ls.listen(0, app) "
                              "ls.tcp(0, function() end) "
                              "ls.listen(..., app)";
    running r;
    place p;
    char response[500];
    no_ip6 = true;
    place_open(&p, two);
    start(&r, &p, "text");
    get(&p, response, sizeof response);
    assert_non_null(strstr(response, "\r\n\r\ntext"));
    stop(&r);
    place_close(&p);
    no_ip6 = false;
}

static void check_fails(const ls_server_options *options, const char *part)
{
    char message[300], cut[8];
    ls_server *server = NULL;
    assert_true(ls_server_open(options, &server, message, sizeof message) < 0);
    assert_null(server);
    if (strstr(message, part) == NULL) fail_msg("expected \"%s\" in \"%s\"", part, message);
    memset(cut, 'x', sizeof cut);
    assert_true(ls_server_open(options, &server, cut, sizeof cut) < 0);
    assert_int_equal(strlen(cut), sizeof cut - 1); /* cut to fit, and terminated */
    assert_memory_equal(cut, message, sizeof cut - 1);
}

TEST(failures_are_described_and_leave_nothing_open)
{
    ls_server *server;
    char message[300];
    place p;
    const int next = dup(0);
    close(next);
    place_open(&p, site);
    char *args[] = {p.address, NULL};
    ls_server_options options = {.size = sizeof options, .site = "/nowhere/site.lua"};
    check_fails(&options, "/nowhere/site.lua");
    options = (ls_server_options){
        .size = sizeof options, .site = p.site, .argc = 1, .argv = args, .backend = "carrier pigeon"};
    check_fails(&options, "carrier pigeon");
    options.backend = NULL;
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    check_fails(&options, "address in use");
    ls_server_close(server);
    place_close(&p);

    place_open(&p, "local x = = 1");
    options = (ls_server_options){.size = sizeof options, .site = p.site};
    check_fails(&options, "site.lua:1:");
    place_close(&p);
    const int after = dup(0);
    assert_int_equal(after, next); /* no descriptor was leaked */
    close(after);
}

/* The header of another version has a smaller or a larger struct. */
TEST(the_size_of_the_options_is_checked)
{
    static const char text[] = "require 'luaserve'.init(function() end)";
    struct {
        ls_server_options options;
        int further;
    } later = {.options = {.size = sizeof later, .site = "m.lua", .source = text}};
    ls_server_options options = {.site = "m.lua", .source = text};
    ls_server *server;
    char message[300];
    check_fails(&options, "options.size is 0: set it to sizeof(ls_server_options)");
    snprintf(message, sizeof message, "options.size is %zu, but the options of luaserve %s have %zu bytes",
             sizeof later, ls_server_version(), sizeof options);
    check_fails(&later.options, message);
    options.size = sizeof options;
    options.site = NULL;
    check_fails(&options, "options.site is missing");

    options.size = offsetof(ls_server_options, threads);
    options.site = "m.lua";
    options.threads = 1u << 31; /* these are not read */
    options.backend = "no back end";
    options.dev = 1;
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), LS_OK);
    ls_server_close(server);
}

/* ---- a site in memory, host functions, addresses, the log ------------------------------------------------------- */

static int states_opened;

static int add_answer(lua_State *L)
{
    lua_pushinteger(L, luaL_checkinteger(L, 1) + *(int *)lua_touserdata(L, lua_upvalueindex(1)));
    return 1;
}

static int define_answer(lua_State *L, void *user)
{
    assert_int_equal(lua_gettop(L), 0);
    states_opened++;
    lua_pushlightuserdata(L, user);
    lua_pushcclosure(L, add_answer, 1);
    lua_setglobal(L, "answer");
    lua_pushliteral(L, "left on the stack");
    return 1;
}

TEST_IN(place, p, host_functions_are_defined_in_each_state, "")
{
    static const char text[] = "#!/usr/bin/luaserve\n"
                               "local ls = require 'luaserve' "
                               "local app = ls.app() "
                               "local at = ... "
                               "ls.config { threads = 1, threads_max = 3 } "
                               "app:get('/', function() return 'the answer is ' .. answer(2) end) "
                               "ls.listen(at, app)xxx";
    int forty = 40;
    char message[300] = "", response[500];
    running r;
    char *source = malloc(sizeof text - 4); /* without terminator, and freed before the run */
    assert_non_null(source);
    memcpy(source, text, sizeof text - 4);
    char *args[] = {p->address};
    const ls_server_options options = {.size = sizeof options,
                                       .site = "memory.lua",
                                       .source = source,
                                       .source_bytes = sizeof text - 4,
                                       .argc = 1,
                                       .argv = args,
                                       .open = define_answer,
                                       .user = &forty};
    states_opened = 0;
    if (ls_server_open(&options, &r.server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(states_opened, 1); /* one for the running thread; the others when they are needed */
    free(source);
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    get(p, response, sizeof response);
    assert_non_null(strstr(response, "\r\n\r\nthe answer is 42"));
    stop(&r);
}

static _Atomic int hits;

/* Several threads of several servers call it. */
static int count_hit(lua_State *L)
{
    lua_pushinteger(L, ++hits);
    return 1;
}

static int define_hit(lua_State *L, void *user)
{
    lua_register(L, "hit", count_hit);
    return 0;
}

TEST(two_servers_call_the_same_program)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local app = ls.app() "
                               "app:get('/', function() return 'hit ' .. hit() end) "
                               "ls.init(function() for _ = 1, 100 do hit() ls.sleep(0) end end) "
                               "ls.listen(..., app)";
    running r[2];
    place places[2];
    char message[300], response[500];
    hits = 0;
    for (int i = 0; i < 2; i++) {
        place_open(&places[i], "");
        char *args[] = {places[i].address};
        const ls_server_options options = {.size = sizeof options,
                                           .site = "m.lua",
                                           .source = text,
                                           .argc = 1,
                                           .argv = args,
                                           .threads = 2,
                                           .open = define_hit};
        if (ls_server_open(&options, &r[i].server, message, sizeof message) < 0) fail_msg("%s", message);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(ls_thread_start(&r[i].thread, "server", run, &r[i]), 0);
    for (int n = 0; n < 20; n++) {
        get(&places[n % 2], response, sizeof response);
        assert_non_null(strstr(response, "\r\n\r\nhit "));
    }
    for (int i = 0; i < 2; i++) {
        stop(&r[i]); /* the drain waits for the job */
        place_close(&places[i]);
    }
    assert_int_equal(hits, 2 * 100 + 20);
}

static int refuse(lua_State *L, void *user)
{
    return -7;
}

static int refuse_second(lua_State *L, void *user)
{
    if (++*(int *)user == 2) return luaL_error(L, "no license for a second state");
    return 0;
}

TEST(a_failing_open_function_is_described)
{
    int count = 0;
    static const char text[] = "local ls = require 'luaserve' ls.init(function() end)";
    ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text, .open = refuse};
    check_fails(&options, "m.lua: the open function of the program returned -7");
    options.open = refuse_second;
    options.user = &count;
    ls_server *server = NULL;
    char message[300];
    assert_true(ls_server_open(&options, &server, message, sizeof message) < 0);
    assert_non_null(strstr(message, "no license for a second state"));
    assert_int_equal(count, 2);
}

TEST(threads_have_the_limit_of_the_command_line)
{
    ls_server_options options = {
        .size = sizeof options, .site = "m.lua", .source = "", .threads = LS_SERVER_THREADS_MAX + 1};
    check_fails(&options, "options.threads is 1025: set it to at most 1024, or to 0 for one per processor");
    options.threads--;
    check_fails(&options, "nothing to do");
    ls_server_close(NULL);
}

TEST(a_site_in_memory_has_a_name_in_messages)
{
    static const char text[] = "\xef\xbb\xbflocal x\nlocal y = = 1";
    ls_server_options options = {.size = sizeof options, .site = "memory.lua", .source = text};
    check_fails(&options, "memory.lua:2: unexpected symbol");
    options.source_bytes = 0; /* up to its terminator */
    check_fails(&options, "memory.lua:2: unexpected symbol");
    options.source = "x = 1";
    options.source_bytes = 5;
    check_fails(&options, "memory.lua defines no listener, timer or job: nothing to do; add ls.listen(8080, app)");
    options.source = "# no line end";
    options.source_bytes = 13;
    check_fails(&options, "nothing to do");
}

TEST(a_site_without_listeners_ends_by_itself)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.config { threads_max = 2 } "
                               "ls.after(0.01, function() ls.spawn(function() ls.sleep(0.01) "
                               "  ls.after(0, function() end) end) end) "
                               "ls.init(function() local t t = ls.every(0.001, function() t:cancel() end) end)";
    const ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text};
    ls_server *server;
    char message[300];
    if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_server_address(server, 0, message, sizeof message), LS_ENOENT);
    assert_int_equal(ls_server_run(server), 0);
    ls_server_close(server);
}

TEST(addresses_are_those_bound)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.udp('127.0.0.1:0', function() end) "
                               "ls.listen('127.0.0.1:0', ls.app()) "
                               "ls.tcp(..., function() end) "
                               "ls.listen(0, ls.app())";
    char message[300], at[128], again[128];
    ls_server *server;
    place p;
    unsigned port, other;
    no_ip6 = true;
    place_open(&p, "");
    char *args[] = {p.address};
    const ls_server_options options = {
        .size = sizeof options, .site = "m.lua", .source = text, .argc = 1, .argv = args};
    if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_server_address(server, 0, at, sizeof at), 0);
    assert_int_equal(sscanf(at, "127.0.0.1:%u", &port), 1);
    assert_in_range(port, 1, 65535);
    assert_int_equal(ls_server_address(server, 0, again, strlen(at) + 1), 0); /* exact room */
    assert_string_equal(again, at);
    assert_int_equal(ls_server_address(server, 0, again, strlen(at)), LS_EMSGSIZE);
    assert_int_equal(ls_server_address(server, 1, at, sizeof at), 0);
    assert_string_equal(at, p.address);
    assert_int_equal(ls_server_address(server, 2, at, sizeof at), 0);
    assert_int_equal(sscanf(at, "127.0.0.1:%u", &other), 1);
    assert_int_not_equal(port, other);
    assert_int_equal(ls_server_address(server, 3, at, sizeof at), 0); /* the UDP socket */
    assert_int_equal(sscanf(at, "127.0.0.1:%u", &other), 1);
    assert_int_equal(ls_server_address(server, 4, at, sizeof at), LS_ENOENT);
    ls_server_stop(server);
    assert_int_equal(ls_server_run(server), 0);
    assert_int_equal(ls_server_address(server, 1, at, sizeof at), 0); /* also after the listeners were closed */
    assert_string_equal(at, p.address);
    ls_server_close(server);
    place_close(&p);
    no_ip6 = false;
}

/* A site with each kind of listener, opened with `listen_on`. */
static int open_on(const char *listen_on, ls_server **server, char message[300])
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.udp(1, function() end) "
                               "ls.listen('*:1', ls.app()) "
                               "ls.tcp({ path = '/nowhere/s', mode = '0600' }, function() end)";
    const ls_server_options options = {
        .size = sizeof options, .site = "m.lua", .source = text, .listen_on = listen_on};
    return ls_server_open(&options, server, message, 300);
}

TEST(urls_have_the_scheme)
{
    char message[300], url[128], again[128];
    ls_server *server;
    unsigned port;
    if (open_on("127.0.0.1:0", &server, message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_server_url(server, 0, url, sizeof url), 0);
    assert_int_equal(sscanf(url, "http://127.0.0.1:%u", &port), 1);
    assert_in_range(port, 2, 65535);
    assert_int_equal(ls_server_url(server, 0, again, strlen(url) + 1), 0); /* exact room */
    assert_string_equal(again, url);
    assert_int_equal(ls_server_url(server, 0, again, strlen(url)), LS_EMSGSIZE);
    assert_int_equal(ls_server_url(server, 1, url, sizeof url), 0);
    assert_int_equal(sscanf(url, "tcp://127.0.0.1:%u", &port), 1); /* in place of a Unix path */
    assert_int_equal(ls_server_url(server, 2, url, sizeof url), 0);
    assert_int_equal(sscanf(url, "udp://127.0.0.1:%u", &port), 1);
    assert_in_range(port, 2, 65535);
    assert_int_equal(ls_server_url(server, 3, url, sizeof url), LS_ENOENT);
    ls_server_close(server);
}

TEST(all_listeners_move_to_one_address)
{
    static const char *const wrong[] = {
        /* clang-format off */
        "", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:1x", "127.0.0.1:+1",
        "127.0.0.1: 1", "127.0.0.1:-0", "localhost:0", "unix:/tmp/s", "[]:0",
        /* clang-format on */
    };
    char message[300], expected[300];
    ls_server *server;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(open_on(wrong[i], &server, message), LS_EINVAL);
        snprintf(expected, sizeof expected, "listen_on: invalid address \"%s\": give one such as \"127.0.0.1:0\"",
                 wrong[i]);
        assert_string_equal(message, expected);
    }
    const int err = open_on("[::1]:0", &server, message);
    if (err == 0) ls_server_close(server);
    assert_true(err == 0 || strstr(message, "cannot listen on [::1]:0") != NULL); /* a machine without IPv6 */
}

typedef struct lines {
    ls_mutex mutex;
    char text[4000];
    size_t len;
} lines;

static void keep_line(int level, const char *line, size_t bytes, void *user)
{
    lines *l = user;
    ls_mutex_lock(&l->mutex);
    if (l->len + bytes + 4 < sizeof l->text)
        l->len += (size_t)snprintf(l->text + l->len, sizeof l->text - l->len, "%d %.*s\n", level, (int)bytes, line);
    ls_mutex_unlock(&l->mutex);
}

TEST(the_log_goes_to_the_program)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.log.warn('loading') "
                               "ls.on('start', function() ls.log.error('in a state') end) ";
    const ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text, .threads = 1};
    lines l = {.len = 0};
    ls_server *server;
    char message[300];
    unsigned states = 0;
    ls_mutex_open(&l.mutex);
    assert_int_equal(ls_server_log_level("info"), 0);
    ls_server_log_to(keep_line, &l);
    if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_string_equal(l.text, "2 loading\n"); /* once, not once per state */
    assert_int_equal(ls_server_run(server), 0);
    ls_server_close(server);
    ls_server_log_to(NULL, NULL);
    assert_int_equal(ls_server_log_level("off"), 0);
    for (const char *at = l.text; (at = strstr(at, "3 in a state\n")) != NULL; at++) states++;
    assert_int_equal(states, 1); /* one state for each running thread */
    assert_non_null(strstr(l.text, "1 stopped\n"));
    ls_mutex_close(&l.mutex);
}

/* Of all its threads, and of those that call it. */
TEST(each_server_has_a_log_and_a_level)
{
    static const char text[] =
        "local ls = require 'luaserve' "
        "local name = ... "
        "ls.log.info(name .. ' loads') "
        "ls.init(function() ls.log.info(name .. ' in a task') ls.log.warn(name .. ' warns') end)";
    static char *const names[] = {"one", "two"};
    static const char *const levels[] = {"info", "warn"};
    lines logs[2] = {{.len = 0}}, other = {.len = 0};
    running r[2];
    char message[300];
    ls_server_log_to(keep_line, &other);
    assert_int_equal(ls_server_log_level("info"), 0);
    ls_mutex_open(&other.mutex);
    for (int i = 0; i < 2; i++) {
        ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text, .threads = 2};
        options.argc = 1;
        options.argv = (char **)(uintptr_t)&names[i];
        options.log = keep_line;
        options.user = &logs[i];
        options.log_level = levels[i];
        ls_mutex_open(&logs[i].mutex);
        if (ls_server_open(&options, &r[i].server, message, sizeof message) < 0) fail_msg("%s", message);
        assert_int_equal(ls_thread_start(&r[i].thread, "server", run, &r[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        ls_thread_join(&r[i].thread); /* without a listener it ends by itself */
        ls_server_close(r[i].server);
        ls_mutex_close(&logs[i].mutex);
    }
    ls_server_log_to(NULL, NULL);
    assert_int_equal(ls_server_log_level("off"), 0);
    assert_string_equal(logs[0].text, "1 one loads\n1 one in a task\n2 one warns\n1 draining\n1 stopped\n");
    assert_string_equal(logs[1].text, "2 two warns\n");
    assert_string_equal(other.text, "");
    ls_mutex_close(&other.mutex);
    ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text, .log_level = "loud"};
    check_fails(&options, "options.log_level is \"loud\": set it to debug, info, warn, error or off");
}

static void keep_result(void *user, int result)
{
    *(_Atomic int *)user = result;
}

static short events_of(const ls_server *server, int ms)
{
    struct pollfd at = {.fd = ls_server_fd(server), .events = POLLIN};
    assert_true(at.fd >= 0);
    return poll(&at, 1, ms) == 1 ? at.revents : 0;
}

/* In the event loop of the program, without a thread of its own. */
TEST_IN(place, p, a_started_server_tells_its_end, site)
{
    char message[300], response[500];
    char *args[] = {p->address, "text"};
    for (int round = 0; round < 3; round++) {
        _Atomic int result = 1;
        ls_server *server;
        const ls_server_options options = {
            .size = sizeof options, .site = p->site, .argc = 2, .argv = args, .ended = keep_result, .user = &result};
        if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
        assert_int_equal(ls_server_start(server), LS_OK);
        get(p, response, sizeof response);
        assert_non_null(strstr(response, "\r\n\r\ntext"));
        assert_int_equal(events_of(server, 0), 0);
        assert_int_equal(result, 1);
        if (round < 2) ls_server_stop(server);
        if (round < 1) assert_true(events_of(server, 20000) != 0);
        if (round < 1) assert_int_equal(ls_server_wait(server), LS_OK);
        ls_server_close(server); /* stops it, and waits */
        assert_int_equal(result, LS_OK);
    }
}

TEST(the_back_end_is_that_of_the_system)
{
    static const char text[] = "require 'luaserve'.init(function() end)";
    const char *const names[] = {"auto", ls_server_backends(), "uring"};
    for (size_t i = 0; i < 3; i++) {
        const ls_server_options options = {
            .size = sizeof options, .site = "m.lua", .source = text, .backend = names[i]};
        lines l = {.len = 0};
        ls_server *server;
        char message[300];
        ls_mutex_open(&l.mutex);
        assert_int_equal(ls_server_log_level("info"), 0);
        ls_server_log_to(keep_line, &l);
        if (i == 2 && strcmp(names[1], "epoll") != 0) {
            check_fails(&options, "unknown back end \"uring\"; available: auto iocp");
        } else {
            if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
            assert_string_equal(l.text,
                                i == 2 ? "2 back end \"uring\": Linux has one back end, epoll, which is used\n" : "");
            ls_server_close(server);
        }
        ls_server_log_to(NULL, NULL);
        assert_int_equal(ls_server_log_level("off"), 0);
        ls_mutex_close(&l.mutex);
    }
}

TEST(threads_that_contradict_threads_max_are_refused)
{
    static const char text[] =
        "local ls = require 'luaserve' "
        "ls.config { threads_max = 1 } "
        "ls.init(function() assert(ls.stats().lua_states == 1 and ls.stats().threads == 1) end)";
    ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = text};
    ls_server *server;
    char message[300];
    for (options.threads = 0; options.threads < 2; options.threads++) {
        if (ls_server_open(&options, &server, message, sizeof message) < 0) fail_msg("%s", message);
        assert_int_equal(ls_server_run(server), 0);
        ls_server_close(server);
    }
    check_fails(&options, "m.lua: threads = 2 must not exceed threads_max = 1 of ls.config");
}

TEST(version_and_build_are_reported)
{
    char version[30];
    snprintf(version, sizeof version, "%d.%d.%d", LS_VERSION_MAJOR, LS_VERSION_MINOR, LS_VERSION_PATCH);
    assert_string_equal(ls_server_version(), version);
    assert_int_equal(ls_server_version_number(), LS_VERSION_NUMBER);
    assert_non_null(strstr(ls_server_build(), "Lua 5.4"));
    assert_true(strlen(ls_server_backends()) > 0);
    assert_string_equal(ls_error_text(0), "ok");
    assert_int_equal(ls_server_log_level("nonsense"), LS_EINVAL);
    assert_int_equal(ls_server_log_level("info"), 0);
    assert_int_equal(ls_server_log_level("off"), 0);
}

/* Start the program with pipes as its input and output; `line` receives its first line. */
static pid_t start_example(char *const argv[], int *in, int *out, char *line, size_t room)
{
    int input[2], output[2];
    assert_int_equal(pipe(input), 0);
    assert_int_equal(pipe(output), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        close(input[1]);
        close(output[0]);
        execv(embed, argv);
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    memset(line, 0, room);
    for (size_t len = 0; len < room - 1 && strchr(line, '\n') == NULL; len++)
        assert_int_equal(read(output[0], line + len, 1), 1);
    *in = input[1];
    *out = output[0];
    return pid;
}

static void end_example(pid_t pid, int in, int out)
{
    char line[100] = "";
    int status;
    close(in);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(read(out, line, sizeof line - 1) > 0);
    assert_int_equal(strncmp(line, "stopped after ", 14), 0);
    close(out);
}

/* The site in its memory calls a function of the program, whose counter is shared by all states. */
TEST(the_example_serves_its_own_site)
{
    char *argv[] = {(char *)(uintptr_t)embed, NULL};
    char line[200], response[500];
    int in, out;
    unsigned port;
    if (embed == NULL) skip();
    const pid_t pid = start_example(argv, &in, &out, line, sizeof line);
    assert_int_equal(sscanf(strstr(line, " serves "), " serves 127.0.0.1:%u", &port), 1);
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int n = 1; n <= 5; n++) {
        char expected[30];
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
        ask(fd, response, sizeof response);
        snprintf(expected, sizeof expected, "\r\n\r\n%d\n", n);
        assert_non_null(strstr(response, expected));
    }
    end_example(pid, in, out);
}

TEST_IN(place, p, the_example_serves_until_its_input_ends, site)
{
    char line[200], response[500], text[] = "from C";
    int in, out;
    if (embed == NULL) skip();
    char *argv[] = {(char *)(uintptr_t)embed, p->site, p->address, text, NULL};
    const pid_t pid = start_example(argv, &in, &out, line, sizeof line);
    assert_non_null(strstr(line, " serves "));
    assert_non_null(strstr(line, p->address));
    get(p, response, sizeof response);
    assert_non_null(strstr(response, "\r\n\r\nfrom C"));
    end_example(pid, in, out);
}

/* ---- posts --------------------------------------------------------------------------------------------------- */

/* Serves the posts that it has received, one per request. */
static const char hearing[] = "local ls = require 'luaserve' "
                              "local app = ls.app() "
                              "local got = ls.channel('got', { capacity = 10000 }) "
                              "ls.on('host', function(data) got:send(data) end) "
                              "app:get('/', function() return ('%q'):format((got:receive(20))) end) "
                              "ls.listen(..., app)";

static void open_text(ls_server **server, const char *text, char *address)
{
    char message[300] = "";
    char *args[] = {address};
    const ls_server_options options = {.size = sizeof options,
                                       .site = "m.lua",
                                       .source = text,
                                       .argc = address != NULL,
                                       .argv = args,
                                       .threads = 2,
                                       .open = define_hit};
    if (ls_server_open(&options, server, message, sizeof message) < 0) fail_msg("%s", message);
}

static void expect_answer(const place *p, const char *body)
{
    char response[500];
    get(p, response, sizeof response);
    const char *found = strstr(response, "\r\n\r\n");
    assert_non_null(found);
    assert_string_equal(found + 4, body);
}

TEST_IN(place, p, posts_reach_lua, "")
{
    running r;
    open_text(&r.server, hearing, p->address);
    assert_int_equal(ls_server_post(r.server, "before", 6), 0); /* kept until it serves */
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    expect_answer(p, "\"before\"");
    assert_int_equal(ls_server_post(r.server, "a\0b", 3), 0);
    expect_answer(p, "\"a\\0b\"");
    assert_int_equal(ls_server_post(r.server, NULL, 0), 0);
    expect_answer(p, "\"\"");
    stop(&r);
}

enum { POSTERS = 4, POSTS_EACH = 500 };

typedef struct poster {
    ls_server *server;
    int number;
} poster;

static void post_many(void *arg)
{
    for (int n = 0; n < POSTS_EACH; n++) {
        int result;
        while ((result = ls_server_post(arg, "x", 1)) == LS_EAGAIN) continue;
        assert_int_equal(result, 0);
    }
}

static void post_numbers(void *arg)
{
    const poster *p = arg;
    char text[20];
    for (int n = 1; n <= POSTS_EACH; n++) {
        const int bytes = snprintf(text, sizeof text, "%d %d", p->number, n);
        while (ls_server_post(p->server, text, (size_t)bytes) == LS_EAGAIN) continue;
    }
}

/* Those of one thread arrive in the order of its calls, also when the functions wait and run in two states. */
TEST(posts_arrive_in_order)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local last = ls.dict('last') "
                               "ls.on('host', function(data) "
                               "  local poster, n = data:match('(%d+) (%d+)') "
                               "  if (last:get(poster) or 0) == n - 1 then hit() end "
                               "  last:set(poster, tonumber(n)) ls.sleep(n % 3 / 1000) end) ";
    ls_thread threads[POSTERS];
    poster posters[POSTERS];
    running r;
    hits = 0;
    open_text(&r.server, text, NULL);
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    for (int n = 0; n < POSTERS; n++) {
        posters[n] = (poster){r.server, n};
        assert_int_equal(ls_thread_start(&threads[n], "poster", post_numbers, &posters[n]), 0);
    }
    for (int n = 0; n < POSTERS; n++) ls_thread_join(&threads[n]);
    stop(&r);
    assert_int_equal(hits, POSTERS * POSTS_EACH);
}

typedef struct answer {
    _Atomic int times;
    int result;
    char text[80];
} answer;

static void keep_answer(void *user, int result, const char *data, size_t bytes)
{
    answer *a = user;
    a->result = result;
    snprintf(a->text, sizeof a->text, "%.*s", data != NULL ? (int)bytes : 3, data != NULL ? data : "nil");
    atomic_fetch_add(&a->times, 1);
}

TEST(calls_have_results)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.on('host', function(code) return load(code)() end) "
                               "ls.on('host', function() ls.sleep(0.01) return 'second' end) "
                               "ls.init(function() end)";
    static const struct {
        const char *code;
        int result;
        const char *answer;
    } calls[] = {
        {"return 'a text'", LS_OK, "a text"},
        {"return ''", LS_OK, ""},
        {"return { n = 1.5, { true } }, 2", LS_OK, NULL},
        {"require 'luaserve'.sleep(0) return false", LS_OK, "false"},
        {"return", LS_OK, "second"},
        {"error 'no luck'", LS_ESCRIPT, "[string \"error 'no luck'\"]:1: no luck"},
        {"return print", LS_ESCRIPT, NULL},
    };
    enum { CALLS = sizeof calls / sizeof calls[0] };
    answer answers[CALLS] = {{0}};
    running r;
    open_text(&r.server, text, NULL);
    for (int n = 0; n < CALLS; n++) { /* of each call its own `user` */
        const char *code = calls[n].code;
        assert_int_equal(ls_server_call(r.server, code, strlen(code), keep_answer, &answers[n]), LS_OK);
    }
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    for (int n = 0; n < CALLS; n++)
        while (atomic_load(&answers[n].times) == 0) ls_clock_sleep_ms(1);
    stop(&r);
    for (int n = 0; n < CALLS; n++) {
        assert_int_equal(answers[n].times, 1);
        assert_int_equal(answers[n].result, calls[n].result);
        if (calls[n].answer != NULL) assert_string_equal(answers[n].text, calls[n].answer);
    }
}

/* A server that never ran, one whose stop ends the task, and one that is abandoned. */
TEST(a_call_that_is_ended_is_answered)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.config { drain_timeout = 0.05 } "
                               "ls.on('host', function() hit() ls.sleep(60) end) ";
    for (int round = 0; round < 2; round++) {
        answer a = {0};
        running r;
        hits = 0;
        open_text(&r.server, text, NULL);
        assert_int_equal(ls_server_call(r.server, "", 0, keep_answer, &a), LS_OK);
        if (round == 1) {
            assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
            while (hits == 0) ls_clock_sleep_ms(1);
            ls_server_stop(r.server);
            ls_thread_join(&r.thread);
            assert_int_equal(r.result, LS_ETIMEDOUT);
        }
        ls_server_close(r.server);
        assert_int_equal(a.times, 1);
        assert_int_equal(a.result, LS_ECANCELED);
    }
}

/* Every post that was accepted runs to its end before the drain ends. */
TEST(many_threads_post_and_the_drain_waits)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.on('host', function(data) assert(data == 'x') ls.sleep(0.001) hit() end) "
                               "ls.on('host', function() hit() end) ";
    ls_thread posters[POSTERS];
    running r;
    hits = 0;
    open_text(&r.server, text, NULL); /* no listener: a site that hears posts does not end by itself */
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    for (int n = 0; n < POSTERS; n++) assert_int_equal(ls_thread_start(&posters[n], "poster", post_many, r.server), 0);
    for (int n = 0; n < POSTERS; n++) ls_thread_join(&posters[n]);
    ls_server_stop(r.server);
    assert_int_equal(ls_server_post(r.server, "x", 1), LS_ECLOSED);
    ls_thread_join(&r.thread);
    assert_int_equal(r.result, 0);
    assert_int_equal(hits, 2 * POSTERS * POSTS_EACH);
    assert_int_equal(ls_server_post(r.server, "x", 1), LS_ECLOSED);
    assert_int_equal(ls_server_call(r.server, "x", 1, keep_answer, NULL), LS_ECLOSED);
    ls_server_close(r.server);
}

/* Messages of a thread of the program, before the server serves and meanwhile. */
TEST_IN(place, p, publications_reach_subscribers, "")
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local app, seen = ls.app(), ls.channel('seen') "
                               "ls.subscribe('news', function(data) seen:send(data) end) "
                               "app:get('/', function() return string.format('%q', seen:receive(20)) end) "
                               "ls.listen(..., app)";
    char name[1026];
    running r;
    open_text(&r.server, text, p->address);
    assert_int_equal(ls_server_publish(r.server, "news", "before", 6), 1); /* kept until it serves */
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    expect_answer(p, "\"before\"");
    assert_int_equal(ls_server_publish(r.server, "news", "\xff", 1), 1);
    expect_answer(p, "\"\xff\"");
    assert_int_equal(ls_server_publish(r.server, "news", NULL, 0), 1);
    expect_answer(p, "\"\"");
    assert_int_equal(ls_server_publish(r.server, "other", "x", 1), 0);
    memset(name, 'n', sizeof name);
    name[1024] = '\0';
    assert_int_equal(ls_server_publish(r.server, name, "x", 1), 0);
    name[1024] = 'n';
    name[1025] = '\0';
    assert_int_equal(ls_server_publish(r.server, name, "x", 1), LS_EINVAL);
    assert_int_equal(ls_server_publish(r.server, "", "x", 1), LS_EINVAL);
    ls_server_stop(r.server);
    ls_thread_join(&r.thread);
    assert_int_equal(r.result, 0);
    assert_int_equal(ls_server_publish(r.server, "news", "x", 1), 0); /* nobody is left */
    ls_server_close(r.server);
}

TEST_IN(place, p, unfinished_posts_are_limited, "")
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local app = ls.app() "
                               "local go = ls.channel('go', { capacity = 10000 }) "
                               "ls.on('host', function() go:receive() hit() end) "
                               "app:get('/', function() for _ = 1, 2000 do go:send(1) end return 'go' end) "
                               "ls.listen(..., app)";
    running r;
    hits = 0;
    open_text(&r.server, text, p->address);
    for (int n = 0; n < LS_SERVER_POSTS_MAX; n++) assert_int_equal(ls_server_post(r.server, "x", 1), 0);
    assert_int_equal(ls_server_post(r.server, "x", 1), LS_EAGAIN); /* one past the limit */
    ls_server_close(r.server);                                     /* never delivered */

    open_text(&r.server, text, p->address);
    assert_int_equal(ls_thread_start(&r.thread, "server", run, &r), 0);
    for (int n = 0; n < LS_SERVER_POSTS_MAX; n++) assert_int_equal(ls_server_post(r.server, "x", 1), 0);
    assert_int_equal(ls_server_post(r.server, "x", 1), LS_EAGAIN); /* all wait */
    expect_answer(p, "go");
    while (ls_server_post(r.server, "x", 1) == LS_EAGAIN) continue;
    stop(&r);
    assert_int_equal(hits, LS_SERVER_POSTS_MAX + 1);
}

TEST(a_site_that_does_not_hear_refuses_posts)
{
    place p;
    running r;
    place_open(&p, site);
    start(&r, &p, "text");
    assert_int_equal(ls_server_post(r.server, "x", 1), LS_ENOENT);
    stop(&r);
    place_close(&p);

    static const char many[] = "local ls = require 'luaserve' "
                               "for _ = 1, 17 do ls.on('host', function() end) end";
    const ls_server_options options = {.size = sizeof options, .site = "m.lua", .source = many};
    check_fails(&options, "ls.on: more than 16 \"host\" hooks");
}

TEST(an_error_in_a_host_function_is_logged)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "ls.on('host', function(data) error('no ' .. data) end) "
                               "ls.on('host', function(data) hit() ls.stop() end) ";
    lines l = {.len = 0};
    ls_server *server;
    hits = 0;
    ls_mutex_open(&l.mutex);
    assert_int_equal(ls_server_log_level("error"), 0);
    ls_server_log_to(keep_line, &l);
    open_text(&server, text, NULL);
    assert_int_equal(ls_server_post(server, "luck", 4), 0);
    assert_int_equal(ls_server_run(server), 0);
    ls_server_close(server);
    ls_server_log_to(NULL, NULL);
    assert_int_equal(ls_server_log_level("off"), 0);
    assert_int_equal(hits, 1);
    assert_non_null(strstr(l.text, "3 in a \"host\" hook: m.lua:1: no luck"));
    ls_mutex_close(&l.mutex);
}

TEST_IN(place, p, counters_are_those_of_ls_stats, site)
{
    static const char *const names[] = {"uptime", "lua_states", "lua_bytes", "threads", "packets"};
    running r;
    double value = -1;
    start(&r, p, "text");
    for (int n = 0; n < 3; n++) expect_answer(p, "text");
    assert_int_equal(ls_server_counter(r.server, "responses", &value), 0);
    assert_int_equal((int)value, 3);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        value = -1;
        assert_int_equal(ls_server_counter(r.server, names[n], &value), 0);
        assert_true(value > 0);
    }
    value = -1;
    assert_int_equal(ls_server_counter(r.server, "response", &value), LS_ENOENT);
    assert_true(value < 0);
    stop(&r);
}

/* ---- the process ------------------------------------------------------------------------------------------------ */

static void on_urgent(int number)
{
    hits++;
}

typedef struct process { /* what libraries should leave alone */
    struct sigaction actions[NSIG];
    sigset_t blocked;
    char locale[100], directory[500];
    mode_t mask;
    char **environment;
    size_t variables;
    int line_buffered[3];
    size_t buffers[3];
} process;

static void look(process *p)
{
    FILE *const files[] = {stdin, stdout, stderr};
    memset(p, 0, sizeof *p);
    for (int n = 1; n < NSIG; n++)
        if (sigaction(n, NULL, &p->actions[n]) != 0) memset(&p->actions[n], 0, sizeof p->actions[n]);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &p->blocked), 0);
    snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
    assert_non_null(getcwd(p->directory, sizeof p->directory));
    p->mask = umask(0);
    umask(p->mask);
    p->environment = environ;
    while (environ[p->variables] != NULL) p->variables++;
    for (int n = 0; n < 3; n++) {
        p->line_buffered[n] = __flbf(files[n]);
        p->buffers[n] = __fbufsize(files[n]);
    }
}

static void expect_same(const process *a, const process *b)
{
    for (int n = 1; n < NSIG; n++) {
        if (a->actions[n].sa_handler != b->actions[n].sa_handler) fail_msg("signal %d has another action", n);
        assert_int_equal(a->actions[n].sa_flags, b->actions[n].sa_flags);
    }
    for (int n = 1; n < NSIG; n++) assert_int_equal(sigismember(&a->blocked, n), sigismember(&b->blocked, n));
    assert_string_equal(a->locale, b->locale);
    assert_string_equal(a->directory, b->directory);
    assert_int_equal(a->mask, b->mask);
    assert_ptr_equal(a->environment, b->environment);
    assert_int_equal(a->variables, b->variables);
    for (int n = 0; n < 3; n++) {
        assert_int_equal(a->line_buffered[n], b->line_buffered[n]);
        assert_int_equal(a->buffers[n], b->buffers[n]);
    }
}

/* A server that serves, with max_cpu, TLS and a post, and one beside it. While a server is open only SIGURG has
 * another action; it passes foreign signals on. */
TEST(the_process_is_left_as_it_was)
{
    static const char text[] = "local ls = require 'luaserve' "
                               "local app = ls.app() "
                               "ls.on('host', function() hit() end) "
                               "app:get('/', function() return 'text' end) "
                               "ls.listen(..., app) "
                               "ls.listen{ port = 0, handler = app, tls = 'self-signed' }";
    struct sigaction urgent = {.sa_handler = on_urgent}, old;
    process before, during, after;
    running r[2];
    place places[2];
    assert_int_equal(sigaction(SIGURG, &urgent, &old), 0);
    assert_non_null(setlocale(LC_ALL, "C"));
    look(&before);
    for (int i = 0; i < 2; i++) {
        place_open(&places[i], "");
        open_text(&r[i].server, text, places[i].address);
        assert_int_equal(ls_thread_start(&r[i].thread, "server", run, &r[i]), 0);
        expect_answer(&places[i], "text");
        assert_int_equal(ls_server_post(r[i].server, "x", 1), 0);
    }
    look(&during);
    during.actions[SIGURG] = before.actions[SIGURG];
    expect_same(&before, &during);
    const int seen = hits;
    assert_int_equal(raise(SIGURG), 0);
    assert_true(hits > seen);
    for (int i = 0; i < 2; i++) {
        stop(&r[i]);
        place_close(&places[i]);
    }
    look(&after);
    expect_same(&before, &after);
    assert_int_equal(sigaction(SIGURG, &old, NULL), 0);
}

static void *action_of(int number)
{
    struct sigaction action;
    assert_int_equal(sigaction(number, NULL, &action), 0);
    return (void *)(uintptr_t)action.sa_handler;
}

TEST(signals_change_only_when_asked_for)
{
    static const int numbers[] = {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    place p, second;
    ls_server *server, *other;
    char message[300] = "";
    void *before[6];
    place_open(&p, site);
    place_open(&second, site);
    char *args[] = {p.address, "text"}, *second_args[] = {second.address, "text"};
    ls_server_options options = {.size = sizeof options, .site = p.site, .argc = 2, .argv = args, .threads = 1};
    for (int i = 0; i < 6; i++) before[i] = action_of(numbers[i]);
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    for (int i = 0; i < 6; i++) assert_ptr_equal(action_of(numbers[i]), before[i]);
    ls_server_close(server);

    options.signals = 1;
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    assert_ptr_not_equal(action_of(SIGTERM), before[1]);
    options.site = second.site;
    options.argv = second_args;
    assert_int_equal(ls_server_open(&options, &other, message, sizeof message), LS_EBUSY);
    assert_string_equal(message, "signals: another server of this process handles them");
    ls_server_close(server);
    for (int i = 0; i < 6; i++) assert_ptr_equal(action_of(numbers[i]), before[i]);
    place_close(&p);
    place_close(&second);
}

int main(int argc, char **argv)
{
    if (argc > 1) embed = argv[1];
    (void)ls_server_log_level("off");
    return test_run(NULL, NULL);
}
