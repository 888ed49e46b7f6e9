/* http_coding_br_none.c - see http_coding.h: a build without brotli. */
#include "codec/coding/http_coding.h"

const ls_coding_type ls_coding_br = {.name = "br"};
