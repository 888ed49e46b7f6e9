/* addr.c - addr.h over sockaddr_in, sockaddr_in6 and sockaddr_un. Pure except for zone names, which the system
 * resolves; any thread. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/io/log.h"
#include "codec/http_text.h"
#include "net/sock/addr.h"
#include "net/sock/sockaddr.h"

static const char unix_prefix[] = "unix:";

static_assert(sizeof(struct sockaddr_un) <= sizeof(((ls_sockaddr *)0)->bytes), "a Unix address fits");
static_assert(sizeof(struct sockaddr_in6) <= sizeof(((ls_sockaddr *)0)->bytes), "an IPv6 address fits");
static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) <= sizeof(((ls_addr *)0)->bytes), "its path fits");
enum { UNIX_PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) };

/* The number of a zone, which is the name or the number of an interface. */
static int zone_parse(const char *zone, uint32_t *out)
{
    uint32_t number = if_nametoindex(zone);
    if (number == 0) {
        size_t i = 0;
        for (; zone[i] >= '0' && zone[i] <= '9' && i < 9; i++) number = number * 10 + (uint32_t)(zone[i] - '0');
        if (i == 0 || zone[i] != '\0' || number == 0) return LS_EINVAL;
    }
    *out = number;
    return LS_OK;
}

static int ip6_parse(const char *host, ls_addr *out)
{
    char text[INET6_ADDRSTRLEN];
    const char *const zone = strchr(host, '%');
    const size_t len = zone != NULL ? (size_t)(zone - host) : strlen(host);
    if (len >= sizeof text) return LS_EINVAL;
    memcpy(text, host, len);
    text[len] = '\0';
    if (inet_pton(AF_INET6, text, out->bytes) != 1) return LS_EINVAL;
    if (zone != NULL && zone_parse(zone + 1, &out->scope) < 0) return LS_EINVAL;
    out->family = LS_ADDR_IP6;
    out->bytes_len = 16;
    return LS_OK;
}

/* A path, or "@name" for an abstract address. A path leaves room for its terminator; an abstract name has none. */
static int unix_parse(const char *path, ls_addr *out)
{
    const size_t len = strlen(path);
    const bool abstract = path[0] == '@';
    if (len == 0 || (abstract && len == 1)) return LS_EINVAL;
    if (len > UNIX_PATH_BYTES - (abstract ? 0u : 1u)) return LS_ELIMIT;
    memcpy(out->bytes, path, len);
    if (abstract) out->bytes[0] = '\0';
    out->family = LS_ADDR_UNIX;
    out->bytes_len = (uint8_t)len;
    return LS_OK;
}

bool ls_addr_same(const ls_addr *a, const ls_addr *b)
{
    return a->family == b->family && a->port == b->port && a->scope == b->scope && a->bytes_len == b->bytes_len &&
           memcmp(a->bytes, b->bytes, a->bytes_len) == 0;
}

bool ls_addr_is_any(const ls_addr *addr)
{
    static const unsigned char zeros[16];
    const size_t len = addr->family == LS_ADDR_IP4 ? 4 : addr->family == LS_ADDR_IP6 ? 16 : 0;
    return len > 0 && memcmp(addr->bytes, zeros, len) == 0;
}

int ls_addr_parse(const char *host, uint16_t port, ls_addr *out)
{
    ls_addr addr = {.port = port};
    int err = LS_OK;
    if (strncmp(host, unix_prefix, sizeof unix_prefix - 1) == 0) {
        addr.port = 0;
        err = unix_parse(host + sizeof unix_prefix - 1, &addr);
    } else if (strcmp(host, "*") == 0) {
        addr.family = LS_ADDR_IP6;
        addr.bytes_len = 16; /* all zero: any address */
    } else if (inet_pton(AF_INET, host, addr.bytes) == 1) {
        addr.family = LS_ADDR_IP4;
        addr.bytes_len = 4;
    } else {
        err = ip6_parse(host, &addr);
    }
    if (err == LS_OK) *out = addr;
    return err;
}

char *ls_addr_host(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES])
{
    char name[INET6_ADDRSTRLEN > IF_NAMESIZE ? INET6_ADDRSTRLEN : IF_NAMESIZE];
    switch (addr->family) {
    case LS_ADDR_IP4: { /* of each proxied request: inet_ntop and snprintf take longer */
        char *to = out;
        for (unsigned i = 0; i < 4; i++, *to++ = '.') to = ls_put_number(to, addr->bytes[i]);
        to[-1] = '\0';
        break;
    }
    case LS_ADDR_IP6:
        (void)inet_ntop(AF_INET6, addr->bytes, out, LS_ADDR_TEXT_BYTES);
        if (addr->scope != 0) {
            const size_t len = strlen(out);
            if (if_indextoname(addr->scope, name) != NULL)
                (void)snprintf(out + len, LS_ADDR_TEXT_BYTES - len, "%%%s", name);
            else
                (void)snprintf(out + len, LS_ADDR_TEXT_BYTES - len, "%%%u", (unsigned)addr->scope);
        }
        break;
    case LS_ADDR_UNIX:
        (void)snprintf(out, LS_ADDR_TEXT_BYTES, "%s%.*s", unix_prefix, (int)addr->bytes_len,
                       (const char *)addr->bytes);
        if (addr->bytes_len > 1 && addr->bytes[0] == '\0')
            (void)snprintf(out, LS_ADDR_TEXT_BYTES, "%s@%.*s", unix_prefix, (int)addr->bytes_len - 1,
                           (const char *)addr->bytes + 1);
        break;
    default: (void)snprintf(out, LS_ADDR_TEXT_BYTES, "unknown"); break;
    }
    return out;
}

