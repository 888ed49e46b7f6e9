/* test_endpoint.c - the plan of a generation: which addresses it keeps, opens and gives up; a plan that fails or is
 * undone changes nothing. The test's thread is the worker: no other one runs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "script/site_fixture.h"
#include "server/endpoint.h"

enum { SITES_MAX = 4 };

typedef struct endpoints {
    test_site *t; /* the sink of the log */
    ls_runtime *runtime;
    ls_port *port;
    ls_pools *pools;
    ls_deadlines *deadlines;
    ls_workers *workers;
    ls_thread_ctx *ctx;
    ls_conn_limit limit;
    ls_grace grace;
    ls_http_stats past;
    ls_endpoint_env env;
    ls_node open, removed;
    ls_endpoint_plan plan;
    ls_site *sites[SITES_MAX];
    unsigned site_count;
    char message[LS_MESSAGE_BYTES];
} endpoints;

static void endpoints_open(endpoints *p)
{
    const ls_port_options port_options = {.sockets_max = 64};
    const ls_workers_options workers_options = {.threads = 1, .threads_max = 1};
    memset((void *)p, 0, sizeof *p);
    p->t = test_site_new();
    ls_node_init(&p->open);
    ls_node_init(&p->removed);
    assert_int_equal(ls_site_runtime_open(NULL, &p->runtime), LS_OK);
    assert_int_equal(ls_port_open(&port_options, &p->port), LS_OK);
    assert_int_equal(ls_pools_open(64 << 20, &p->pools), LS_OK);
    assert_int_equal(ls_stream_deadlines_open(p->port, &p->deadlines), LS_OK);
    assert_int_equal(ls_workers_open(p->port, p->pools, &workers_options, &p->workers), LS_OK);
    assert_int_equal(ls_grace_open(&p->grace, p->workers), LS_OK);
    ls_conn_limit_open(&p->limit, 16);
    assert_int_equal(ls_site_runtime_attach(p->runtime, p->port, p->deadlines, 1), LS_OK);
    p->ctx = ls_workers_ctx(p->workers, 0);
    ls_pool_enter(p->ctx->pool);
    p->env = (ls_endpoint_env){p->port, p->deadlines, &p->limit, &p->grace, &p->past, 1};
}

static void pump(endpoints *p)
{
    ls_packet packet;
    while (ls_port_wait(p->port, p->ctx, &packet, 1, 0) > 0) ls_packet_dispatch(p->ctx, &packet);
}

static void endpoints_close(endpoints *p)
{
    ls_node *const lists[] = {&p->open, &p->removed};
    for (int i = 0; i < 2; i++)
        while (!ls_list_empty(lists[i])) {
            ls_endpoint *e = LS_CONTAINER(lists[i]->next, ls_endpoint, node);
            ls_list_remove(&e->node);
            if (!e->stopped) e->ops->stop(p->ctx, e);
            pump(p);
            assert_int_equal(e->ops->drain(e, true), 0);
            e->ops->close(e);
        }
    ls_port_close(p->port);
    ls_deadlines_close(p->deadlines);
    while (p->site_count > 0) ls_site_close(p->sites[--p->site_count]);
    ls_site_runtime_close(p->runtime);
    ls_conn_limit_close(&p->limit);
    ls_grace_close(&p->grace);
    ls_workers_close(p->workers);
    ls_pools_close(p->pools);
    test_site_free(p->t);
}

/* Load a site and make its plan. */
static int plan(endpoints *p, const char *text)
{
    char source[1000];
    ls_site **site = &p->sites[p->site_count++];
    (void)snprintf(source, sizeof source,
                   "local ls = require 'luaserve' local app = ls.app() "
                   "local function http(port, more) "
                   "  local o = { host = '127.0.0.1', port = port, handler = app } "
                   "  for k, v in pairs(more or {}) do o[k] = v end ls.listen(o) end "
                   "local function tcp(port) ls.tcp({ host = '127.0.0.1', port = port }, print) end "
                   "local function udp(port) ls.udp({ host = '127.0.0.1', port = port }, print) end %s",
                   text);
    const ls_site_options options = {.path = "site.lua", .source = source, .source_bytes = strlen(source)};
    if (ls_site_open(p->runtime, &options, site, p->message, sizeof p->message) < 0) fail_msg("%s", p->message);
    assert_int_equal(ls_site_ready(*site, 1, 1, p->message, sizeof p->message), LS_OK);
    ls_pool_enter(p->ctx->pool);
    return ls_endpoint_plan_make(&p->env, &p->open, *site, ls_site_settings_get(*site), &p->plan, p->message,
                                 sizeof p->message);
}

/* Make the plan the open endpoints, as the generation after number `before`. */
static void commit(endpoints *p, uint64_t before)
{
    ls_endpoint_plan_swap(&p->plan, &p->open, &p->removed, before);
    ls_endpoint_plan_run(p->ctx, &p->plan);
    ls_endpoint_plan_end(&p->plan);
}

static void undo(endpoints *p)
{
    ls_site_close(p->sites[--p->site_count]);
    ls_endpoint_plan_undo(p->port, &p->plan);
}

static unsigned count_of(const ls_node *list)
{
    unsigned count = 0;
    for (const ls_node *node = list->next; node != list; node = node->next) count++;
    return count;
}

static ls_endpoint *first(const endpoints *p)
{
    return LS_CONTAINER(p->open.next, ls_endpoint, node);
}

/* Whether a TCP or UDP socket can be bound to the port. */
static bool is_free(uint16_t port, int type)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, type, 0), one = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    const bool bound = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return bound;
}

static char *with_port(char text[200], const char *format, uint16_t port)
{
    (void)snprintf(text, 200, format, port, port);
    return text;
}

