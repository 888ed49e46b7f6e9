/* inflate.h - compressed messages of WebSocket that a thread receives (RFC 7692), without context takeover.
 *
 * Subscribers of the same topic receive the same bytes. So a message that equals the last one is not inflated again: the load
 * generator does not pay for the compression of a fan-out run as often as the server delivers. One thread. */
#ifndef LS_STRESS_INFLATE_H
#define LS_STRESS_INFLATE_H

#include <stddef.h>

#include "base/buf.h"
#include "proto/ws_deflate.h"

typedef struct ls_stress_inflate ls_stress_inflate;

/* The offer of a handshake: no context takeover in either direction. */
extern const ls_ws_deflate_options ls_stress_inflate_options;

/* LS_OK; LS_ENOTSUP: built without zlib; LS_ENOMEM. */
int ls_stress_inflate_open(ls_stress_inflate **out);
void ls_stress_inflate_close(ls_stress_inflate *inflate); /* NULL is allowed */

/* Inflate a message of at most bytes_max bytes. *plain is valid until the next call. LS_OK, or an error of
 * ls_ws_inflate_message. */
int ls_stress_inflate_message(ls_stress_inflate *inflate, ls_pool *pool, const char *packed, size_t len,
                              size_t bytes_max, const char **plain, size_t *plain_len);

#endif
