/* http_inflate_none.c - see http_inflate.h: a build without zlib. */
#include "base/err.h"
#include "codec/http_inflate.h"

bool ls_inflate_supported(void)
{
    return false;
}

int ls_inflate_open(ls_inflate **out)
{
    (void)out;
    return LS_ENOTSUP;
}

void ls_inflate_close(ls_inflate *inflate)
{
    (void)inflate;
}

int ls_inflate_run(ls_inflate *inflate, const char *in, size_t *in_len, char *out, size_t *out_len)
{
    (void)inflate;
    (void)in;
    (void)in_len;
    (void)out;
    (void)out_len;
    return LS_ENOTSUP;
}

bool ls_inflate_ended(const ls_inflate *inflate)
{
    (void)inflate;
    return false;
}
