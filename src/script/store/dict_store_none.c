/* dict_store_none.c - dict_store.h without SQLite: no store is opened, so the other functions are not called. */
#include <stdio.h>

#include "base/err.h"
#include "script/store/dict_store.h"

int ls_dict_store_open(ls_dict *dict, const ls_dict_options *options, ls_dict_store **out)
{
    (void)snprintf(options->message, options->message_bytes, "this luaserve was built without SQLite");
    return LS_ENOTSUP;
}

void ls_dict_store_close(ls_dict_store *store)
{
}

void ls_dict_store_enter(ls_dict_store *store, struct ls_dict_access *access)
{
}

void ls_dict_store_note(ls_dict_store *store)
{
}

int ls_dict_store_wait(ls_dict_store *store, ls_waiter *waiter)
{
    return LS_OK;
}

bool ls_dict_store_cancel(void *store, ls_waiter *waiter)
{
    return true;
}

int ls_dict_store_block(ls_dict_store *store)
{
    return LS_OK;
}
