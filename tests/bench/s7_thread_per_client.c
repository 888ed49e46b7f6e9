/* s7_thread_per_client.c - baseline S7: a thread per accepted connection, the design that does not scale.
 *
 * usage: s7_thread_per_client PORT. Runs until SIGTERM. Echoes every message. A thread's stack is 64 KiB of address
 * space, the minimum for this program, so that 10,000 clients show the cost of threads and not of a default. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "s67_socket.h"

enum { STACK_BYTES = 65536 };

static void *serve(void *arg)
{
    const int fd = (int)(intptr_t)arg;
    (void)s67_acknowledge(fd);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t attr;
    if (argc != 2) return 2;
    const int listener = s67_listen(argv[1]);
    if (pthread_attr_init(&attr) != 0 || pthread_attr_setstacksize(&attr, STACK_BYTES) != 0 ||
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) != 0)
        s67_fail("attributes");
    for (;;) {
        pthread_t thread;
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EINTR && errno != ECONNABORTED) perror("accept");
            if (errno == EMFILE || errno == ENFILE) (void)usleep(10000);
            continue;
        }
        const int err = pthread_create(&thread, &attr, serve, (void *)(intptr_t)fd);
        if (err != 0) { /* out of threads: refuse this client, keep the others */
            errno = err;
            perror("thread");
            close(fd);
        }
    }
}
