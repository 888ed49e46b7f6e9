/* database_none.c - database.h without SQLite: no database is opened, so the other functions are not called. */
#include <stdio.h>

#include "script/shared/database.h"

static int database_open(const void *given, ls_shared_object **out)
{
    const ls_db_options *options = given;
    (void)out;
    *options->error = LS_ENOTSUP;
    (void)snprintf(options->message, options->message_bytes, "this luaserve was built without SQLite");
    return LS_ENOTSUP;
}

const ls_shared_kind ls_db_kind = {"database", database_open, NULL, NULL};

const char *ls_db_library(void)
{
    return NULL;
}

ls_db_job *ls_db_job_new(ls_db *db)
{
    (void)db;
    return NULL;
}

void ls_db_job_drop(ls_db_job *job)
{
    (void)job;
}

bool ls_db_try(ls_db_job *job)
{
    (void)job;
    return true;
}

int ls_db_queue(ls_db_job *job, ls_waiter *waiter, ls_port *port)
{
    (void)job;
    (void)waiter;
    (void)port;
    return LS_ENOTSUP;
}

void ls_db_block(ls_db_job *job)
{
    (void)job;
}

bool ls_db_cancel(ls_db_job *job, ls_waiter *waiter)
{
    (void)job;
    (void)waiter;
    return true;
}

void ls_db_job_release(ls_db_job *job)
{
    (void)job;
}

void ls_db_stat(ls_shared *shared, ls_db_stats *out)
{
    (void)shared;
    *out = (ls_db_stats){0};
}

void ls_db_disconnect(ls_shared *shared)
{
    (void)shared;
}
