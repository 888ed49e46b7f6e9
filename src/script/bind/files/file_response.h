/* file_response.h - a cached file as the response to a request: conditions, ranges, header lines (RFC 9110 13 and 14).
 * Raises nothing. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_FILE_RESPONSE_H
#define LS_SCRIPT_FILE_RESPONSE_H

#include "http/file_cache.h"
#include "script/bind/http/respond.h"

enum { LS_FILE_LINES_MAX = 256 };

typedef struct ls_file_answer {
    ls_cached_file *entry; /* the caller keeps its reference */
    const char *type;      /* Content-Type unless the handler has set one; static text */
    bool without_tag;      /* no ETag */
    bool encoded;          /* another representation has the ETag of the handler */
    bool part;             /* the representation is only `bytes` bytes from `from` */
    uint64_t from, bytes;
    const char *lines; /* further lines "Name: value\r\n"..., at most LS_FILE_LINES_MAX bytes */
    size_t lines_len;
} ls_file_answer;

/* Respond with the file: with 200, 206, 304, 412 or 416 if the handler has set no other status than 200 and the method
 * is GET or HEAD, else with the whole file and the status of the handler. Cache-Control, ETag, Last-Modified and
 * Accept-Ranges of the handler stay, but for the ETag of a encoded file; Vary is added. The result of
 * ls_exchange_respond, or LS_ELIMIT, LS_ENOMEM: nothing was sent. */
int ls_file_respond(ls_request *request, const ls_file_answer *answer);

/* Describe the file as the response (ls_request_describe_later), which then is that of ls_file_respond; its fields can
 * be read and changed before. Holds the entry and copies the lines. LS_OK or LS_ENOMEM. */
int ls_file_describe(ls_request *request, const ls_file_answer *answer);

#endif
