/* bare.c - what the two bare responders share; see bare.h. */
#include "bare.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

bool bare_answers_open(bare_answers *answers, const char *one)
{
    size_t each = strlen(one);
    char *bytes = malloc(each * BARE_ANSWERS_MAX);
    if (bytes == NULL) return false;
    for (size_t i = 0; i < BARE_ANSWERS_MAX; i++) memcpy(bytes + i * each, one, each);
    answers->bytes = bytes;
    answers->each = each;
    return true;
}

int bare_listen(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0) {
        perror("cannot listen");
        exit(1);
    }
    return fd;
}
