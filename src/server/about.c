/* about.c - what a program can ask: the version and the build, what a server serves and where, its counters; and the
 * log. */
#include <stdio.h>
#include <string.h>

#include <lua.h>

#include "base/compiler.h"
#include "base/io/log.h"
#include "base/io/terminal.h"
#include "codec/coding/http_coding.h"
#include "http/http2/h2.h"
#include "http/httpsys/httpsys.h"
#include "luaserve.h"
#include "net/stream/deadline.h"
#include "net/tls/tls.h"
#include "port/port.h"
#include "server/program.h"
#include "server/server_internal.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *ls_server_version(void)
{
    return LS_VERSION;
}

int ls_server_version_number(void)
{
    return LS_VERSION_NUMBER;
}

const char *ls_server_build(void)
{
    static LS_THREAD_LOCAL char text[1024];
    const char *tls = ls_tls_library(),
               *h2 = ls_h2_library(); /* these: of the shared libraries that run, not of the headers */
    char compression[100] = "", libraries[256];
    size_t at = 0;
    for (unsigned n = 0; n < LS_CODINGS; n++)
        if (ls_coding_built((enum ls_coding)n))
            at += (size_t)snprintf(compression + at, sizeof compression - at, "%s%s", at > 0 ? ", " : "",
                                   ls_codings[n]->library());
    ls_site_libraries(libraries, sizeof libraries);
    snprintf(text, sizeof text,
             "Lua: " LUA_RELEASE "\n"
             "JSON: lua-cjson\n"
             "names: " LS_RESOLVER "\n"
             "TLS: %s\n"
             "compression: %s\n"
             "HTTP/2: %s\n"
             "%s"
             "compiler: " COMPILER "\n"
             "HTTP engines: luaserve%s\n",
             tls != NULL ? tls : "not built in", at > 0 ? compression : "not built in",
             h2 != NULL ? h2 : "not built in", libraries, ls_httpsys_supported() ? " http.sys" : "");
    return text;
}

const char *ls_server_backends(void)
{
    return ls_port_backend();
}

/* ---- a server ----------------------------------------------------------------------------------------------- */

void ls_program_describe(const ls_server *server, bool as_json)
{
    if (!server->options.check) return;
    fflush(stdout);
    ls_site_describe(server->site, as_json, server->settings.threads, server->settings.threads_max);
}

char *ls_program_files(const ls_server *server)
{
    return ls_site_files(server->site);
}

void ls_server_describe(const ls_server *server)
{
    ls_program_describe(server, false);
}

void ls_program_log_hint(ls_server *server)
{
    bool serves = false;
    if (!ls_is_terminal(stderr)) return;
    ls_mutex_lock(&server->mutex);
    for (unsigned n = 0; n < ls_site_listener_count(server->site); n++)
        serves |= ls_site_listener_get(server->site, n)->kind != LS_SITE_TCP;
    if (serves && !ls_site_logs_requests(server->site))
        ls_log(LS_LOG_INFO,
               "requests are not logged: \"luaserve dev\" logs each one, a site logs them by ls.on(\"log\", fn)");
    ls_mutex_unlock(&server->mutex);
}

/* The text of address `index`; NULL: past the last one. It may be written into `text`. *scheme receives what precedes
 * it in a URL. */
static const char *address_text(const ls_server *server, unsigned index, char text[LS_ADDR_TEXT_BYTES],
                                const char **scheme)
{
    for (const ls_node *node = server->endpoints.next; node != &server->endpoints; node = node->next) {
        const ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        const char *found;
        *scheme = e->ops->scheme(e);
        for (unsigned n = 0; (found = e->ops->address(e, n, text)) != NULL; n++)
            if (index-- == 0) return found;
    }
    return NULL;
}

/* Copy address `index`, in a URL with its scheme. */
static int address_copy(const ls_server *server, unsigned index, bool in_url, char *text, size_t bytes)
{
    char own[LS_ADDR_TEXT_BYTES];
    ls_mutex *const lists = (ls_mutex *)(uintptr_t)&server->lists; /* the server is const for its caller */
    const char *scheme;
    int err = LS_OK;
    ls_mutex_lock(lists);
    const char *found = address_text(server, index, own, &scheme);
    if (found == NULL)
        err = LS_ENOENT;
    else if (strlen(found) + (in_url ? strlen(scheme) : 0) >= bytes)
        err = LS_EMSGSIZE;
    else
        (void)snprintf(text, bytes, "%s%s", in_url ? scheme : "", found);
    ls_mutex_unlock(lists);
    return err;
}

int ls_server_address(const ls_server *server, unsigned index, char *text, size_t bytes)
{
    return address_copy(server, index, false, text, bytes);
}

int ls_server_url(const ls_server *server, unsigned index, char *text, size_t bytes)
{
    return address_copy(server, index, true, text, bytes);
}

/* ---- errors and the log ------------------------------------------------------------------------------------- */

const char *ls_error_text(int code)
{
    return ls_err_text(code);
}

