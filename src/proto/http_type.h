/* http_type.h - the media type that a file's name stands for. Pure; any thread. */
#ifndef LS_PROTO_HTTP_TYPE_H
#define LS_PROTO_HTTP_TYPE_H

/* Content-Type for the ending of `path` ("x/page.HTML"), as the IANA media types registry has it; text with its charset.
 * application/octet-stream when the ending is unknown, or there is none. Static text. */
const char *ls_http_type_of(const char *path);

#endif
