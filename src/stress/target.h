/* target.h - what is put under load: a URL, split and checked; and the addresses behind its name. Pure, but for the
 * lookup and the probe, which wait. */
#ifndef LS_STRESS_TARGET_H
#define LS_STRESS_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

enum { LS_TARGET_HOST_BYTES = 256, LS_TARGET_ADDRS_MAX = 16 };

typedef enum ls_stress_target_kind { LS_TARGET_HTTP, LS_TARGET_TCP, LS_TARGET_UDP } ls_stress_target_kind;

typedef struct ls_stress_target {
    ls_stress_target_kind kind;
    char scheme[8];                  /* "http", "tcp", "udp", "unix" */
    char host[LS_TARGET_HOST_BYTES]; /* without brackets; "unix:/path" for a Unix socket */
    bool is_unix, has_port;
    uint16_t port;
    const char *path; /* of http, with its query, as it was given: inside the URL; "/" when there is none */
} ls_stress_target;

/* Split a URL:
 *     http://host[:port][/path]     http+unix:/run/a.sock      (a Unix socket that speaks HTTP; the path asked is "/")
 *     tcp://host:port               unix:/run/a.sock           udp://host:port
 * LS_OK, with out->path pointing into `url`; LS_EINVAL or LS_ENOTSUP (a scheme that is not built in: https, ws) with
 * one line for people in `why`. */
int ls_stress_target_parse(const char *url, ls_stress_target *out, char *why, size_t why_bytes);

/* The authority as a Host field has it: "h", "h:8080", "[::1]:8080". Returns out. */
char *ls_stress_target_authority(const ls_stress_target *target, char *out, size_t out_bytes);

/* The addresses of a host, in the order in which to try them; `service` is a port number or a name of services(5), or
 * NULL. Waits for the system's resolver. The count (at least 1); LS_ENOENT, LS_ENOMEM, LS_ESYS. getaddrinfo_posix.c or
 * getaddrinfo_win32.c supplies it. */
int ls_stress_getaddrinfo(const char *host, const char *service, bool stream, ls_addr *out, size_t room);

/* Connect a stream and close it again. LS_OK, or why it cannot be done; LS_ETIMEDOUT after `timeout_ms`. */
int ls_stress_target_probe(const ls_addr *addr, uint32_t timeout_ms);

/* The first address behind the target that takes a connection (a datagram target: the first). LS_OK, or an error with
 * one line for people in `why`. */
int ls_stress_target_resolve(const ls_stress_target *target, uint32_t timeout_ms, ls_addr *out, char *why,
                             size_t why_bytes);

#endif
