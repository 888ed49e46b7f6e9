/* test_suspend.c - a C function that waits, as an embedding program defines it: ls_task_suspend, ls_task_wait and
 * ls_task_resume of luaserve.h. The thread of the test is the one that resumes. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "support.h"

/* ---- the jobs of the program
 * ------------------------------------------------------------------------------------- */

typedef struct job {
    struct job *next;
    ls_task *task;
    char text[40];
} job;

static struct {
    ls_mutex mutex;
    ls_cond changed;
    job *first, *last; /* in the order of the calls */
    int freed;         /* results(NULL, data) */
} jobs;

static void job_push(job *j)
{
    ls_mutex_lock(&jobs.mutex);
    if (jobs.first == NULL)
        jobs.first = j;
    else
        jobs.last->next = j;
    jobs.last = j;
    ls_cond_broadcast(&jobs.changed);
    ls_mutex_unlock(&jobs.mutex);
}

static job *job_take(void)
{
    ls_mutex_lock(&jobs.mutex);
    while (jobs.first == NULL) ls_cond_wait(&jobs.changed, &jobs.mutex);
    job *j = jobs.first;
    jobs.first = j->next;
    ls_mutex_unlock(&jobs.mutex);
    return j;
}

static int freed(void)
{
    ls_mutex_lock(&jobs.mutex);
    const int count = jobs.freed;
    ls_mutex_unlock(&jobs.mutex);
    return count;
}

static void await_freed(int count)
{
    ls_mutex_lock(&jobs.mutex);
    while (jobs.freed < count) ls_cond_wait(&jobs.changed, &jobs.mutex);
    assert_int_equal(jobs.freed, count);
    ls_mutex_unlock(&jobs.mutex);
}

static int results(lua_State *L, void *data)
{
    job *j = data;
    if (L == NULL) {
        free(j);
        ls_mutex_lock(&jobs.mutex);
        jobs.freed++;
        ls_cond_broadcast(&jobs.changed);
        ls_mutex_unlock(&jobs.mutex);
        return 0;
    }
    assert_int_equal(lua_gettop(L), 0);
    if (strcmp(j->text, "fail") == 0) return luaL_error(L, "it failed");
    /* ThreadSanitizer delivers the signal of max_cpu inside a call of the C library. */
    if (strcmp(j->text, "compute") == 0) return luaL_dostring(L, "while true do os.getenv('x') io.stderr:flush() end");
    lua_pushfstring(L, "done %s", j->text);
    lua_pushinteger(L, 42);
    return 2;
}

static job *job_new(lua_State *L)
{
    char text[40];
    snprintf(text, sizeof text, "%s", luaL_checkstring(L, 1));
    ls_task *task = ls_task_suspend(L);
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->task = task;
    memcpy(j->text, text, sizeof text);
    return j;
}

/* ask(text) -> "done <text>", 42 */
static int ask(lua_State *L)
{
    job *j = job_new(L);
    ls_task *task = j->task;
    job_push(j);
    return ls_task_wait(L, task);
}

/* now(text): resumes before it waits. */
static int now(lua_State *L)
{
    job *j = job_new(L);
    ls_task *task = j->task;
    assert_int_equal(ls_task_resume(task, results, j), LS_OK);
    assert_int_equal(ls_task_resume(task, results, j), LS_EBUSY);
    return ls_task_wait(L, task);
}

/* forget(text [, message]): suspends and does not wait; raises the message. */
static int forget(lua_State *L)
{
    job_push(job_new(L));
    return lua_isnoneornil(L, 2) ? 0 : luaL_error(L, "%s", lua_tostring(L, 2));
}

static int define(lua_State *L, void *user)
{
    lua_register(L, "ask", ask);
    lua_register(L, "now", now);
    lua_register(L, "forget", forget);
    return 0;
}

static int resume(job *j)
{
    return ls_task_resume(j->task, results, j);
}

