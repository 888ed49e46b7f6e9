/* addr.h - socket addresses: IPv4, IPv6, Unix; text to address and back. */
#ifndef LS_NET_ADDR_H
#define LS_NET_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "port/fd.h"

enum { LS_ADDR_TEXT_BYTES = 128 }; /* room for any ls_addr_text, its terminator included */

enum ls_family { LS_ADDR_NONE, LS_ADDR_IP4, LS_ADDR_IP6, LS_ADDR_UNIX };

typedef struct ls_addr {
    uint8_t family;           /* enum ls_family */
    uint8_t bytes_len;        /* Unix: of the path */
    uint16_t port;            /* host order */
    uint32_t scope;           /* IPv6 zone */
    unsigned char bytes[108]; /* 4, 16, or a path (a leading NUL: abstract) */
} ls_addr;

/* A numeric address: "127.0.0.1", "::1", "fe80::1%eth0", "unix:/run/a.sock", "unix:@abstract", "*" (IPv6 any). LS_OK,
 * LS_EINVAL (a name is no address), LS_ELIMIT (a Unix path too long). */
int ls_addr_parse(const char *host, uint16_t port, ls_addr *out);

/* "127.0.0.1:80", "[::1]:80", "unix:/run/a.sock". Returns out. */
char *ls_addr_text(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES]);
/* The same without the port and brackets: what Lua sees as req.remote's address part. */
char *ls_addr_host(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES]);

/* To and from the system's form. ls_addr_of: an unknown family gives LS_ADDR_NONE; a mapped IPv4 address gives IPv4. */
void ls_addr_of(const ls_sockaddr *from, ls_addr *out);
void ls_addr_to(const ls_addr *addr, ls_sockaddr *out);

#endif
