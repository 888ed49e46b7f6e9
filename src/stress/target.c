/* target.c - see target.h. */
#include "stress/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/deadline.h"
#include "net/stream.h"

typedef struct scheme {
    const char *prefix, *name;
    ls_stress_target_kind kind;
    bool is_unix;
    uint16_t port; /* 0: the URL must have one */
    bool tls;
} scheme;

static const scheme schemes[] = {
    {"http://", "http", LS_STRESS_TARGET_HTTP, false, 80, false},
    {"https://", "https", LS_STRESS_TARGET_HTTP, false, 443, true},
    {"http+unix:", "unix", LS_STRESS_TARGET_HTTP, true, 0, false},
    {"ws://", "ws", LS_STRESS_TARGET_WS, false, 80, false},
    {"wss://", "wss", LS_STRESS_TARGET_WS, false, 443, true},
    {"tcp://", "tcp", LS_STRESS_TARGET_TCP, false, 0, false},
    {"udp://", "udp", LS_STRESS_TARGET_UDP, false, 0, false},
    {"unix:", "unix", LS_STRESS_TARGET_TCP, true, 0, false},
};

static bool begins_with(const char *url, const char *prefix)
{
    return strncmp(url, prefix, strlen(prefix)) == 0;
}

static int fail(int err, char *why, size_t why_bytes, const char *text, const char *url)
{
    (void)snprintf(why, why_bytes, "%s: \"%s\"", text, url);
    return err;
}

/* "host", "host:port", "[::1]:port" up to `end`. */
static int parse_authority(const char *url, const char *at, const char *end, ls_stress_target *out, char *why,
                           size_t why_bytes)
{
    const char *host = at, *host_end, *port = NULL;
    if (memchr(at, '@', (size_t)(end - at)) != NULL)
        return fail(LS_EINVAL, why, why_bytes, "user names in URLs are not supported; use --header", url);
    if (at < end && *at == '[') {
        host = at + 1;
        host_end = memchr(at, ']', (size_t)(end - at));
        if (host_end == NULL) return fail(LS_EINVAL, why, why_bytes, "missing ] after the IPv6 address", url);
        if (host_end + 1 < end) {
            if (host_end[1] != ':')
                return fail(LS_EINVAL, why, why_bytes, "unexpected text between ] and the port", url);
            port = host_end + 2;
        }
    } else {
        host_end = memchr(at, ':', (size_t)(end - at));
        if (host_end != NULL)
            port = host_end + 1;
        else
            host_end = end;
    }
    if (host == host_end) return fail(LS_EINVAL, why, why_bytes, "missing host", url);
    if ((size_t)(host_end - host) >= sizeof out->host)
        return fail(LS_EINVAL, why, why_bytes, "host name too long (at most 255 bytes)", url);
    memcpy(out->host, host, (size_t)(host_end - host));
    out->host[host_end - host] = '\0';
    if (port == NULL) return LS_OK;

    unsigned long number = 0;
    for (const char *p = port; p < end && number <= UINT16_MAX; p++)
        number = *p >= '0' && *p <= '9' ? number * 10 + (unsigned long)(*p - '0') : UINT16_MAX + 1ul;
    if (number == 0 || number > UINT16_MAX) return fail(LS_EINVAL, why, why_bytes, "invalid port (1 to 65535)", url);
    out->port = (uint16_t)number;
    out->has_port = true;
    return LS_OK;
}

int ls_stress_target_parse(const char *url, ls_stress_target *out, char *why, size_t why_bytes)
{
    const scheme *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof schemes / sizeof schemes[0]; i++)
        if (begins_with(url, schemes[i].prefix)) found = &schemes[i];
    if (found == NULL)
        return fail(
            LS_EINVAL, why, why_bytes,
            "invalid URL (must begin with http://, https://, ws://, wss://, tcp://, udp://, unix: or http+unix:)",
            url);
    for (const char *p = url; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return fail(LS_EINVAL, why, why_bytes, "white space or control character in the URL", url);

    ls_stress_target target = {.kind = found->kind, .is_unix = found->is_unix, .tls = found->tls, .path = "/"};
    (void)snprintf(target.scheme, sizeof target.scheme, "%s", found->name);
    const char *rest = url + strlen(found->prefix);
    if (found->is_unix) {
        if (*rest == '\0') return fail(LS_EINVAL, why, why_bytes, "missing path of the Unix socket", url);
        ls_addr addr;
        int n = snprintf(target.host, sizeof target.host, "unix:%s", rest);
        if (n >= (int)sizeof target.host || ls_addr_parse(target.host, 0, &addr) < 0)
            return fail(LS_EINVAL, why, why_bytes, "path of the Unix socket too long", url);
        *out = target;
        return LS_OK;
    }
    const char *end = rest + strcspn(rest, "/?#");
    int err = parse_authority(url, rest, end, &target, why, why_bytes);
    if (err < 0) return err;
    if (target.kind == LS_STRESS_TARGET_HTTP || target.kind == LS_STRESS_TARGET_WS) {
        if (strchr(end, '#') != NULL)
            return fail(LS_EINVAL, why, why_bytes, "remove the fragment (#...); it is not sent to servers", url);
        if (*end == '?') return fail(LS_EINVAL, why, why_bytes, "missing path before the query (write /?...)", url);
        if (*end == '/') target.path = end;
        if (!target.has_port) target.port = found->port;
    } else {
        if (*end != '\0' && strcmp(end, "/") != 0)
            return fail(LS_EINVAL, why, why_bytes, "tcp and udp URLs have no path", url);
        if (!target.has_port) return fail(LS_EINVAL, why, why_bytes, "missing port", url);
    }
    *out = target;
    return LS_OK;
}

