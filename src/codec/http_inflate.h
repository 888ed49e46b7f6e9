/* http_inflate.h - a decoder of the content coding gzip (RFC 9110 section 8.4.1.3, RFC 1952), with a limit against bodies
 * that grow without measure. http_inflate_zlib.c, or http_inflate_none.c in a build without zlib. */
#ifndef LS_CODEC_HTTP_INFLATE_H
#define LS_CODEC_HTTP_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

/* Past LS_INFLATE_FREE_BYTES of output, it may be at most LS_INFLATE_RATIO_MAX times as long as the input so far. */
enum { LS_INFLATE_FREE_BYTES = 1 << 20, LS_INFLATE_RATIO_MAX = 100 };

typedef struct ls_inflate ls_inflate;

bool ls_inflate_supported(void);

/* LS_OK, LS_ENOMEM, LS_ENOTSUP. */
int ls_inflate_open(ls_inflate **out);
void ls_inflate_close(ls_inflate *inflate); /* NULL: no effect */

/* Decode from in[0..*in_len) to out[0..*out_len); both receive the number of bytes used. Several members may follow one
 * another. LS_OK: more input is needed, or more room; LS_EPROTO: not gzip, or damaged; LS_EMSGSIZE: past the ratio;
 * LS_ENOMEM. */
int ls_inflate_run(ls_inflate *inflate, const char *in, size_t *in_len, char *out, size_t *out_len);

/* Whether the input may end here: behind a member. */
bool ls_inflate_ended(const ls_inflate *inflate);

#endif
