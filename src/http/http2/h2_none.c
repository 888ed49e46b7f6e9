/* h2_none.c - see h2.h: a build without HTTP/2. */
#include "http/http2/h2.h"

int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out)
{
    return ls_http1_open(config, handler, limit, threads, out);
}

const char *ls_h2_library(void)
{
    return NULL;
}