/* ---- a server
 * ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    ls_server *server;
    ls_thread thread;
    int result;
} place;

static const char site[] =
    "local ls = require 'luaserve' "
    "local app = ls.app() "
    "ls.config { states = 1, drain_timeout = tonumber((...)), max_cpu = 0.5 } "
    "loading = select(2, pcall(ask, 'x')) "
    "app:get('/plain', function() return table.concat({ 'a', ask('plain') }, ' ') end) "
    "app:get('/pcall', function() return table.concat({ tostring(pcall(ask, 'fail')), select(2, pcall(ask, 'fail')) "
    "}, ' ') end) "
    "app:get('/inner', function() "
    "  return coroutine.wrap(function() "
    "    local _, done = coroutine.resume(coroutine.create(function() return select(2, pcall(ask, 'inner')) end)) "
    "    return done end)() end) "
    "app:get('/now', function() return (now('now')) end) "
    "app:get('/refused', function() "
    "  return loading .. '; ' .. select(2, pcall(table.sort, { 1, 2 }, function() ask('x') end)) end) "
    "app:get('/forget', function() forget('forgotten') return (ask('after')) end) "
    "app:get('/raise', function() return select(2, pcall(forget, 'forgotten', 'no luck')) end) "
    "app:get('/timeout', { timeout = 0.05 }, function() return (ask('timeout')) end) "
    "app:get('/compute', function() return tostring(pcall(ask, 'compute')) end) "
    "app:get('/spawn', function() local c = ls.channel('c') "
    "  ls.spawn(function() c:send(ask('spawned')) end) "
    "  ls.after(0, function() c:send(ask('timer')) end) "
    "  return c:receive(20) .. ', ' .. c:receive(20) end) "
    "app:ws('/ws', function(ws) ws:send((ask((ws:receive())))) end) "
    "app:get('/clients/:tcp', function(req) "
    "  local ws <close> = assert(ls.websocket('ws://' .. req.authority .. '/ws')) "
    "  ws:send('websocket') "
    "  local sock <close> = assert(ls.connect(req.params.tcp)) "
    "  sock:send('tcp\\n') "
    "  return ws:receive() .. ', ' .. sock:receive('*l') end) "
    "ls.listen('127.0.0.1:0', app) "
    "ls.tcp('127.0.0.1:0', function(sock) sock:send((ask((sock:receive('*l')))) .. '\\n') end) ";

static void run(void *arg)
{
    place *p = arg;
    p->result = ls_server_run(p->server);
}

static void start(place *p, const char *drain_timeout)
{
    char *args[] = {(char *)(uintptr_t)drain_timeout};
    char message[300] = "";
    const ls_server_options options = {.size = sizeof options,
                                       .site = "m.lua",
                                       .source = site,
                                       .argc = 1,
                                       .argv = args,
                                       .threads = 2,
                                       .open = define};
    jobs.freed = 0;
    if (ls_server_open(&options, &p->server, message, sizeof message) < 0) fail_msg("%s", message);
    assert_int_equal(ls_thread_start(&p->thread, "server", run, p), 0);
}

static void finish(place *p)
{
    ls_thread_join(&p->thread);
    assert_int_equal(p->result, LS_OK);
    ls_server_close(p->server);
    assert_null(jobs.first);
}

static void stop(place *p)
{
    ls_server_stop(p->server);
    finish(p);
}

/* Send GET `path`; the answer is read by expect(). */
static int get(const place *p, const char *path)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char host[128], text[400];
    assert_int_equal(ls_server_address(p->server, 0, host, sizeof host), 0);
    at.sin_port = htons((uint16_t)strtoul(strrchr(host, ':') + 1, NULL, 10));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    const int len =
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
    assert_int_equal(write(fd, text, (size_t)len), len);
    return fd;
}

