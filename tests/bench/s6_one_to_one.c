/* s6_one_to_one.c - baseline S6: accept one client, receive, acknowledge, close. No port, no thread, no loop over
 * clients.
 *
 * usage: s6_one_to_one PORT. Echoes every message until the client closes. */
#define _GNU_SOURCE
#include "s67_socket.h"

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    const int listener = s67_listen(argv[1]);
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) s67_fail("accept");
    const unsigned long bytes = s67_acknowledge(fd);
    close(fd);
    close(listener);
    printf("acknowledged %lu bytes\n", bytes);
    return 0;
}
