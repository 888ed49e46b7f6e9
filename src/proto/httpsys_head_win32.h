/* httpsys_head_win32.h - conversion of HTTP_REQUEST to ls_http_head, and of lines "Name: value" to
 * HTTP_RESPONSE_HEADERS. Pure. */
#ifndef LS_PROTO_HTTPSYS_HEAD_WIN32_H
#define LS_PROTO_HTTPSYS_HEAD_WIN32_H

#include "proto/http1_parse.h"
#include "proto/httpsys_api_win32.h"

/* Memory for the names of the method and of all fields that http.sys delivers as numbers. */
enum { LS_HTTPSYS_NAMES_BYTES = 512 };

/* Convert the request. Spans of *out are offsets from `request`, which is the start of the buffer that http.sys
 * filled. `names` is free memory behind it, LS_HTTPSYS_NAMES_BYTES long. Fields that http.sys knows come first, in the
 * order of their numbers: http.sys does not deliver the order on the wire. The limit of the head applies to its length
 * with single spaces. 0; or -(HTTP status), -400, -414 or -431, and *why receives a short static text. */
int ls_httpsys_head(const HTTP_REQUEST *request, char *names, const ls_http_limits *limits, ls_http_head *out,
                    const char **why);

/* Convert `len` bytes of lines "Name: value\r\n": the first line of each name that http.sys knows into
 * to->KnownHeaders, all others into unknown[0..], which has room for one entry per line. Returns the number of entries
 * in `unknown`. The headers point into `lines`. */
unsigned ls_httpsys_fields(const char *lines, size_t len, HTTP_RESPONSE_HEADERS *to, HTTP_UNKNOWN_HEADER *unknown);

#endif