static void expect(int fd, const char *status, const char *body)
{
    char response[1500];
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, response + len, sizeof response - 1 - len)) > 0) len += (size_t)n;
    response[len] = '\0';
    close(fd);
    const char *found = strstr(response, "\r\n\r\n");
    if (found == NULL || strncmp(response, "HTTP/1.1 ", 9) != 0) fail_msg("no response: \"%s\"", response);
    assert_int_equal(strncmp(response + 9, status, 3), 0);
    if (body != NULL) assert_string_equal(found + 4, body);
}

/* ---- results
 * ----------------------------------------------------------------------------------------------------- */

TEST(a_task_waits_for_its_results)
{
    char path[200];
    place p;
    start(&p, "20");
    int fd = get(&p, "/plain");
    assert_int_equal(resume(job_take()), LS_OK);
    expect(fd, "200", "a done plain 42");
    fd = get(&p, "/now");
    expect(fd, "200", "done now");
    fd = get(&p, "/pcall"); /* an error of the results is one of the function */
    for (int n = 0; n < 2; n++) assert_int_equal(resume(job_take()), LS_OK);
    expect(fd, "200", "false it failed");
    fd = get(&p, "/inner");
    assert_int_equal(resume(job_take()), LS_OK);
    expect(fd, "200", "done inner");

    fd = get(&p, "/spawn"); /* a job and a timer of one state, resumed in the other order */
    job *j[2] = {job_take(), job_take()};
    assert_int_equal(resume(j[1]), LS_OK);
    await_freed(6);
    assert_int_equal(resume(j[0]), LS_OK);
    expect(fd, "200", NULL);

    strcpy(path, "/clients/");
    assert_int_equal(ls_server_address(p.server, 1, path + 9, sizeof path - 9), 0);
    fd = get(&p, path); /* handlers of a WebSocket and of a TCP connection */
    for (int n = 0; n < 2; n++) assert_int_equal(resume(job_take()), LS_OK);
    expect(fd, "200", "done websocket, done tcp");
    stop(&p);
    assert_int_equal(freed(), 9);
}

TEST(it_is_refused_where_a_task_cannot_wait)
{
    place p;
    start(&p, "20");
    expect(get(&p, "/refused"), "200",
           "cannot wait while the site loads; call it in a handler, or in a function of ls.init or ls.on(\"start\"); "
           "m.lua:1: cannot wait here: the call is inside a C function (such as table.sort, string.gsub or require), "
           "a hook or a finalizer");
    stop(&p);
    assert_int_equal(freed(), 0);
}

/* A resume of a suspension for which no task waits releases its data, and wakes nothing. */
TEST(a_function_that_does_not_wait_is_not_woken)
{
    place p;
    start(&p, "20");
    int fd = get(&p, "/forget");
    job *forgotten = job_take(), *after = job_take();
    (void)resume(forgotten); /* LS_OK as long as the run of the task that has suspended has not ended */
    await_freed(1);
    assert_int_equal(resume(after), LS_OK);
    expect(fd, "200", "done after");
    fd = get(&p, "/raise");
    expect(fd, "200", "no luck");
    (void)resume(job_take());
    stop(&p);
    assert_int_equal(freed(), 3);
}

/* ---- a task that ends before
 * ------------------------------------------------------------------------------------- */

TEST(a_task_may_end_before_the_resume)
{
    place p;
    start(&p, "20");
    int fd = get(&p, "/timeout");
    job *j = job_take();
    expect(fd, "503", NULL);
    assert_int_equal(resume(j), LS_ECANCELED);
    assert_int_equal(freed(), 1);
    fd = get(&p, "/compute"); /* max_cpu ends the function of the results */
    assert_int_equal(resume(job_take()), LS_OK);
    expect(fd, "500", NULL);
    await_freed(2);
    close(get(&p, "/plain")); /* the client leaves: the handler goes on */
    assert_int_equal(resume(job_take()), LS_OK);
    await_freed(3);
    stop(&p);
}

TEST(a_drain_waits_for_suspended_tasks)
{
    place p;
    start(&p, "20");
    int fd = get(&p, "/plain");
    job *j = job_take();
    ls_server_stop(p.server);
    assert_int_equal(resume(j), LS_OK);
    expect(fd, "200", "a done plain 42");
    finish(&p);
    assert_int_equal(freed(), 1);
}

