/* size.h - sizes as people write them: "64k", "10m", "2g", "123". Pure; any thread. */
#ifndef LS_BASE_SIZE_H
#define LS_BASE_SIZE_H

#include <stdint.h>

/* Digits, then at most one of k, m, g (any case; 1024 each). LS_OK; LS_EINVAL for anything else, a sign or a space
 * included; LS_ELIMIT when it does not fit. */
int ls_size_parse(const char *text, uint64_t *out);

#endif
