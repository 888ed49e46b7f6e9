/* text.h - a run of bytes of someone else. */
#pragma once

#include <stddef.h>

typedef struct ls_text {
    const char *ptr;
    size_t len;
} ls_text;
