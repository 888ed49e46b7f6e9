/* load.c - shared by the load generators; see load.h. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { VARIANTS_MAX = 1024, VARIANTS_MIN = 4, VARIANTS_BYTES = 1 << 20 };

void load_messages_open(load_messages *messages, size_t each)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t count = VARIANTS_BYTES / each;
    uint64_t dice = 88172645463325252ull; /* xorshift: the same messages in every run */
    if (count > VARIANTS_MAX) count = VARIANTS_MAX;
    if (count < VARIANTS_MIN) count = VARIANTS_MIN;
    messages->bytes = malloc(each * count);
    if (messages->bytes == NULL) load_die("memory");
    messages->each = each;
    messages->count = count;
    for (size_t i = 0; i < each * count; i++) {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        messages->bytes[i] = i % each == each - 1 ? '\n' : letters[dice >> 58];
    }
}

uint64_t load_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

double load_cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

_Noreturn void load_die(const char *what)
{
    perror(what);
    exit(1);
}

bool load_order(double *seconds)
{
    char line[64];
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return false;
    *seconds = atof(line);
    return true;
}
