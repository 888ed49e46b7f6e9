/* load.h - what the load generators share: the clock, messages that can be told apart, and the benchmark's orders.
 *
 * A generator that takes orders opens its sockets, prints "ready", and then runs for as many seconds as each line of
 * its standard input says, with one JSON object in answer; at the end of its input it closes everything and ends. So
 * the server's CPU time and memory can be read while the connections stand, without what it cost to open them. */
#ifndef LS_BENCH_LOAD_H
#define LS_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Different messages of one size, each a line of text: what comes twice, or to the wrong connection, is seen. */
typedef struct load_messages {
    char *bytes;
    size_t each, count;
} load_messages;

/* Ends the program when there is no memory. */
void load_messages_open(load_messages *messages, size_t each);

static inline const char *load_message(const load_messages *messages, size_t i)
{
    return messages->bytes + i % messages->count * messages->each;
}

uint64_t load_now_ns(void);
double load_cpu_us(void); /* used by this program so far */

/* perror(), and the end of the program. */
_Noreturn void load_die(const char *what);

/* Wait for the next order. False when there will be none. */
bool load_order(double *seconds);

#endif