/* The previous site ends without its suspended task; the task of the new one does not notice. */
TEST(a_reload_ends_a_suspended_task_after_drain_timeout)
{
    place p;
    start(&p, "0.05");
    int fd = get(&p, "/plain"), after;
    job *old = job_take(), *later;
    int err;
    while ((err = ls_server_reload(p.server, NULL, 0)) == LS_EBUSY) ls_clock_sleep_ms(1); /* it does not serve yet */
    assert_int_equal(err, LS_OK);
    after = get(&p, "/plain");
    later = job_take();
    char byte;
    assert_true(read(fd, &byte, 1) <= 0); /* the connection was cut */
    close(fd);
    double states = 2;
    while (states > 1) {
        assert_int_equal(ls_server_counter(p.server, "lua_states", &states), 0);
        ls_clock_sleep_ms(5);
    }
    assert_int_equal(resume(old), LS_ECANCELED);
    assert_int_equal(freed(), 1);
    assert_int_equal(resume(later), LS_OK);
    expect(after, "200", "a done plain 42");
    ls_server_stop(p.server);
    ls_thread_join(&p.thread);
    assert_true(p.result == LS_OK || p.result == LS_ETIMEDOUT); /* a busy machine needs more than 0.05 s to drain */
    ls_server_close(p.server);
    assert_int_equal(freed(), 2);
}

/* A stop that timed out has ended the requests. The server is closed with suspended jobs; the resume of one follows. */
TEST(the_resume_may_follow_the_close)
{
    place p;
    start(&p, "0.05");
    const int fd = get(&p, "/plain");
    job *request = job_take();
    const int other = get(&p, "/spawn");
    job *j[2] = {job_take(), job_take()};
    ls_server_stop(p.server);
    ls_thread_join(&p.thread);
    assert_int_equal(p.result, LS_ETIMEDOUT);
    expect(fd, "503", NULL);
    expect(other, "503", NULL);
    assert_int_equal(resume(request), LS_ECANCELED);
    assert_int_equal(resume(j[1]), LS_OK);
    await_freed(2);
    ls_server_close(p.server); /* ends the task that waits */
    assert_int_equal(resume(j[0]), LS_ECANCELED);
    assert_int_equal(freed(), 3);
}

/* ---- threads
 * ----------------------------------------------------------------------------------------------------- */

enum { CLIENTS = 30, RESUMERS = 3 };

static void resume_all(void *arg)
{
    for (int n = 0; n < CLIENTS; n++) (void)resume(job_take());
}

/* Resumes race with the timeouts, with each other, and with a stop. */
TEST(many_threads_resume)
{
    ls_thread resumers[RESUMERS];
    int fds[CLIENTS * RESUMERS];
    place p;
    start(&p, "20");
    for (int n = 0; n < CLIENTS * RESUMERS; n++) fds[n] = get(&p, n % 2 == 0 ? "/timeout" : "/inner");
    for (int n = 0; n < RESUMERS; n++) assert_int_equal(ls_thread_start(&resumers[n], "r", resume_all, NULL), 0);
    ls_server_stop(p.server);
    for (int n = 0; n < CLIENTS * RESUMERS; n++) {
        char text[200] = "";
        assert_true(read(fds[n], text, sizeof text - 1) > 0);
        if (n % 2 != 0) assert_non_null(strstr(text, " 200 "));
        close(fds[n]);
    }
    for (int n = 0; n < RESUMERS; n++) ls_thread_join(&resumers[n]);
    finish(&p);
    assert_int_equal(freed(), CLIENTS * RESUMERS);
}

int main(void)
{
    (void)ls_server_log_level("off");
    ls_mutex_open(&jobs.mutex);
    ls_cond_open(&jobs.changed);
    return test_run(NULL, NULL);
}
