/* parent_posix.c - see parent.h. */
#define _GNU_SOURCE
#include "cli/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/os/thread.h"

static int from = -1;
static void (*on_end)(void);

static void watch_main(void *arg)
{
    char ignored[64];
    ssize_t n;
    do {
        n = read(from, ignored, sizeof ignored);
    } while (n > 0 || (n < 0 && errno == EINTR));
    on_end();
}

FILE *ls_parent_open(void (*ended)(void))
{
    ls_thread thread;
    const int to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FILE *out = to >= 0 ? fdopen(to, "w") : NULL;
    from = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    on_end = ended;
    if (out == NULL || from < 0 || none < 0) return NULL; /* the process ends */
    if (dup2(none, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return NULL;
    (void)close(none);
    if (ls_thread_start(&thread, "ls-parent", watch_main, NULL) < 0) return NULL;
    ls_thread_detach(&thread);
    return out;
}

int ls_parent_program(char *path, size_t bytes)
{
    const ssize_t len = readlink("/proc/self/exe", path, bytes);
    if ((size_t)len == bytes) return -1;
    if (len >= 0) {
        path[len] = '\0';
        return 0;
    }
    /* No /proc: the path that the program was started with (getauxval(3)). The working directory is still the same. */
    const char *given = (const char *)getauxval(AT_EXECFN); /* NOLINT(performance-no-int-to-ptr) */
    char *real = given != NULL ? realpath(given, NULL) : NULL;
    const bool fits = real != NULL && strlen(real) < bytes;
    if (fits) memcpy(path, real, strlen(real) + 1);
    free(real);
    return fits ? 0 : -1;
}
