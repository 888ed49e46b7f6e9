/* http_path.h - which paths that came from a request may be asked of a file system. Pure.
 *
 * One rule for every system, so that a site serves the same files everywhere and nothing that is harmless where it was written
 * opens a device, a stream or another directory where it runs. It follows "Naming Files, Paths, and Namespaces" (Microsoft's
 * documentation of Windows), which is stricter than POSIX. */
#ifndef LS_PROTO_HTTP_PATH_H
#define LS_PROTO_HTTP_PATH_H

#include <stddef.h>

enum { LS_PATH_SEGMENT_BYTES_MAX = 255, LS_PATH_BYTES_MAX = 4096 };

/* Why this path, decoded, names nothing below a directory; NULL: it does. It is "a/b/c" in UTF-8: names with a slash between
 * them, none before and none after. Refused are
 *     names that are empty, "." or "..", or end in a dot or a space, which Windows takes off
 *     control characters, and \ : * ? " < > | (other separators, drives, streams, wildcards)
 *     devices, whatever follows their first dot: CON PRN AUX NUL CLOCK$ CONIN$ CONOUT$ COM0-9 LPT0-9 (also with ¹²³)
 *     what looks like a short name of another file: PROGRA~1, SECRET~2.TXT
 *     what is no UTF-8, and what is longer than the limits. Static text. */
const char *ls_http_path_wrong(const char *path, size_t len);

#endif
