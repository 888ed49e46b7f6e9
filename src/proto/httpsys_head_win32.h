/* httpsys_head_win32.h - HTTP_REQUEST to ls_http_head, and lines "Name: value" to HTTP_RESPONSE_HEADERS. Pure. */
#ifndef LS_PROTO_HTTPSYS_HEAD_WIN32_H
#define LS_PROTO_HTTPSYS_HEAD_WIN32_H

#include "proto/http1_parse.h"
#include "proto/httpsys_api_win32.h"

/* Room for the names of all fields and of the method that http.sys gives as numbers. */
enum { LS_HTTPSYS_NAMES_BYTES = 512 };

/* Spans of *out are offsets from `request`, with which the buffer begins that http.sys filled. `names` is free memory behind it,
 * for LS_HTTPSYS_NAMES_BYTES. Fields that http.sys knows come first, in the order of their numbers: it does not tell in which
 * order they were sent. The head counts as large as it is with single spaces. 0, or -(HTTP status) with a short static text in
 * *why: -400, -414, -431. */
int ls_httpsys_head(const HTTP_REQUEST *request, char *names, const ls_http_limits *limits, ls_http_head *out,
                    const char **why);

/* Put the `len` bytes of lines "Name: value\r\n" into `to`: the first of each name that http.sys knows into KnownHeaders, all
 * others into unknown[0..], which has room for one per line. Returns how many of them there are. The text must stay. */
unsigned ls_httpsys_fields(const char *lines, size_t len, HTTP_RESPONSE_HEADERS *to, HTTP_UNKNOWN_HEADER *unknown);

#endif
