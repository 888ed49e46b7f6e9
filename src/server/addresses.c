/* addresses.c - see addresses.h. */
#include "server/addresses.h"

#include <string.h>

int ls_addresses_of(const char *host, uint16_t port, ls_addresses *out)
{
    const bool loopback = host[0] == '\0', all = strcmp(host, "*") == 0;
    out->either = all;
    out->count = loopback || all ? 2 : 1;
    const int err = ls_addr_parse(loopback ? "127.0.0.1" : host, port, &out->at[0]);
    if (err == LS_OK && out->count == 2) (void)ls_addr_parse(loopback ? "::1" : "0.0.0.0", port, &out->at[1]);
    return err;
}

bool ls_address_is_missing(int err)
{
    return err == LS_EADDRNOTAVAIL || err == LS_ENOTSUP;
}
