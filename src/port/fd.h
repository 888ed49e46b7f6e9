/* fd.h - the system's handle of a socket or file, and a socket address. The only header that selects by platform. */
#ifndef LS_PORT_FD_H
#define LS_PORT_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
typedef uintptr_t ls_fd; /* SOCKET or HANDLE */
#define LS_FD_NONE ((ls_fd) ~(uintptr_t)0)
#else
typedef int ls_fd;
#define LS_FD_NONE (-1)
#endif

typedef struct ls_sockaddr {
    uint32_t len;                         /* bytes in use; 0: no address */
    _Alignas(8) unsigned char bytes[128]; /* a struct sockaddr_in, sockaddr_in6 or sockaddr_un of the system */
} ls_sockaddr;

/* Compares word by word, because the send of a batch compares the addresses of neighbouring datagrams. */
static inline bool ls_sockaddr_same(const ls_sockaddr *a, const ls_sockaddr *b)
{
    uint32_t at = 0;
    if (a->len != b->len) return false;
    for (; at + sizeof(uint64_t) <= a->len; at += sizeof(uint64_t)) {
        uint64_t left, right;
        memcpy(&left, a->bytes + at, sizeof left);
        memcpy(&right, b->bytes + at, sizeof right);
        if (left != right) return false;
    }
    return at == a->len || memcmp(a->bytes + at, b->bytes + at, a->len - at) == 0;
}

#endif