int ls_server_log_level(const char *name)
{
    enum ls_log_level level;
    int err = ls_log_level_of(name, &level);
    if (err == LS_OK) ls_log_set_level(level);
    return err;
}

void ls_server_log_to(ls_server_log_fn *log, void *user)
{
    ls_log_set_sink(log, user);
}

/* ---- statistics ----------------------------------------------------------------------------------------------- */

void ls_server_stats(void *user, ls_site_stat_fn *each, void *to)
{
    ls_server *server = user;
    ls_pools_stats pools = {0};
    ls_workers_stats workers = {0};
    ls_udp_stats udp = {0};
    bool has_udp = false;
    if (server->pools != NULL) ls_pools_stat(server->pools, &pools);
    if (server->workers != NULL) ls_workers_stat(server->workers, &workers);
    ls_peers *peers = server->deadlines != NULL ? ls_deadlines_peers(server->deadlines) : NULL;
    ls_mutex_lock(&server->mutex); /* a reload replaces the settings */
    const unsigned threads_max = server->settings.threads_max;
    ls_mutex_unlock(&server->mutex);
    ls_mutex_lock(&server->lists);
    ls_http_stats http = server->past;
    for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;) {
        e->ops->stat(e, &http, &udp);
        has_udp |= e->ops == &ls_endpoint_udp;
    }
    unsigned old_sites = 0;
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next) old_sites++;
    const uint64_t websockets_left = server->websockets_left;
    ls_mutex_unlock(&server->lists);
    each(to, "uptime", (double)(ls_clock_ns() - server->opened_ns) / 1e9);
    each(to, "connections", (double)http.connections);
    each(to, "connections_open", (double)http.open);
    each(to, "requests", (double)http.requests);
    each(to, "responses", (double)http.responses);
    each(to, "refused", (double)http.refused);
    if (peers != NULL) {
        each(to, "refused_denied", (double)atomic_load(&peers->denied.count));
        each(to, "refused_per_ip", (double)atomic_load(&peers->refused[LS_PEERS_CONNECTIONS].count));
        each(to, "http2_refused_per_ip", (double)atomic_load(&peers->refused[LS_PEERS_STREAMS].count));
        each(to, "tls_handshakes", (double)atomic_load(&peers->handshakes));
        each(to, "tls_handshakes_failed", (double)atomic_load(&peers->handshakes_failed));
    }
    each(to, "http2_connections_open", (double)http.http2_open);
    each(to, "http2_connections", (double)http.http2_connections);
    each(to, "http2_refused", (double)http.http2_refused);
    each(to, "http2_resets", (double)http.http2_resets);
    each(to, "http2_ended", (double)http.http2_ended);
    each(to, "old_sites", old_sites);
    each(to, "websockets_restarted", (double)websockets_left);
    each(to, "threads", (double)workers.threads);
    each(to, "threads_max", (double)threads_max);
    each(to, "threads_stalled", (double)workers.stalled);
    each(to, "standbys_released", (double)workers.standbys_released);
    each(to, "packets", (double)workers.sum.packets);
    each(to, "waits", (double)workers.sum.waits);
    each(to, "accepts", (double)workers.sum.accepts);
    each(to, "recv_inline", (double)workers.sum.recv_inline);
    each(to, "recv_queued", (double)workers.sum.recv_queued);
    each(to, "send_inline", (double)workers.sum.send_inline);
    each(to, "send_queued", (double)workers.sum.send_queued);
    each(to, "blocks_live", (double)pools.blocks_live);
    each(to, "blocks_peak", (double)pools.blocks_peak);
    each(to, "bytes_live", (double)pools.bytes_live);
    each(to, "bytes_peak", (double)pools.bytes_peak);
    each(to, "bytes_copied", (double)pools.bytes_copied);
    each(to, "bytes_encrypted", (double)pools.bytes_encrypted);
    if (has_udp) {
        each(to, "udp_received", (double)udp.received);
        each(to, "udp_batches", (double)udp.batches);
        each(to, "udp_truncated", (double)udp.truncated);
        each(to, "udp_sent", (double)udp.sent);
        each(to, "udp_failed", (double)udp.failed);
        each(to, "udp_own", (double)udp.own);
        each(to, "udp_dropped", (double)udp.dropped);
    }
}

unsigned ls_server_threads(void *user, ls_worker_look *out, unsigned max)
{
    const ls_server *server = user;
    return server->workers != NULL ? ls_workers_look(server->workers, out, max) : 0;
}

typedef struct counter_search {
    const char *name;
    double value;
    bool found;
} counter_search;

static void compare_counter(void *to, const char *name, double value)
{
    counter_search *search = to;
    if (strcmp(name, search->name) != 0) return;
    search->value = value;
    search->found = true;
}

int ls_server_counter(ls_server *server, const char *name, double *value)
{
    counter_search search = {.name = name};
    ls_runtime_stats(server->runtime, compare_counter, &search);
    if (!search.found) return LS_ENOENT;
    *value = search.value;
    return LS_OK;
}
