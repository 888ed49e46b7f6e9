/* http_disposition.h - the field Content-Disposition of a download (RFC 6266). Pure. */
#ifndef LS_CODEC_HTTP_DISPOSITION_H
#define LS_CODEC_HTTP_DISPOSITION_H

#include <stddef.h>

enum { LS_DISPOSITION_NAME_MAX = 255 }; /* bytes of the name */
enum { LS_DISPOSITION_BYTES = 64 + 5 * LS_DISPOSITION_NAME_MAX };

/* Write the value `attachment; filename="name"`. A name that is not plain ASCII gets a second parameter in the
 * encoding of RFC 8187, which clients prefer: filename*=UTF-8''na%C3%AFve; the first one then has "_" in place of the
 * other characters. Returns the length; no NUL. 0: the name is empty, too long, not UTF-8, or contains a control
 * character, "/" or "\". */
size_t ls_disposition(const char *name, size_t len, char out[LS_DISPOSITION_BYTES]);

#endif
