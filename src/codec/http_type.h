/* http_type.h - the media type of a file name. Pure; any thread. */
#ifndef LS_CODEC_HTTP_TYPE_H
#define LS_CODEC_HTTP_TYPE_H

/* Return the Content-Type for the extension of `path` ("x/page.HTML"), from the IANA media types registry; text types
 * with a charset. Without a known extension it is application/octet-stream. Static text. */
const char *ls_http_type_of(const char *path);
/* The Content-Type for an extension without its dot, such as "html"; NULL for an unknown one. Static text. */
const char *ls_http_type_of_extension(const char *extension);

#endif
