/* proxy_header.h - the header of the PROXY protocol, versions 1 and 2 (HAProxy, "The PROXY protocol"): the line or the
 * binary block in front of a connection's bytes by which a proxy names the addresses of its client. Pure. */
#ifndef LS_NET_PROXY_HEADER_H
#define LS_NET_PROXY_HEADER_H

#include <stdbool.h>
#include <stddef.h>

#include "net/sock/addr.h"

enum {
    LS_PROXY_V1_BYTES_MAX = 107, /* with its CRLF; the protocol's limit */
    LS_PROXY_V2_BYTES_MAX = 4096 /* fixed part, addresses and TLVs; the protocol allows 16 + 65535 */
};

typedef struct ls_proxy_header {
    size_t bytes;   /* of the header; the bytes of the connection follow */
    bool has_addrs; /* false: UNKNOWN, LOCAL, datagrams: the addresses of the socket apply, the two below are empty */
    ls_addr source, destination; /* the client, and the address that it connected to. An IPv4-mapped address is IPv4 */
} ls_proxy_header;

/* Parse the first `len` bytes of a connection. LS_OK; LS_EAGAIN: the header needs more bytes; LS_EPROTO: not a valid
 * header, *why receives the reason (static text). A header that is not valid is refused as soon as it can be told. The
 * TLVs of version 2 are skipped, CRC32c included: TCP has a checksum of its own. */
int ls_proxy_header_parse(const void *bytes, size_t len, ls_proxy_header *out, const char **why);

#endif