TEST_IN(endpoints, p, a_plan_that_is_undone_closes_what_it_opened)
{
    uint16_t ports[2];
    assert_int_equal(plan(p, "http(0) udp(0)"), LS_OK);
    assert_int_equal(p->plan.count, 2);
    for (int i = 0; i < 2; i++) ports[i] = p->plan.at[i]->at.port;
    assert_false(is_free(ports[0], SOCK_STREAM));
    assert_false(is_free(ports[1], SOCK_DGRAM));
    assert_true(ls_list_empty(&p->open));
    undo(p);
    assert_true(is_free(ports[0], SOCK_STREAM));
    assert_true(is_free(ports[1], SOCK_DGRAM));
    assert_int_equal(p->plan.count, 0);
}

/* Port 0 is the same wish as before: the port stays. So does one that names the port that was chosen. */
TEST_IN(endpoints, p, the_same_address_is_kept)
{
    char text[200];
    assert_int_equal(plan(p, "http(0)"), LS_OK);
    commit(p, 0);
    ls_endpoint *e = first(p);
    const uint16_t port = e->at.port;
    assert_int_equal(plan(p, "http(0)"), LS_OK);
    assert_ptr_equal(p->plan.at[0], e);
    undo(p);
    assert_int_equal(plan(p, with_port(text, "http(%u) udp(0)", port)), LS_OK);
    assert_ptr_equal(p->plan.at[0], e);
    assert_true(p->plan.at[1]->fresh);
    commit(p, 1);
    assert_ptr_equal(first(p), e);
    assert_int_equal(count_of(&p->open), 2);
    assert_true(ls_list_empty(&p->removed));
}

/* Each endpoint is used once: a second listener with port 0 gets another port. TCP and UDP are apart. */
TEST_IN(endpoints, p, an_endpoint_is_claimed_once)
{
    char text[200];
    assert_int_equal(plan(p, "http(0)"), LS_OK);
    commit(p, 0);
    const uint16_t port = first(p)->at.port;
    assert_int_equal(plan(p, "http(0) http(0)"), LS_OK);
    assert_int_not_equal(p->plan.at[0]->at.port, p->plan.at[1]->at.port);
    undo(p);
    assert_int_equal(plan(p, with_port(text, "udp(%u) tcp(%u)", port)), LS_OK);
    assert_ptr_equal(p->plan.at[0], first(p)); /* listeners first; HTTP becomes TCP */
    assert_true(p->plan.at[1]->fresh);
    undo(p);
    assert_int_equal(plan(p, with_port(text, "http(%u) http(%u)", port)), LS_EADDRINUSE);
    assert_non_null(strstr(p->message, "site.lua:1: cannot listen on 127.0.0.1:"));
    assert_false(first(p)->planned);
}

/* What was prepared on the kept endpoint is forgotten, and what was opened is closed; a later plan succeeds. */
TEST(a_plan_that_fails_changes_nothing)
{
    endpoints p, other;
    char text[200];
    endpoints_open(&p);
    endpoints_open(&other);
    ls_log_set_sink(test_sink, p.t);
    assert_int_equal(plan(&other, "http(0)"), LS_OK);
    commit(&other, 0);
    assert_int_equal(plan(&p, "http(0)"), LS_OK);
    commit(&p, 0);
    ls_endpoint *e = first(&p);
    const uint16_t taken = first(&other)->at.port;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan(&p, with_port(text, "http(0, { max_body = 7 }) udp(0) http(%u)", taken)), LS_EADDRINUSE);
        assert_int_equal(p.plan.count, 0);
        assert_int_equal(count_of(&p.open), 1);
        assert_false(e->planned);
        ls_site_close(p.sites[--p.site_count]);
    }
    assert_int_equal(plan(&p, "http(0, { max_body = 7 })"), LS_OK);
    commit(&p, 1);
    assert_ptr_equal(first(&p), e);
    endpoints_close(&p);
    ls_log_set_sink(test_sink, other.t);
    endpoints_close(&other);
}

TEST_IN(endpoints, p, what_is_not_named_any_more_is_gone_and_then_closed)
{
    assert_int_equal(plan(p, "http(0) udp(0)"), LS_OK);
    commit(p, 0);
    const uint16_t tcp = first(p)->at.port;
    assert_int_equal(plan(p, "ls.after(1, print)"), LS_OK);
    commit(p, 1);
    assert_true(ls_list_empty(&p->open));
    assert_int_equal(count_of(&p->removed), 2);
    pump(p);
    assert_true(is_free(tcp, SOCK_STREAM));
    for (int i = 0; i < 3; i++) (void)ls_endpoints_drain_removed(&p->env, &p->removed, 1000, 1);
    assert_int_equal(count_of(&p->removed), 1); /* objects in Lua of generation 1 refer to the UDP socket */
    assert_true(ls_endpoints_drain_removed(&p->env, &p->removed, 1000, 2) == UINT64_MAX);
    assert_true(ls_list_empty(&p->removed));
}

/* Handshakes of the service before may still begin connections of its generation, until a grace period is over. */
TEST_IN(endpoints, p, a_replaced_service_is_settled)
{
    assert_int_equal(plan(p, "tcp(0)"), LS_OK);
    commit(p, 0);
    ls_endpoint *e = first(p);
    assert_true(e->ops->free_replaced(e) == UINT64_MAX);
    assert_int_equal(plan(p, "tcp(0)"), LS_OK);
    commit(p, 1);
    assert_true(e->ops->free_replaced(e) == UINT64_MAX); /* no worker runs */
    assert_int_equal(plan(p, "http(0)"), LS_OK);
    commit(p, 2);
    assert_int_equal(plan(p, "tcp(0)"), LS_OK);
    commit(p, 3);
    assert_true(e->ops->free_replaced(e) == UINT64_MAX); /* the engine has no connection */
}
