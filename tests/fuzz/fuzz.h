/* fuzz.h - each target becomes two programs: with libFuzzer it searches, with replay.c it runs the corpus as a test. A
 * violated property ends the program. */
#ifndef LS_TESTS_FUZZ_H
#define LS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_HOLDS(property)                                                              \
    do {                                                                                  \
        if (!(property)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #property); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* A copy of exactly len bytes, so that a sanitizer sees a read one byte past its end. */
static inline char *fuzz_copy_exact(const void *bytes, size_t len)
{
    char *copy = malloc(len > 0 ? len : 1);
    FUZZ_HOLDS(copy != NULL);
    if (len > 0) memcpy(copy, bytes, len);
    return copy;
}

#endif
