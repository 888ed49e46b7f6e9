/* random.h - unpredictable bytes for masks, keys and tokens. Any thread.
 *
 * Each thread takes bytes from the random source of the system in advance, so that a few bytes cost no system call. A
 * byte is given out once and then erased. A child process made by fork(2) must call exec(3) before it uses them: the
 * bytes taken in advance are the same in both processes. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stddef.h>

/* Fill out[0..len). A system without a random source ends the process, as for arc4random(3): there is no safe
 * answer. */
void ls_random(void *out, size_t len);

/* The part of the system: fill out[0..len) from its source. Used by ls_random. */
void ls_random_system(void *out, size_t len);

#endif
