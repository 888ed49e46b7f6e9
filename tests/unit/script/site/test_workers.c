/* test_workers.c - requests on several threads and states at the same time: floating starts, waiting tasks, jobs,
 * errors, and the watchdog. */
#define _GNU_SOURCE /* mkstemp */
#include "codec/http1/http1_parse.h"
#include "http/exchange_run.h"
#include "sched/workers.h"
#include "script/site_fixture.h"

enum { WORKERS_THREADS = 2, WORKERS_THREADS_MAX = 4, WORKERS_REQUESTS = 600 };

typedef struct workers_test {
    const ls_http_handler *handler;
    _Atomic unsigned responded, ended, wrong;
} workers_test;

typedef struct workers_request {
    ls_op op;
    workers_test *test;
    char head[96];
    ls_exchange x;
} workers_request;

static int workers_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    workers_request *r = x->conn;
    if (ctx->inside != x->actor || x->response != LS_RESPONSE_NONE) atomic_fetch_add(&r->test->wrong, 1);
    ls_slices_drop(slices, count);
    atomic_fetch_add(&r->test->responded, 1);
    return LS_DONE;
}

static int workers_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    return LS_DONE;
}

static int workers_more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    return LS_OK;
}

static void workers_returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    workers_request *r = x->conn;
    workers_test *test = r->test;
    if (!x->released) return;
    if (x->fields != NULL) ls_block_drop(x->fields);
    free(r);
    atomic_fetch_add(&test->ended, 1);
}

static const ls_transport workers_transport = {
    .head = workers_head, .flush = workers_flush, .more = workers_more, .returned = workers_returned};

static void workers_start(ls_thread_ctx *ctx, ls_op *op)
{
    workers_request *r = LS_CONTAINER(op, workers_request, op);
    if (ls_exchange_start(ctx, &r->x)) workers_returned(ctx, &r->x);
    ls_exchange_leave(ctx);
}

TEST(many_threads_many_states)
{
    static const char text[] =
        "core.config{ handler_cpu_ms_max = 40 } "
        "core.listen{ host = '', port = 0, failed = failed, dispatch = function(req, res, method, path) "
        "  local n = tonumber(path:match('%d+')) "
        "  if n % 50 == 1 then while true do local _ = {} end end "
        "  if n % 40 == 2 then os.execute('sleep 0.02') end "
        "  if n % 7 == 3 then core.sleep(0.001) end "
        "  if n % 11 == 4 then error('planned') end "
        "  if n % 5 == 0 then return core.spawn(function() core.sleep(0.001) return req.path end):wait() end "
        "  if n % 13 == 5 then res:header('X-A', n) return { n = n } end "
        "  return 'plain ' .. n end } "
        "core.every(0.005, function() core.sleep(0.001) end)";
    const ls_port_options port_options = {.sockets_max = 16};
    char path[] = TEST_SCRATCH_PATH, message[400];
    test_site *t = test_site_new();
    workers_test test = {NULL, 0, 0, 0};
    ls_workers *workers;
    ls_runtime *runtime;
    ls_site *site;
    ls_port *port;
    ls_pools *pools;
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fprintf(file, "%s%s", test_prelude, text);
    fclose(file);

    const ls_site_options options = {.path = path};
    assert_int_equal(ls_site_runtime_open(NULL, &runtime), LS_OK);
    assert_int_equal(ls_site_open(runtime, &options, &site, message, sizeof message), LS_OK);
    assert_int_equal(ls_port_open(&port_options, &port), LS_OK);
    assert_int_equal(ls_pools_open(64 << 20, &pools), LS_OK);
    const ls_workers_options workers_options = {.threads = WORKERS_THREADS,
                                                .threads_max = WORKERS_THREADS_MAX,
                                                .on_stall = ls_runtime_on_stall,
                                                .on_thread_end = ls_runtime_on_thread_end,
                                                .user = runtime};
    assert_int_equal(ls_workers_open(port, pools, &workers_options, &workers), LS_OK);
    assert_int_equal(ls_site_runtime_attach(runtime, port, NULL, WORKERS_THREADS_MAX), LS_OK);
    assert_int_equal(ls_site_ready(site, WORKERS_THREADS, WORKERS_THREADS_MAX, message, sizeof message), LS_OK);
    test.handler = ls_site_http_handler(site, 0);
    assert_int_equal(ls_workers_start(workers), LS_OK);
    ls_site_start(site, NULL);
    for (unsigned n = 0; n < WORKERS_REQUESTS; n++) {
        const ls_http_limits limits = {16384, 8192, 100};
        workers_request *r = calloc(1, sizeof *r);
        assert_non_null(r);
        const int len = snprintf(r->head, sizeof r->head, "GET /%u HTTP/1.1\r\nHost: h\r\n\r\n", n);
        assert_int_equal(ls_http1_parse(r->head, (size_t)len, 0, &limits, &r->x.head, &(ls_http_terms){0}, NULL),
                         len);
        r->test = &test;
        r->x.transport = &workers_transport;
        r->x.body_done = true;
        r->x.handler = test.handler;
        r->x.conn = r;
        r->x.id = n;
        r->x.bytes = r->head;
        r->x.body_bytes_max = 1000;
        r->op.done = workers_start;
        ls_port_post(port, &r->op, 0);
    }
    for (unsigned ms = 0; ms < 100000 && atomic_load(&test.ended) < WORKERS_REQUESTS; ms += 5) ls_clock_sleep_ms(5);
    ls_site_end_work(site, LS_END_STOP);
    for (unsigned ms = 0; ms < 5000 && ls_site_busy(site) > 0; ms += 5) ls_clock_sleep_ms(5);
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, 0));
    assert_int_equal(atomic_load(&test.ended), WORKERS_REQUESTS);
    assert_int_equal(atomic_load(&test.responded), WORKERS_REQUESTS);
    assert_int_equal(atomic_load(&test.wrong), 0);
    assert_int_equal(ls_site_busy(site), 0);
    assert_non_null(strstr(t->log, "planned"));
    ls_workers_close(workers);
    ls_port_close(port);
    ls_site_close(site);
    ls_site_runtime_close(runtime);
    ls_pools_close(pools);
    unlink(path);
    test_site_free(t);
}

