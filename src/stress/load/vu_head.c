/* vu_head.c - see vu_head.h. */
#include "stress/load/vu_head.h"

#include <string.h>

#include "base/err.h"
#include "stress/plan/plan.h"

int ls_stress_vu_head(ls_stress_vu *u, const char *bytes, size_t len, ls_stress_head *out)
{
    ls_stress_bytes *buf = &u->http.buf;
    const size_t before = buf->len;
    size_t skip;
    *out = (ls_stress_head){bytes, 0, "not enough memory"};
    if (before > 0 && !ls_stress_bytes_add(buf, bytes, len, SIZE_MAX)) return LS_ENOMEM;
    *out = (ls_stress_head){before > 0 ? buf->at : bytes, before + len, NULL};
    const int n = ls_http1_read_head(&u->http.reader, out->at, out->len, LS_STRESS_HEAD_BYTES_MAX, &skip, &out->why);
    if (n < 0) return n;
    const size_t used = skip + (size_t)n - before; /* of a head that was incomplete before */
    out->at += skip;
    out->len = n > 0 ? (size_t)n : out->len - skip;
    if (before > 0) { /* keep the head alone */
        memmove(buf->at, out->at, out->len);
        buf->len = out->len;
        out->at = buf->at;
    } else if (n == 0 && !ls_stress_bytes_add(buf, out->at, out->len, SIZE_MAX)) {
        *out = (ls_stress_head){bytes, 0, "not enough memory"};
        return LS_ENOMEM;
    }
    return n > 0 ? (int)used : 0;
}
