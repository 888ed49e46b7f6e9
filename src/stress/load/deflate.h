/* deflate.h - permessage-deflate of a thread (RFC 7692), without context takeover: compresses messages of WebSocket
 * that it sends, and inflates those that it receives.
 *
 * Subscribers of a topic receive the same bytes. A message equal to the last one is inflated once. One thread. */
#ifndef LS_STRESS_DEFLATE_H
#define LS_STRESS_DEFLATE_H

#include <stddef.h>

#include "base/buf.h"
#include "codec/ws/ws_deflate.h"

typedef struct ls_stress_deflate ls_stress_deflate;

/* Of the offer in a handshake: no context takeover in either direction. */
extern const ls_ws_deflate_options ls_stress_deflate_options;

/* LS_OK; LS_ENOTSUP: built without zlib; LS_ENOMEM. */
int ls_stress_deflate_open(ls_stress_deflate **out);
void ls_stress_deflate_close(ls_stress_deflate *deflate); /* NULL is allowed */

/* Compress a message. LS_OK: *packed is valid until the next call, and shorter than the message; LS_EAGAIN: send the
 * message as it is, because it is shorter than LS_WS_DEFLATE_BYTES_MIN or does not become shorter; LS_ENOMEM. */
int ls_stress_deflate_message(ls_stress_deflate *deflate, ls_pool *pool, const char *plain, size_t len,
                              const char **packed, size_t *packed_len);

/* The same before the run, without a thread: *packed is allocated memory. */
int ls_stress_deflate_once(const char *plain, size_t len, char **packed, size_t *packed_len);

/* Inflate a message of at most bytes_max bytes. *plain is valid until the next call. LS_OK, or an error of
 * ls_ws_inflate_message. */
int ls_stress_inflate_message(ls_stress_deflate *deflate, ls_pool *pool, const char *packed, size_t len,
                              size_t bytes_max, const char **plain, size_t *plain_len);

#endif
