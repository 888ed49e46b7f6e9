/* getaddrinfo_posix.c - name resolution by getaddrinfo(3), which blocks: the program has no other work at that
 * time. */
#define _POSIX_C_SOURCE 200809L
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "stress/target.h"

int ls_stress_getaddrinfo(const char *host, const char *service, bool stream, ls_addr *out, size_t room)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = stream ? SOCK_STREAM : SOCK_DGRAM};
    struct addrinfo *list = NULL;
    int err = getaddrinfo(host, service, &hints, &list);
    if (err == EAI_MEMORY) return LS_ENOMEM;
    if (err != 0) return err == EAI_SYSTEM ? LS_ESYS : LS_ENOENT;
    size_t count = 0;
    for (const struct addrinfo *at = list; at != NULL && count < room; at = at->ai_next) {
        ls_sockaddr sa = {.len = at->ai_addrlen};
        if (at->ai_addrlen > sizeof sa.bytes) continue;
        memcpy(sa.bytes, at->ai_addr, at->ai_addrlen);
        ls_addr_of(&sa, &out[count]);
        if (out[count].family != LS_ADDR_NONE) count++;
    }
    freeaddrinfo(list);
    return count > 0 ? (int)count : LS_ENOENT;
}
