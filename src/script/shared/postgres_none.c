/* postgres_none.c - postgres.h without libpq: there are no pools. */
#include <stdio.h>

#include "script/shared/postgres.h"

void ls_pg_stat(ls_shared *shared, ls_pg_stats *out)
{
    (void)shared;
    *out = (ls_pg_stats){0};
}

const char *ls_pg_library(char *out, size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "not built in");
    return out;
}

void ls_pg_connect(ls_shared *shared, ls_port *port)
{
    (void)shared;
    (void)port;
}

void ls_pg_disconnect(ls_shared *shared)
{
    (void)shared;
}
