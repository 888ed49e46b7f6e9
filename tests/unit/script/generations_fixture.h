/* generations_fixture.h - workers that run, and generations of a site that come and go beside them. */
#ifndef LS_TESTS_GENERATIONS_H
#define LS_TESTS_GENERATIONS_H

#include "sched/workers.h"
#include "script/site_fixture.h"

enum { GENERATIONS_THREADS = 2, GENERATIONS_THREADS_MAX = 4, GENERATIONS_PATIENCE_MS = 60000 };

typedef struct generations {
    test_site *t; /* the sink of the log */
    ls_runtime *runtime;
    ls_port *port;
    ls_pools *pools;
    ls_deadlines *deadlines;
    ls_workers *workers;
} generations;

static inline bool generations_on_tick(bool idle, void *runtime)
{
    bool more;
    (void)ls_site_on_tick(runtime, idle, &more);
    return more;
}

static inline void generations_open(generations *g)
{
    const ls_port_options port_options = {.sockets_max = 256};
    g->t = test_site_new();
    assert_int_equal(ls_site_runtime_open(NULL, &g->runtime), LS_OK);
    assert_int_equal(ls_port_open(&port_options, &g->port), LS_OK);
    assert_int_equal(ls_pools_open(64 << 20, &g->pools), LS_OK);
    assert_int_equal(ls_stream_deadlines_open(g->port, &g->deadlines), LS_OK);
    const ls_workers_options options = {.threads = GENERATIONS_THREADS,
                                        .threads_max = GENERATIONS_THREADS_MAX,
                                        .on_user_packet = ls_packet_handler_call,
                                        .on_stall = ls_runtime_on_stall,
                                        .on_tick = generations_on_tick,
                                        .on_thread_end = ls_runtime_on_thread_end,
                                        .user = g->runtime};
    assert_int_equal(ls_workers_open(g->port, g->pools, &options, &g->workers), LS_OK);
    assert_int_equal(ls_site_runtime_attach(g->runtime, g->port, g->deadlines, GENERATIONS_THREADS_MAX), LS_OK);
    assert_int_equal(ls_workers_start(g->workers), LS_OK);
}

static inline void generations_close(generations *g)
{
    ls_workers_stop(g->workers);
    assert_true(ls_workers_join(g->workers, 0));
    ls_workers_close(g->workers);
    ls_port_close(g->port);
    ls_deadlines_close(g->deadlines);
    ls_site_runtime_close(g->runtime);
    ls_pools_close(g->pools);
    test_site_free(g->t);
}

/* Load and start a generation. */
static inline ls_site *generation_start(const generations *g, const char *text)
{
    char message[400], *source;
    ls_site *site;
    const size_t bytes = sizeof test_prelude + strlen(text);
    source = malloc(bytes);
    assert_non_null(source);
    (void)snprintf(source, bytes, "%s%s", test_prelude, text);
    const ls_site_options options = {.path = "site.lua", .source = source, .source_bytes = strlen(source)};
    if (ls_site_open(g->runtime, &options, &site, message, sizeof message) < 0) fail_msg("%s", message);
    memset(source, 'x', bytes - 1); /* it was copied */
    free(source);
    if (ls_site_ready(site, GENERATIONS_THREADS, GENERATIONS_THREADS_MAX, message, sizeof message) < 0)
        fail_msg("%s", message);
    ls_site_start(site, NULL);
    return site;
}

static inline void generation_await_idle(const ls_site *site)
{
    for (unsigned ms = 0; ls_site_busy(site) > 0; ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("the site stays busy");
        ls_clock_sleep_ms(1);
    }
}

/* Wait until no worker is in a packet that it began before. */
static inline void generation_quiesce(const generations *g)
{
    uint64_t turns[GENERATIONS_THREADS_MAX];
    ls_workers_snapshot(g->workers, turns);
    for (unsigned ms = 0; !ls_workers_passed(g->workers, turns); ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("a worker stays in a packet");
        ls_clock_sleep_ms(1);
    }
}

/* Close the states. */
static inline void generation_close_states(const generations *g, ls_site *site, bool force)
{
    for (unsigned ms = 0; !ls_site_end(site, force); ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("the site does not close\n%s", g->t->log);
        ls_clock_sleep_ms(1);
    }
}

/* The live close. */
static inline void generation_end(const generations *g, ls_site *site, bool force)
{
    generation_close_states(g, site, force);
    generation_quiesce(g);
    ls_site_close(site);
}

static inline void generation_await_log(const generations *g, const char *line)
{
    for (unsigned ms = 0;; ms++) {
        ls_mutex_lock(&g->t->log_mutex);
        const bool found = strstr(g->t->log, line) != NULL;
        ls_mutex_unlock(&g->t->log_mutex);
        if (found) return;
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("not logged: %s\n%s", line, g->t->log);
        ls_clock_sleep_ms(1);
    }
}

static inline void generation_clear_log(const generations *g)
{
    ls_mutex_lock(&g->t->log_mutex);
    g->t->log_len = 0;
    g->t->log[0] = '\0';
    ls_mutex_unlock(&g->t->log_mutex);
}

#endif