char *ls_stress_target_authority(const ls_stress_target *target, char *out, size_t out_bytes)
{
    if (target->is_unix) {
        (void)snprintf(out, out_bytes, "localhost");
        return out;
    }
    const bool is_ip6 = strchr(target->host, ':') != NULL;
    int n = snprintf(out, out_bytes, is_ip6 ? "[%s]" : "%s", target->host);
    if (target->has_port && n > 0 && (size_t)n < out_bytes)
        (void)snprintf(out + n, out_bytes - (size_t)n, ":%u", target->port);
    return out;
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

/* An attempt to connect. The room of the stream's user holds a pointer to it. */
typedef struct probe {
    bool connected, closed;
    int err;
} probe;

static probe *probe_of(ls_stream *s)
{
    return *(probe **)ls_stream_user(s);
}

static void probe_connected(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    (void)ctx;
    probe_of(s)->connected = true;
    probe_of(s)->err = result < 0 ? (int)result : LS_OK;
}

static void probe_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    (void)ctx;
    probe_of(s)->closed = true;
    ls_stream_free(s);
}

static void wait_for(ls_port *port, ls_thread_ctx *ctx, const bool *event, uint64_t end_ns)
{
    ls_packet packets[LS_WAIT_PACKETS];
    for (uint64_t now_ns; !*event && (now_ns = ls_clock_ns()) < end_ns;) {
        const uint64_t left_ms = (end_ns - now_ns) / 1000000u + 1;
        const int n =
            ls_port_wait(port, ctx, packets, LS_WAIT_PACKETS, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX);
        for (int i = 0; i < n; i++) packets[i].op->done(ctx, packets[i].op);
    }
}

/* Connect on this port. On return no operation is pending. */
static int connect_once(ls_port *port, ls_deadlines *deadlines, ls_thread_ctx *ctx, const ls_addr *addr,
                        uint32_t timeout_ms)
{
    static const ls_stream_handler handler = {probe_connected, NULL, probe_closed};
    probe p = {.err = LS_ETIMEDOUT};
    ls_sockaddr to;
    ls_stream *s;
    int err = ls_stream_open_unconnected(port, deadlines, addr->family, &handler, sizeof(probe *), &s);
    if (err < 0) return err;
    *(probe **)ls_stream_user(s) = &p;
    ls_addr_to(addr, &to);
    if ((err = ls_stream_connect(ctx, s, &to)) == LS_PENDING) {
        wait_for(port, ctx, &p.connected, ls_clock_ns() + timeout_ms * UINT64_C(1000000));
        err = p.err;
    }
    ls_stream_close(ctx, s);
    wait_for(port, ctx, &p.closed, UINT64_MAX);
    return err;
}

int ls_stress_target_probe(const ls_addr *addr, uint32_t timeout_ms)
{
    ls_pools *pools;
    ls_pool *pool;
    ls_port *port;
    ls_deadlines *deadlines = NULL;
    ls_thread_ctx ctx;
    int err = ls_pools_open(LS_BLOCK_LARGE, &pools);
    if (err < 0) return err;
    if ((err = ls_pool_open(pools, &pool)) < 0) goto fail_pools;
    ls_pool_enter(pool);
    if ((err = ls_port_open(&(ls_port_options){.sockets_max = 4}, &port)) < 0) goto fail_pool;
    ls_thread_ctx_init(&ctx, port, pool, 0);
    if ((err = ls_stream_deadlines_open(port, &deadlines)) == LS_OK)
        err = connect_once(port, deadlines, &ctx, addr, timeout_ms);
    ls_port_close(port);
    if (deadlines != NULL) ls_deadlines_close(deadlines);
fail_pool:
    ls_pool_close(pool);
fail_pools:
    ls_pools_close(pools);
    return err;
}

int ls_stress_target_resolve(const ls_stress_target *target, uint32_t timeout_ms, ls_addr *out, char *why,
                             size_t why_bytes)
{
    ls_addr found[LS_STRESS_TARGET_ADDRS_MAX];
    char text[LS_ADDR_TEXT_BYTES], service[8];
    int count = 1, err = ls_addr_parse(target->host, target->port, &found[0]);
    if (err < 0) {
        (void)snprintf(service, sizeof service, "%u", target->port);
        count = ls_stress_getaddrinfo(target->host, service, target->kind != LS_STRESS_TARGET_UDP, found,
                                      LS_STRESS_TARGET_ADDRS_MAX);
        if (count < 0) {
            (void)snprintf(why, why_bytes, "%s: %s", target->host,
                           count == LS_ENOENT ? "unknown host" : ls_err_text(count));
            return count;
        }
    }
    for (int i = 0; i < count; i++) {
        err = target->kind == LS_STRESS_TARGET_UDP ? LS_OK : ls_stress_target_probe(&found[i], timeout_ms);
        if (err == LS_OK) {
            *out = found[i];
            return LS_OK;
        }
    }
    (void)snprintf(why, why_bytes, "%s: %s", ls_addr_text(&found[0], text), ls_err_text(err));
    return err;
}
