/* resolver_none.c - resolver.h without c-ares: resolves only "localhost". */
#include "net/names/resolver.h"

#include <stdlib.h>
#include <string.h>

int ls_resolver_open(ls_port *port, ls_polls *polls, ls_actor *actor, const char *servers, ls_resolver **out)
{
    *out = malloc(1); /* any address, for close */
    return *out != NULL ? LS_OK : LS_ENOMEM;
}

int ls_resolver_lookup(ls_thread_ctx *ctx, ls_resolver *resolver, const char *name, uint16_t port, ls_lookup_fn *done,
                       void *user, ls_lookup **out)
{
    ls_lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL) return LS_ENOMEM;
    lookup->done = done;
    lookup->user = user;
    lookup->err = LS_ENOTSUP;
    if (strcmp(name, "localhost") == 0) {
        lookup->err = LS_OK;
        lookup->count = 2;
        (void)ls_addr_parse("127.0.0.1", port, &lookup->addrs[0]);
        (void)ls_addr_parse("::1", port, &lookup->addrs[1]);
    }
    *out = lookup;
    return LS_DONE;
}

void ls_lookup_drop(ls_lookup *lookup)
{
    free(lookup);
}

bool ls_resolver_end(ls_thread_ctx *ctx, ls_resolver *resolver)
{
    free(resolver);
    return true;
}

void ls_resolver_stop(ls_resolver *resolver)
{
    (void)resolver; /* it posts nothing */
}

void ls_resolver_close(ls_resolver *resolver)
{
    free(resolver);
}