/* Lua's memory runs out at every point of a request: only that request fails. */
TEST(out_of_memory_ends_only_that_request)
{
    static const char text[] =
        "local old = {} "
        "core.listen{ host = '', port = 0, dispatch = function(req, res, method, path) "
        "  old = setmetatable({}, { __close = function() local _ = { {}, {} } end }) local c <close> = old "
        "  res:header('X-A', req.headers.host .. tostring({})) res:cookie('a', 'b') "
        "  local v = coroutine.wrap(function() coroutine.yield(req.query.a .. tostring({})) end)() "
        "  if path == '/1' then error({}) end "
        "  if path == '/2' then error('text ' .. tostring({})) end "
        "  if path == '/3' then core.after(100, print):cancel() return core.buffer(v, v) end "
        "  return { n = v, list = { 1, 2, 3 } } end, "
        "  failed = function(req, res, err, traceback) return 500, { err = tostring(err), req.id } end }";
    test_site *t = test_site_open(text);
    workers_test test = {NULL, 0, 0, 0};
    unsigned expected = 0;
    assert_int_equal(t->opened, LS_OK);
    test_pump_once(t, 20);
    test.handler = ls_site_http_handler(t->site, 0);
    ls_state *const lua = test_state(t);
    const size_t bytes_max = lua->bytes_max;
    for (int extra = -3000; extra < 24000; extra += 96) {
        workers_request *r = calloc(1, sizeof *r);
        const ls_http_limits limits = {16384, 8192, 100};
        assert_non_null(r);
        const int len =
            snprintf(r->head, sizeof r->head, "GET /%u?a=b%%20c HTTP/1.1\r\nHost: h\r\n\r\n", expected % 4);
        assert_int_equal(ls_http1_parse(r->head, (size_t)len, 0, &limits, &r->x.head, &(ls_http_terms){0}, NULL),
                         len);
        r->test = &test;
        r->x.transport = &workers_transport;
        r->x.body_done = true;
        r->x.handler = test.handler;
        r->x.conn = r;
        r->x.bytes = r->head;
        while (expected % 16 == 0 &&
               !ls_list_empty(&lua->tasks_free)) { /* empty the pool: the request must create a coroutine */
            ls_task *task = LS_CONTAINER(lua->tasks_free.next, ls_task, node);
            lua->tasks_free_count--;
            ls_list_remove(&task->node);
            ls_list_push(&lua->tasks_live, &task->node);
            ls_task_release(&t->ctx, task, false);
        }
        test_limit_memory(lua, (size_t)((int64_t)lua->bytes_live + extra));
        workers_start(&t->ctx, &r->op);
        expected++;
        assert_int_equal(atomic_load(&test.ended), expected);
        assert_int_equal(atomic_load(&test.responded), expected);
        test_limit_memory(lua, bytes_max);
        t->log_len = 0;
    }
    test_site_close(t);
}

TEST(states_must_define_the_same)
{
    static const char text[] = "if not io.open('%s.mark') then io.open('%s.mark', 'w'):close() "
                               "core.listen{ host = '', port = 0, failed = failed, dispatch = print } end";
    char path[] = TEST_SCRATCH_PATH, message[400], mark[64];
    ls_runtime *runtime;
    ls_site *site;
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fprintf(file, "%s", test_prelude);
    fprintf(file, text, path, path);
    fclose(file);
    const ls_site_options options = {.path = path};
    assert_int_equal(ls_site_runtime_open(NULL, &runtime), LS_OK);
    assert_int_equal(ls_site_open(runtime, &options, &site, message, sizeof message), LS_OK);
    assert_int_equal(ls_site_ready(site, 2, 2, message, sizeof message), LS_ESCRIPT);
    assert_non_null(strstr(message, "1 listeners in one Lua state and 0 in another"));
    ls_site_close(site);
    ls_site_runtime_close(runtime);
    (void)snprintf(mark, sizeof mark, "%s.mark", path);
    unlink(mark);
    unlink(path);
}
