/* bare_udp.c - the bare UDP echo: one thread receives a datagram and sends it back, forever.
 *
 *     bare_udp PORT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "bare.h"

int main(int argc, char **argv)
{
    static char bytes[65536];
    if (argc < 2) {
        fprintf(stderr, "usage: bare_udp PORT\n");
        return 2;
    }
    int fd = bare_bound(argv[1], SOCK_DGRAM);
    for (;;) {
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        ssize_t n = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &from_len);
        /* A datagram that cannot be sent is lost. */
        if (n >= 0 && sendto(fd, bytes, (size_t)n, 0, (struct sockaddr *)&from, from_len) < 0) continue;
    }
}
