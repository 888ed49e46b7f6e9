/* addr.h - socket addresses (IPv4, IPv6, Unix): text to address and back. */
#ifndef LS_NET_ADDR_H
#define LS_NET_ADDR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "port/fd.h"

enum { LS_ADDR_TEXT_BYTES = 128 }; /* size of any ls_addr_text, including its terminator */

enum ls_family { LS_ADDR_NONE, LS_ADDR_IP4, LS_ADDR_IP6, LS_ADDR_UNIX };

typedef struct ls_addr {
    uint8_t family;           /* enum ls_family */
    uint8_t bytes_len;        /* Unix: length of the path */
    uint16_t port;            /* host order */
    uint32_t scope;           /* IPv6 zone */
    unsigned char bytes[108]; /* 4, 16, or a path (a leading NUL: abstract) */
} ls_addr;

/* Parse a numeric address: "127.0.0.1", "::1", "fe80::1%eth0", "unix:/run/a.sock", "unix:@abstract", "*" (IPv6 any).
 * LS_OK; LS_EINVAL: not an address (names are not resolved); LS_ELIMIT: the Unix path is too long. */
int ls_addr_parse(const char *host, uint16_t port, ls_addr *out);

/* Whether `host` has the form of a host name (RFC 1123 section 2.1): labels of 1 to 63 bytes separated by dots, at
 * most 253 bytes, an optional dot at the end. A label has letters, digits, hyphens, underscores and bytes outside of
 * ASCII. */
bool ls_addr_is_name(const char *host);

/* "127.0.0.1:80", "[::1]:80", "unix:/run/a.sock". Returns out. */
char *ls_addr_text(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES]);
/* The same without the port and brackets: the address part of req.remote in Lua. */
char *ls_addr_host(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES]);

/* Turn an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) into the IPv4 address; others stay. */
void ls_addr_unmap(ls_addr *addr);

/* Leave out what names a single client: the last byte of IPv4, the last 80 bits of IPv6. */
void ls_addr_mask(ls_addr *addr);
/* ls_addr_host for a line of the log: ls_log_masks_addresses. */
char *ls_addr_logged(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES]);

bool ls_addr_same(const ls_addr *a, const ls_addr *b); /* the port included */

/* Whether it is the address of all interfaces: 0.0.0.0 or ::. */
bool ls_addr_is_any(const ls_addr *addr);

/* Convert to and from sockaddr. ls_addr_of: an unknown family gives LS_ADDR_NONE, an IPv4-mapped address gives
 * IPv4. */
void ls_addr_of(const ls_sockaddr *from, ls_addr *out);
void ls_addr_to(const ls_addr *addr, ls_sockaddr *out);
uint16_t ls_sockaddr_port(const ls_sockaddr *sa); /* in host order; 0 for a Unix socket */

#endif
