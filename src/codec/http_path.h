/* http_path.h - a check of paths from requests before a file system sees them. Pure.
 *
 * The rule is the same on every system: a site serves the same files everywhere, and a path that is harmless on one
 * system does not open a device, a stream or another directory on another system. The rule follows "Naming Files,
 * Paths, and Namespaces" in the Windows documentation, which is stricter than POSIX. */
#ifndef LS_CODEC_HTTP_PATH_H
#define LS_CODEC_HTTP_PATH_H

#include <stddef.h>

enum { LS_PATH_SEGMENT_BYTES_MAX = 255, LS_PATH_BYTES_MAX = 4096 };

/* Check a decoded path. A valid path is "a/b/c" in UTF-8: names separated by slashes, without a leading or trailing
 * slash. Returns NULL if it names a file below a directory, otherwise a static text with the reason. Invalid are
 *     names that are empty, "." or "..", or end in a dot or a space, which Windows removes
 *     control characters, and \ : * ? " < > | (other separators, drives, streams, wildcards)
 *     device names with any extension: CON PRN AUX NUL CLOCK$ CONIN$ CONOUT$ COM0-9 LPT0-9 (also with ¹²³)
 *     names in the form of a short (8.3) name: PROGRA~1, SECRET~2.TXT
 *     invalid UTF-8, and paths and names above the limits */
const char *ls_http_path_wrong(const char *path, size_t len);

#endif
