/* target.c - see target.h. */
#include "stress/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/sock.h"
#include "port/port.h"

typedef struct scheme {
    const char *prefix;
    ls_stress_target_kind kind;
    bool is_unix;
    const char *missing; /* the missing feature; NULL: supported */
} scheme;

static const scheme schemes[] = {
    {"http://", LS_STRESS_TARGET_HTTP, false, NULL},      {"http+unix:", LS_STRESS_TARGET_HTTP, true, NULL},
    {"tcp://", LS_STRESS_TARGET_TCP, false, NULL},        {"udp://", LS_STRESS_TARGET_UDP, false, NULL},
    {"unix:", LS_STRESS_TARGET_TCP, true, NULL},          {"https://", LS_STRESS_TARGET_HTTP, false, "TLS"},
    {"ws://", LS_STRESS_TARGET_HTTP, false, "WebSocket"}, {"wss://", LS_STRESS_TARGET_HTTP, false, "TLS"},
};

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
        if (strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) found = &schemes[i];
    if (found == NULL)
        return fail(LS_EINVAL, why, why_bytes,
                    "invalid URL (must begin with http://, tcp://, udp://, unix: or http+unix:)", url);
    if (found->missing != NULL) {
        (void)snprintf(why, why_bytes, "%s is not supported: \"%s\"; supported are http, tcp, udp and unix",
                       found->missing, url);
        return LS_ENOTSUP;
    }
    for (const char *p = url; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return fail(LS_EINVAL, why, why_bytes, "white space or control character in the URL", url);

    ls_stress_target target = {.kind = found->kind, .is_unix = found->is_unix, .path = "/"};
    (void)snprintf(target.scheme, sizeof target.scheme, "%s",
                   found->is_unix                        ? "unix"
                   : found->kind == LS_STRESS_TARGET_UDP ? "udp"
                   : found->kind == LS_STRESS_TARGET_TCP ? "tcp"
                                                         : "http");
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
    if (target.kind == LS_STRESS_TARGET_HTTP) {
        if (strchr(end, '#') != NULL)
            return fail(LS_EINVAL, why, why_bytes, "remove the fragment (#...); it is not sent to servers", url);
        if (*end == '?') return fail(LS_EINVAL, why, why_bytes, "missing path before the query (write /?...)", url);
        if (*end == '/') target.path = end;
        if (!target.has_port) target.port = 80;
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

static void probe_done(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    (void)op;
}

/* Connect on this port. On return no operation is pending. */
static int connect_once(ls_port *port, ls_thread_ctx *ctx, const ls_addr *addr, uint32_t timeout_ms)
{
    ls_fd fd;
    ls_sock *sock;
    ls_sockaddr to;
    ls_packet packet;
    ls_op op = {.done = probe_done};
    int err = ls_sock_open(addr->family, &fd);
    if (err < 0) return err;
    if ((err = ls_sock_attach(port, fd, NULL, false, &sock)) < 0) {
        ls_sock_discard(fd);
        return err;
    }
    ls_addr_to(addr, &to);
    if ((err = ls_op_connect(ctx, sock, &op, &to)) == LS_PENDING) {
        int n = ls_port_wait(port, ctx, &packet, 1, (int)timeout_ms);
        err = n == 1 ? (int)packet.result : LS_ETIMEDOUT;
        if (n < 1) {
            ls_op_cancel(sock, &op);
            while (ls_port_wait(port, ctx, &packet, 1, -1) == 0) {} /* the packet of the cancelled connect */
        }
    }
    ls_sock_close(ctx, sock);
    return err;
}

int ls_stress_target_probe(const ls_addr *addr, uint32_t timeout_ms)
{
    ls_pools *pools;
    ls_pool *pool;
    ls_port *port;
    ls_thread_ctx ctx;
    int err = ls_pools_open(LS_BLOCK_LARGE, &pools);
    if (err < 0) return err;
    if ((err = ls_pool_open(pools, &pool)) < 0) goto fail_pools;
    ls_pool_enter(pool);
    if ((err = ls_port_open(&(ls_port_options){.sockets_max = 4}, &port)) < 0) goto fail_pool;
    ls_thread_ctx_init(&ctx, port, pool, 0);
    err = connect_once(port, &ctx, addr, timeout_ms);
    ls_port_close(port);
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
