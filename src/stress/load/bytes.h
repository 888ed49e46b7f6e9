/* bytes.h - bytes in one growing block of memory, for what arrives or is sent in pieces. All zero is empty. */
#ifndef LS_STRESS_BYTES_H
#define LS_STRESS_BYTES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_stress_bytes {
    char *at; /* NULL until needed; freed by the owner */
    size_t len, room;
} ls_stress_bytes;

/* Make room for `more` bytes after the present ones. False: out of memory. */
bool ls_stress_bytes_reserve(ls_stress_bytes *b, size_t more);

/* Append. False: more than bytes_max (a power of two, or SIZE_MAX) in all, or out of memory. */
bool ls_stress_bytes_add(ls_stress_bytes *b, const void *bytes, size_t len, size_t bytes_max);

#endif
