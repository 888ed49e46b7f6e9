/* names.c - getaddrinfo(3) that asks the name server of a test for names below .test. dns.py loads it with LD_PRELOAD
 * under Wine, where a program cannot choose its name server and GetAddrInfoExW calls getaddrinfo on a thread of its own.
 *
 * NAMES_PORT is the port of the name server on 127.0.0.1. The resolver of the C library (resolver(3)) sends each
 * question once, and waits longer for the answer than any test does. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <dlfcn.h>
#include <netdb.h>
#include <resolv.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

enum { PATIENCE_S = 60, ANSWER_MAX = 4096 };

static getaddrinfo_fn *system_getaddrinfo; /* the C library's own */

__attribute__((constructor)) static void find_system(void)
{
    *(void **)&system_getaddrinfo = dlsym(RTLD_NEXT, "getaddrinfo");
}

static bool is_ours(const char *name)
{
    const size_t len = name != NULL ? strlen(name) : 0;
    return getenv("NAMES_PORT") != NULL && len > 5 && strcmp(name + len - 5, ".test") == 0;
}

/* Ask for the records of this type; each address of the answer is added at *end. 0, or EAI_*. */
static int add(const char *name, const char *service, const struct addrinfo *hints, int type, struct addrinfo ***end)
{
    unsigned char answer[ANSWER_MAX];
    struct __res_state resolver = {0};
    ns_msg message;
    ns_rr record;
    if (res_ninit(&resolver) != 0) return EAI_FAIL;
    resolver.nscount = 1;
    resolver.nsaddr_list[0] = (struct sockaddr_in){.sin_family = AF_INET,
                                                   .sin_port = htons((uint16_t)atoi(getenv("NAMES_PORT"))),
                                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    resolver.retry = 1;
    resolver.retrans = PATIENCE_S;
    const int len = res_nquery(&resolver, name, ns_c_in, type, answer, sizeof answer);
    const int error = resolver.res_h_errno;
    res_nclose(&resolver);
    if (len < 0) return error == TRY_AGAIN ? EAI_AGAIN : error == NO_DATA ? 0 : EAI_NONAME;
    if (ns_initparse(answer, len, &message) < 0) return EAI_FAIL;
    for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
        char text[INET6_ADDRSTRLEN];
        struct addrinfo numeric = hints != NULL ? *hints : (struct addrinfo){0};
        if (ns_parserr(&message, ns_s_an, i, &record) < 0 || (int)ns_rr_type(record) != type) continue;
        inet_ntop(type == ns_t_a ? AF_INET : AF_INET6, ns_rr_rdata(record), text, sizeof text);
        numeric.ai_flags = AI_NUMERICHOST;
        const int failed = system_getaddrinfo(text, service, &numeric, *end);
        if (failed) return failed;
        while (**end != NULL) *end = &(**end)->ai_next;
    }
    return 0;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    struct addrinfo *found = NULL, **end = &found;
    const int family = hints != NULL ? hints->ai_family : AF_UNSPEC;
    int failed = 0;
    if (!is_ours(name)) return system_getaddrinfo(name, service, hints, out);
    if (family != AF_INET) failed = add(name, service, hints, ns_t_aaaa, &end);
    if (!failed && family != AF_INET6) failed = add(name, service, hints, ns_t_a, &end);
    if (!failed && found == NULL) failed = EAI_NONAME;
    if (failed && found != NULL) freeaddrinfo(found);
    if (!failed) *out = found;
    return failed;
}
