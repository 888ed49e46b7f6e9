/* target.h - the addresses of the host of a run. The functions block until their result is there. */
#ifndef LS_STRESS_TARGET_H
#define LS_STRESS_TARGET_H

#include "net/names/resolver.h"
#include "net/sock/addr.h"

/* Look up a name, or parse an address. Returns the number of addresses, at least 1, in the order in which to try them;
 * LS_ENOENT: unknown; or another error of a lookup. */
int ls_stress_target_lookup(const char *host, uint16_t port, ls_addr out[LS_LOOKUP_ADDRS_MAX]);

/* Connect to a host (net/dial.h), and close the connection. LS_OK: *out is the address that accepted it; LS_ETIMEDOUT
 * after `timeout_ms`; or the error. */
int ls_stress_target_connect(const char *host, uint16_t port, uint32_t timeout_ms, ls_addr *out);

#endif
