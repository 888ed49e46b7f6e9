/* http_coding_gzip_none.c - see http_coding.h: a build without zlib. */
#include "codec/coding/http_coding.h"

const ls_coding_type ls_coding_gzip = {.name = "gzip", .old_name = "x-gzip"};
