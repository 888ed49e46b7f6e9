/* load.h - shared by the load generators: the clock, distinguishable messages, and the control by the benchmark.
 *
 * A controlled generator opens its sockets, prints "ready", and then reads lines from standard input: each is a number
 * of seconds to run, and the reply is one JSON object. At the end of the input it closes everything and exits. So the
 * server's CPU time and memory can be measured with open connections, without the cost of opening them. */
#ifndef LS_BENCH_LOAD_H
#define LS_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Different messages of one size, each a line of text: a duplicate, or one on the wrong connection, is detected. */
typedef struct load_messages {
    char *bytes;
    size_t each, count;
} load_messages;

/* Exits the program if memory is out. */
void load_messages_open(load_messages *messages, size_t each);

static inline const char *load_message(const load_messages *messages, size_t i)
{
    return messages->bytes + i % messages->count * messages->each;
}

uint64_t load_now_ns(void);
double load_cpu_us(void); /* CPU time of this program so far */

/* perror(), then exit. */
_Noreturn void load_die(const char *what);

/* Wait for the next line. false: end of input. */
bool load_order(double *seconds);

#endif
