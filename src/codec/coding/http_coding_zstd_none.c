/* http_coding_zstd_none.c - see http_coding.h: a build without zstd. */
#include "codec/coding/http_coding.h"

const ls_coding_type ls_coding_zstd = {.name = "zstd"};
