/* h2_none.c - see h2.h: a build without HTTP/2. */
#include "base/err.h"
#include "http/http2/h2.h"

int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out)
{
    return LS_ENOTSUP;
}

void ls_h2_start(ls_thread_ctx *ctx, ls_stream *s, ls_http_engine *engine, ls_slice received)
{
}

void ls_h2_local(ls_http_engine *engine, const ls_addr *local)
{
}

const char *ls_h2_library(void)
{
    return NULL;
}
