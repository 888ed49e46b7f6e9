/* test_embed.c - the C interface as an embedding program uses it: only luaserve.h, in this process; and the program
 * examples/c/embed.c, whose path is the first argument, as a child process. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "luaserve.h"
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

/* GET / with Connection: close; reads the whole response. The listener exists after ls_server_open. */
static void get(const place *p, char *out, size_t room)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    const int fd = dial(p);
    size_t len = 0;
    ssize_t n;
    assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
    while ((n = read(fd, out + len, room - 1 - len)) > 0) len += (size_t)n;
    out[len] = '\0';
    close(fd);
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
    const ls_server_options options = {.site = p->site, .argc = 2, .argv = args, .threads = 1};
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

static void two_servers_in_one_program_one_after_the_other(void **state)
{
    place places[2];
    running r[2];
    char response[500];
    (void)state;
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

static void serving_is_called_once_and_may_stop_it(void **state)
{
    place p;
    notified t = {NULL, 0};
    char message[300] = "";
    (void)state;
    place_open(&p, site);
    char *args[] = {p.address, "text"};
    const ls_server_options options = {
        .site = p.site, .argc = 2, .argv = args, .threads = 1, .serving = stop_when_serving, .user = &t};
    assert_int_equal(ls_server_open(&options, &t.server, message, sizeof message), 0);
    assert_int_equal(t.times, 0);
    assert_int_equal(ls_server_run(t.server), 0);
    assert_int_equal(t.times, 1);
    ls_server_close(t.server);
    place_close(&p);
}

static void a_stop_may_come_before_the_run(void **state)
{
    char message[300];
    ls_server *server;
    place p;
    (void)state;
    place_open(&p, site);
    char *args[] = {p.address};
    const ls_server_options options = {.site = p.site, .argc = 1, .argv = args};
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    ls_server_stop(server);
    assert_int_equal(ls_server_run(server), 0);
    ls_server_close(server);

    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    ls_server_close(server); /* without a run */
    place_close(&p);
}

static void the_loopback_may_have_one_address(void **state)
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
    (void)state;
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

static void failures_are_described_and_leave_nothing_open(void **state)
{
    ls_server *server;
    char message[300];
    place p;
    (void)state;
    const int next = dup(0);
    close(next);
    place_open(&p, site);
    char *args[] = {p.address, NULL};
    ls_server_options options = {.site = "/nowhere/site.lua"};
    check_fails(&options, "/nowhere/site.lua");
    options = (ls_server_options){.site = p.site, .argc = 1, .argv = args, .backend = "carrier pigeon"};
    check_fails(&options, "carrier pigeon");
    options.backend = NULL;
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    check_fails(&options, "address in use");
    ls_server_close(server);
    place_close(&p);

    place_open(&p, "local x = = 1");
    options = (ls_server_options){.site = p.site};
    check_fails(&options, "site.lua:1:");
    place_close(&p);
    const int after = dup(0);
    assert_int_equal(after, next); /* no descriptor was leaked */
    close(after);
}

static void version_and_build_are_reported(void **state)
{
    (void)state;
    assert_non_null(strchr(ls_server_version(), '.'));
    assert_non_null(strstr(ls_server_build(), "Lua 5.4"));
    assert_true(strlen(ls_server_backends()) > 0);
    assert_string_equal(ls_error_text(0), "ok");
    assert_int_equal(ls_server_log_level("nonsense"), -3);
    assert_int_equal(ls_server_log_level("info"), 0);
    assert_int_equal(ls_server_log_level("off"), 0);
}

static void the_example_serves_until_its_input_ends(void **state)
{
    int in[2], out[2], status;
    char line[100] = "", response[500];
    place p;
    (void)state;
    if (embed == NULL) skip();
    place_open(&p, site);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl(embed, embed, p.site, p.address, "from C", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    for (size_t len = 0; len < sizeof line - 1 && strchr(line, '\n') == NULL; len++)
        assert_int_equal(read(out[0], line + len, 1), 1);
    assert_non_null(strstr(line, "serves"));
    get(&p, response, sizeof response);
    assert_non_null(strstr(response, "\r\n\r\nfrom C"));
    close(in[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    memset(line, 0, sizeof line);
    assert_true(read(out[0], line, sizeof line - 1) > 0);
    assert_string_equal(line, "stopped\n");
    close(out[0]);
    place_close(&p);
}

static void *action_of(int number)
{
    struct sigaction action;
    assert_int_equal(sigaction(number, NULL, &action), 0);
    return (void *)(uintptr_t)action.sa_handler;
}

static void signals_change_only_when_asked_for(void **state)
{
    static const int numbers[] = {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    place p, second;
    ls_server *server, *other;
    char message[300] = "";
    void *before[6];
    (void)state;
    place_open(&p, site);
    place_open(&second, site);
    char *args[] = {p.address, "text"}, *second_args[] = {second.address, "text"};
    ls_server_options options = {.site = p.site, .argc = 2, .argv = args, .threads = 1};
    for (int i = 0; i < 6; i++) before[i] = action_of(numbers[i]);
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    for (int i = 0; i < 6; i++) assert_ptr_equal(action_of(numbers[i]), before[i]);
    ls_server_close(server);

    options.signals = 1;
    assert_int_equal(ls_server_open(&options, &server, message, sizeof message), 0);
    assert_ptr_not_equal(action_of(SIGTERM), before[1]);
    options.site = second.site;
    options.argv = second_args;
    assert_int_equal(ls_server_open(&options, &other, message, sizeof message), -20); /* LS_EBUSY */
    assert_string_equal(message, "signals: another server of this process handles them");
    ls_server_close(server);
    for (int i = 0; i < 6; i++) assert_ptr_equal(action_of(numbers[i]), before[i]);
    place_close(&p);
    place_close(&second);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_servers_in_one_program_one_after_the_other),
        cmocka_unit_test(signals_change_only_when_asked_for),
        cmocka_unit_test(serving_is_called_once_and_may_stop_it),
        cmocka_unit_test(a_stop_may_come_before_the_run),
        cmocka_unit_test(the_loopback_may_have_one_address),
        cmocka_unit_test(failures_are_described_and_leave_nothing_open),
        cmocka_unit_test(version_and_build_are_reported),
        cmocka_unit_test(the_example_serves_until_its_input_ends),
    };
    if (argc > 1) embed = argv[1];
    (void)ls_server_log_level("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
