/* httpsys_head_win32.h - conversion of HTTP_REQUEST to ls_http_head, and of the fields of a response
 * to HTTP_RESPONSE_HEADERS. Pure. */
#ifndef LS_HTTP_HTTPSYS_HTTPSYS_HEAD_WIN32_H
#define LS_HTTP_HTTPSYS_HTTPSYS_HEAD_WIN32_H

#include "codec/http_head.h"
#include "http/exchange.h"
#include "http/httpsys/httpsys_api_win32.h"

/* Memory for the names of the method and of all fields that http.sys delivers as numbers. */
enum { LS_HTTPSYS_NAMES_BYTES = 512 };

/* Convert the request. Spans of *out are offsets from `request`, which is the start of the buffer that http.sys
 * filled. `names` is free memory after it, LS_HTTPSYS_NAMES_BYTES long. Fields that http.sys knows come first, in the
 * order of their numbers: http.sys does not deliver the order on the wire. The limit of the head applies to its length
 * with single spaces. Results as ls_http_head_complete; also -414, -431. */
int ls_httpsys_read_head(const HTTP_REQUEST *request, char *names, const ls_http_limits *limits, ls_http_head *out,
                         bool *keep_alive, const char **why);

/* Convert the extra fields of the response: the first one of each name that http.sys knows into to->KnownHeaders, all
 * others into unknown[0..], which has room for one entry per field. Returns the number of entries in `unknown`. The
 * headers point into the fields of x. */
unsigned ls_httpsys_fields(const ls_exchange *x, HTTP_RESPONSE_HEADERS *to, HTTP_UNKNOWN_HEADER *unknown);

#endif