bool ls_addr_is_name(const char *host)
{
    enum { NAME_BYTES_MAX = 253, LABEL_BYTES_MAX = 63 };
    size_t len = strlen(host), label = 0;
    if (len > 0 && host[len - 1] == '.') len--;
    if (len == 0 || len > NAME_BYTES_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)host[i];
        const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (c == '.' ? label == 0 : !word && c != '-' && c != '_' && c < 0x80) return false;
        label = c == '.' ? 0 : label + 1;
        if (label > LABEL_BYTES_MAX) return false;
    }
    return label > 0;
}

char *ls_addr_text(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES])
{
    char host[LS_ADDR_TEXT_BYTES];
    (void)ls_addr_host(addr, host);
    const unsigned port = addr->port;
    switch (addr->family) {
    /* The precisions show the compiler that the text fits; no host is longer. */
    case LS_ADDR_IP4: (void)snprintf(out, LS_ADDR_TEXT_BYTES, "%.15s:%u", host, port); break;
    case LS_ADDR_IP6: (void)snprintf(out, LS_ADDR_TEXT_BYTES, "[%.90s]:%u", host, port); break;
    default: (void)snprintf(out, LS_ADDR_TEXT_BYTES, "%s", host); break;
    }
    return out;
}

void ls_addr_mask(ls_addr *addr)
{
    ls_addr_unmap(addr);
    if (addr->family == LS_ADDR_IP4) addr->bytes[3] = 0;
    if (addr->family == LS_ADDR_IP6) memset(addr->bytes + 6, 0, 10);
    addr->scope = 0;
}

char *ls_addr_logged(const ls_addr *addr, char out[LS_ADDR_TEXT_BYTES])
{
    ls_addr logged = *addr;
    if (ls_log_masks_addresses()) ls_addr_mask(&logged);
    return ls_addr_host(&logged, out);
}

void ls_addr_unmap(ls_addr *addr)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (addr->family != LS_ADDR_IP6 || memcmp(addr->bytes, mapped, sizeof mapped) != 0) return;
    ls_addr ip4 = {.family = LS_ADDR_IP4, .bytes_len = 4, .port = addr->port};
    memcpy(ip4.bytes, addr->bytes + sizeof mapped, 4);
    *addr = ip4;
}

void ls_addr_of(const ls_sockaddr *from, ls_addr *out)
{
    ls_addr addr = {.family = LS_ADDR_NONE};
    sa_family_t family = AF_UNSPEC;
    if (from->len >= sizeof family) memcpy(&family, from->bytes + offsetof(struct sockaddr, sa_family), sizeof family);

    if (family == AF_INET && from->len >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, from->bytes, sizeof in);
        addr.family = LS_ADDR_IP4;
        addr.bytes_len = 4;
        addr.port = ntohs(in.sin_port);
        memcpy(addr.bytes, &in.sin_addr, 4);
    } else if (family == AF_INET6 && from->len >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in;
        memcpy(&in, from->bytes, sizeof in);
        addr.port = ntohs(in.sin6_port);
        addr.family = LS_ADDR_IP6;
        addr.bytes_len = 16;
        addr.scope = in.sin6_scope_id;
        memcpy(addr.bytes, &in.sin6_addr, 16);
        ls_addr_unmap(&addr);
    } else if (family == AF_UNIX) {
        const size_t at = offsetof(struct sockaddr_un, sun_path);
        size_t len = from->len > at ? from->len - at : 0;
        if (len > UNIX_PATH_BYTES) len = UNIX_PATH_BYTES;
        const char *const path = (const char *)from->bytes + at;
        if (len > 0 && path[0] != '\0')
            len = strnlen(path, len); /* the length may or may not include the terminator */
        addr.family = LS_ADDR_UNIX;
        addr.bytes_len = (uint8_t)len;
        memcpy(addr.bytes, path, len);
    }
    *out = addr;
}

void ls_addr_to(const ls_addr *addr, ls_sockaddr *out)
{
    *out = (ls_sockaddr){.len = 0};
    if (addr->family == LS_ADDR_IP4) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(addr->port)};
        memcpy(&in.sin_addr, addr->bytes, 4);
        memcpy(out->bytes, &in, sizeof in);
        out->len = sizeof in;
    } else if (addr->family == LS_ADDR_IP6) {
        struct sockaddr_in6 in = {
            .sin6_family = AF_INET6, .sin6_port = htons(addr->port), .sin6_scope_id = addr->scope};
        memcpy(&in.sin6_addr, addr->bytes, 16);
        memcpy(out->bytes, &in, sizeof in);
        out->len = sizeof in;
    } else if (addr->family == LS_ADDR_UNIX) {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        assert(addr->bytes_len <= sizeof un.sun_path);
        memcpy(un.sun_path, addr->bytes, addr->bytes_len);
        memcpy(out->bytes, &un, sizeof un);
        /* The length of a path includes its terminator; an abstract or empty name has none. */
        const bool path = addr->bytes_len > 0 && addr->bytes[0] != '\0' && addr->bytes_len < sizeof un.sun_path;
        out->len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + addr->bytes_len + (path ? 1 : 0));
    }
}

uint16_t ls_sockaddr_port(const ls_sockaddr *sa)
{
    const struct sockaddr *any = (const struct sockaddr *)(const void *)sa->bytes;
    if (any->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)(const void *)sa->bytes)->sin_port);
    if (any->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)(const void *)sa->bytes)->sin6_port);
    return 0;
}
