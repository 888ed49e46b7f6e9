/* site_fixture.h - a site for one test: its text, a real port with one thread context, and the lines that the site
 * logged. The thread of the test is the worker. A snippet ends with core.log("info", "DONE"). */
#ifndef LS_TESTS_SUPPORT_SITE_H
#define LS_TESTS_SUPPORT_SITE_H

#include <unistd.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/thread.h"
#include "net/stream/deadline.h"
#include "net/stream/stream.h"
#include "port/notify.h"
#include "script/bind/http/request.h"
#include "script/site/site_internal.h"
#include "support.h"

typedef struct test_site {
    ls_runtime *runtime;
    ls_site *site;
    ls_port *port;
    ls_deadlines *deadlines;
    ls_pools *pools;
    ls_pool *pool;
    ls_thread_ctx ctx;
    int opened;
    char message[400];
    ls_mutex log_mutex; /* the log calls the sink without a lock */
    char log[65536];
    size_t log_len;
    bool done;
} test_site;

static void test_sink(int level, const char *line, size_t len, void *user)
{
    test_site *t = user;
    ls_mutex_lock(&t->log_mutex);
    if (len == 4 && memcmp(line, "DONE", 4) == 0) t->done = true;
    if (len <= sizeof t->log - t->log_len - 2) {
        memcpy(t->log + t->log_len, line, len);
        t->log_len += len;
        t->log[t->log_len++] = '\n';
        t->log[t->log_len] = '\0';
    }
    ls_mutex_unlock(&t->log_mutex);
}

/* The first line of every site: the helpers of site_fixture.lua as local variables. */
static const char test_prelude[] = "local t = assert(loadfile('" TEST_TREE "/tests/unit/script/site_fixture.lua'))() "
                                   "local core, failed, get, header = t.core, t.failed, t.get, t.header "
                                   "local is, show, done, body = t.is, t.show, t.done, t.body\n";

/* The text of a site: the function `name` of a file of Lua, whose path is relative to tests/unit. The file gets the
 * helpers and returns a table of such functions. */
static inline const char *test_lua(const char *file, const char *name)
{
    static char text[sizeof TEST_TREE + 200];
    const int len = snprintf(text, sizeof text, "assert(loadfile('" TEST_TREE "/tests/unit/%s'))(t).%s()", file, name);
    assert_in_range(len, 1, sizeof text - 1);
    return text;
}

static inline test_site *test_site_new(void)
{
    test_site *t = calloc(1, sizeof *t);
    assert_non_null(t);
    ls_mutex_open(&t->log_mutex);
    ls_log_set_sink(test_sink, t);
    return t;
}

static inline void test_site_free(test_site *t)
{
    ls_log_set_sink(NULL, NULL);
    ls_mutex_close(&t->log_mutex);
    free(t);
}

static inline void test_dispatch(test_site *t, const ls_packet *packet)
{
    if (packet->op != NULL)
        ls_packet_dispatch(&t->ctx, packet);
    else
        ls_packet_handler_call(&t->ctx, packet);
}

/* What the port has after at most wait_ms. */
static inline void test_pump_once(test_site *t, unsigned wait_ms)
{
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    const int count = ls_port_wait(t->port, &t->ctx, packets, LS_WAIT_PACKETS_MAX, wait_ms);
    for (int n = 0; n < count; n++) test_dispatch(t, &packets[n]);
}

/* Until the site is done or the log contains `text`; at most a minute, on a busy machine. */
static inline void test_pump_until(test_site *t, const char *text)
{
    const uint64_t until = ls_clock_ns() + UINT64_C(60000000000);
    while (!t->done && (text == NULL || strstr(t->log, text) == NULL) && ls_clock_ns() < until) test_pump_once(t, 20);
}

static inline void test_pump(test_site *t)
{
    test_pump_until(t, NULL);
}

static inline test_site *test_site_open(const char *text)
{
    const ls_port_options port_options = {.sockets_max = 16};
    char path[] = TEST_SCRATCH_PATH;
    test_site *t = test_site_new();
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    fprintf(file, "%s%s", test_prelude, text);
    fclose(file);
    const ls_site_options options = {.path = path};
    assert_int_equal(ls_site_runtime_open(NULL, &t->runtime), LS_OK);
    t->opened = ls_site_open(t->runtime, &options, &t->site, t->message, sizeof t->message);
    if (t->opened == LS_OK) {
        assert_int_equal(ls_port_open(&port_options, &t->port), LS_OK);
        assert_int_equal(ls_pools_open(64 << 20, &t->pools), LS_OK);
        assert_int_equal(ls_pool_open(t->pools, &t->pool), LS_OK);
        ls_pool_enter(t->pool);
        ls_thread_ctx_init(&t->ctx, t->port, t->pool, 0);
        assert_int_equal(ls_stream_deadlines_open(t->port, &t->deadlines), LS_OK);
        assert_int_equal(ls_site_runtime_attach(t->runtime, t->port, t->deadlines, 1), LS_OK);
        assert_int_equal(ls_site_ready(t->site, 1, 1, t->message, sizeof t->message), LS_OK);
        ls_pool_enter(t->pool);
        ls_site_start(t->site, NULL);
    }
    unlink(path);
    return t;
}

static inline void test_site_close(test_site *t)
{
    if (t->opened == LS_OK) {
        ls_packet packet;
        ls_site_close_sockets(t->site, &t->ctx);
        while (ls_port_wait(t->port, &t->ctx, &packet, 1, 0) > 0) test_dispatch(t, &packet);
        ls_port_close(t->port);
        ls_deadlines_close(t->deadlines);
        ls_site_close(t->site);
    }
    ls_site_runtime_close(t->runtime);
    if (t->opened == LS_OK) {
        ls_pool_close(t->pool);
        ls_pools_close(t->pools);
    }
    test_site_free(t);
}

/* The only state. */
static inline ls_state *test_state(const test_site *t)
{
    return ls_generation_first(&t->site->generation);
}

/* Limit the memory of Lua in a state from now on. */
static inline void test_limit_memory(ls_state *state, size_t bytes_max)
{
    state->bytes_max = bytes_max;
    state->bytes_granted = 0;
}

/* Run a snippet until it logs DONE. It fails if it logs FAILED. */
static inline void test_snippet(const char *text)
{
    test_site *t = test_site_open(text);
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    test_pump(t);
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s\n%s", t->done ? "failed" : "not done", t->log);
    test_site_close(t);
}

/* The same; the log must also contain `expected`. */
static inline void test_snippet_logs(const char *text, const char *expected)
{
    test_site *t = test_site_open(text);
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    test_pump(t);
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s\n%s", t->done ? "failed" : "not done", t->log);
    if (strstr(t->log, expected) == NULL) fail_msg("not logged: %s\n%s", expected, t->log);
    test_site_close(t);
}

/* Loading must fail with a message that contains `expected`. */
static inline void test_load_fails(const char *text, const char *expected)
{
    test_site *t = test_site_open(text);
    assert_int_not_equal(t->opened, LS_OK);
    if (strstr(t->message, expected) == NULL) fail_msg("expected '%s' in '%s'", expected, t->message);
    test_site_close(t);
}

/* SITE_TEST(name): a test that runs the function of this name in the Lua file of SITE(), which the test defines. */
#define SITE_TEST(name)            \
    TEST(name)                     \
    {                              \
        test_snippet(SITE(#name)); \
    }

#endif
