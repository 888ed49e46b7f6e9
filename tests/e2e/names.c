/* names.c - getaddrinfo(3) that asks the name server of a test for names below .test; loaded with LD_PRELOAD (dns_e2e.py) where
 * the program itself cannot be told whom to ask: under Wine, whose GetAddrInfoExW calls getaddrinfo on a thread of its own.
 *
 * NAMES_PORT is the port of that server on 127.0.0.1. The questions go out as the C library's resolver puts them (resolver(3)),
 * once, and with more patience than any test has. */
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

static getaddrinfo_fn *others; /* the C library's own */

__attribute__((constructor)) static void find_others(void)
{
    *(void **)&others = dlsym(RTLD_NEXT, "getaddrinfo");
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
    struct __res_state asks = {0};
    ns_msg message;
    ns_rr record;
    if (res_ninit(&asks) != 0) return EAI_FAIL;
    asks.nscount = 1;
    asks.nsaddr_list[0] = (struct sockaddr_in){.sin_family = AF_INET,
                                               .sin_port = htons((uint16_t)atoi(getenv("NAMES_PORT"))),
                                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    asks.retry = 1;
    asks.retrans = PATIENCE_S;
    const int len = res_nquery(&asks, name, ns_c_in, type, answer, sizeof answer);
    const int error = asks.res_h_errno;
    res_nclose(&asks);
    if (len < 0) return error == TRY_AGAIN ? EAI_AGAIN : error == NO_DATA ? 0 : EAI_NONAME;
    if (ns_initparse(answer, len, &message) < 0) return EAI_FAIL;
    for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
        char text[INET6_ADDRSTRLEN];
        struct addrinfo numeric = hints != NULL ? *hints : (struct addrinfo){0};
        if (ns_parserr(&message, ns_s_an, i, &record) < 0 || (int)ns_rr_type(record) != type) continue;
        inet_ntop(type == ns_t_a ? AF_INET : AF_INET6, ns_rr_rdata(record), text, sizeof text);
        numeric.ai_flags = AI_NUMERICHOST;
        const int failed = others(text, service, &numeric, *end);
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
    if (!is_ours(name)) return others(name, service, hints, out);
    if (family != AF_INET) failed = add(name, service, hints, ns_t_aaaa, &end);
    if (!failed && family != AF_INET6) failed = add(name, service, hints, ns_t_a, &end);
    if (!failed && found == NULL) failed = EAI_NONAME;
    if (failed && found != NULL) freeaddrinfo(found);
    if (!failed) *out = found;
    return failed;
}
