/* text.h - a run of bytes of someone else. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stddef.h>

typedef struct ls_text {
    const char *ptr;
    size_t len;
} ls_text;

#endif
