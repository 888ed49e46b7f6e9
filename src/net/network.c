/* network.c - see network.h. Pure; any thread. */
#include "net/network.h"

#include <string.h>

#include "base/err.h"

enum { TEXT_BYTES = 64, MAPPED_BITS = 96 };

/* One to three digits without a leading zero, at most `max`; -1: anything else. */
static int prefix_parse(const char *text, int max)
{
    const size_t len = strlen(text);
    int prefix = 0;
    if (len == 0 || len > 3 || (len > 1 && text[0] == '0')) return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        prefix = prefix * 10 + (text[i] - '0');
    }
    return prefix <= max ? prefix : -1;
}

/* Whether the first `bits` bits are equal. */
static bool same_prefix(const unsigned char *a, const unsigned char *b, unsigned bits)
{
    const unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, whole) != 0) return false;
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

int ls_network_parse(const char *text, ls_network *out)
{
    ls_network network = {.family = LS_ADDR_UNIX};
    ls_addr addr;
    char host[TEXT_BYTES];
    if (strcmp(text, "unix:") == 0) {
        *out = network;
        return LS_OK;
    }
    const size_t host_len = strcspn(text, "/");
    /* Other forms that ls_addr_parse takes: zones ("fe80::1%eth0"), paths ("unix:/run/a") and "*". */
    if (host_len >= sizeof host || strcspn(text, "%u*") < host_len) return LS_EINVAL;
    memcpy(host, text, host_len);
    host[host_len] = '\0';
    if (ls_addr_parse(host, 0, &addr) < 0) return LS_EINVAL;

    int prefix = 8 * addr.bytes_len;
    if (text[host_len] == '/' && (prefix = prefix_parse(text + host_len + 1, prefix)) < 0) return LS_EINVAL;
    if (addr.family == LS_ADDR_IP6 && prefix >= MAPPED_BITS) {
        ls_addr_unmap(&addr);
        if (addr.family == LS_ADDR_IP4) prefix -= MAPPED_BITS;
    }
    network.family = addr.family;
    network.prefix = (uint8_t)prefix;
    const unsigned whole = network.prefix / 8u, rest = network.prefix % 8u;
    memcpy(network.bytes, addr.bytes, whole);
    if (rest != 0) network.bytes[whole] = (unsigned char)(addr.bytes[whole] & 0xff00u >> rest);
    *out = network;
    return LS_OK;
}

bool ls_addr_is_public(const ls_addr *addr)
{
    static const ls_network special[] = {
        {LS_ADDR_IP4, 8, {0}},
        {LS_ADDR_IP4, 8, {10}},
        {LS_ADDR_IP4, 10, {100, 64}},
        {LS_ADDR_IP4, 8, {127}},
        {LS_ADDR_IP4, 16, {169, 254}},
        {LS_ADDR_IP4, 12, {172, 16}},
        {LS_ADDR_IP4, 24, {192, 0, 0}},
        {LS_ADDR_IP4, 24, {192, 0, 2}},
        {LS_ADDR_IP4, 24, {192, 88, 99}},
        {LS_ADDR_IP4, 16, {192, 168}},
        {LS_ADDR_IP4, 15, {198, 18}},
        {LS_ADDR_IP4, 24, {198, 51, 100}},
        {LS_ADDR_IP4, 24, {203, 0, 113}},
        {LS_ADDR_IP4, 3, {224}},                     /* groups, reserved, broadcast */
        {LS_ADDR_IP6, 23, {0x20, 0x01}},             /* IETF protocols, Teredo */
        {LS_ADDR_IP6, 32, {0x20, 0x01, 0x0d, 0xb8}}, /* documentation */
        {LS_ADDR_IP6, 16, {0x20, 0x02}},             /* 6to4 */
        {LS_ADDR_IP6, 20, {0x3f, 0xff}},             /* documentation */
    };
    static const ls_network global = {LS_ADDR_IP6, 3, {0x20}}; /* all of IPv6 that is global unicast */
    ls_addr plain = *addr;
    ls_addr_unmap(&plain);
    if (plain.family != LS_ADDR_IP4 && !ls_networks_have(&global, 1, &plain)) return false;
    return !ls_networks_have(special, sizeof special / sizeof *special, &plain);
}

bool ls_networks_have(const ls_network *networks, size_t count, const ls_addr *addr)
{
    ls_addr plain = {.family = addr->family}; /* *addr may be shorter: ls_exchange_keep */
    if (addr->family == LS_ADDR_IP4) memcpy(plain.bytes, addr->bytes, 4);
    if (addr->family == LS_ADDR_IP6) memcpy(plain.bytes, addr->bytes, 16);
    ls_addr_unmap(&plain);
    for (size_t i = 0; i < count; i++)
        if (networks[i].family == plain.family && same_prefix(networks[i].bytes, plain.bytes, networks[i].prefix))
            return true;
    return false;
}
