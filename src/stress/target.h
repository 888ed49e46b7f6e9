/* target.h - the target of a run: its URL, and the addresses of its host. Pure, except for the lookup and the probe,
 * which block. */
#ifndef LS_STRESS_TARGET_H
#define LS_STRESS_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

enum { LS_STRESS_TARGET_HOST_BYTES = 256, LS_STRESS_TARGET_ADDRS_MAX = 16 };

typedef enum ls_stress_target_kind {
    LS_STRESS_TARGET_HTTP,
    LS_STRESS_TARGET_TCP,
    LS_STRESS_TARGET_UDP,
    LS_STRESS_TARGET_WS
} ls_stress_target_kind;

typedef struct ls_stress_target {
    ls_stress_target_kind kind;
    char scheme[8];                         /* "http", "https", "tcp", "udp", "unix", "ws", "wss" */
    char host[LS_STRESS_TARGET_HOST_BYTES]; /* without brackets; "unix:/path" for a Unix socket */
    bool is_unix, has_port, tls;
    uint16_t port;
    const char *path; /* http and ws: path and query, points into the URL; "/" if the URL has none */
} ls_stress_target;

/* Split a URL:
 *     http://host[:port][/path]     https://host[:port][/path]
 *     http+unix:/run/a.sock         (HTTP on a Unix socket; the path is "/")
 *     ws://host[:port][/path]       wss://host[:port][/path]      (WebSocket, RFC 6455 section 3)
 *     tcp://host:port               unix:/run/a.sock           udp://host:port
 * LS_OK, with out->path pointing into `url`; LS_EINVAL with a one-line message in `why`. */
int ls_stress_target_parse(const char *url, ls_stress_target *out, char *why, size_t why_bytes);

/* The authority for a Host field: "h", "h:8080", "[::1]:8080". Returns out. */
char *ls_stress_target_authority(const ls_stress_target *target, char *out, size_t out_bytes);

/* The addresses of a host, in the order in which to try them. `service` is a port number, a name of services(5), or
 * NULL. Blocks in the system's resolver. Returns the count (at least 1); LS_ENOENT, LS_ENOMEM, LS_ESYS. Defined in
 * getaddrinfo_posix.c or getaddrinfo_win32.c. */
int ls_stress_getaddrinfo(const char *host, const char *service, bool stream, ls_addr *out, size_t room);

/* Connect a stream and close it. LS_OK or the error of the connect; LS_ETIMEDOUT after `timeout_ms`. */
int ls_stress_target_probe(const ls_addr *addr, uint32_t timeout_ms);

/* The first address of the target that accepts a connection; for a datagram target the first address. LS_OK, or an
 * error with a one-line message in `why`. */
int ls_stress_target_resolve(const ls_stress_target *target, uint32_t timeout_ms, ls_addr *out, char *why,
                             size_t why_bytes);

#endif
