/* dict_store.h - the file of a dict that is kept over restarts: a table of an SQLite database.
 *
 * The dict is loaded when it is opened and stays in memory. A change puts its entry into the list of its shard; a
 * removed entry stays in that list, without its value, if it has a row to delete. A file has one thread for all of its
 * dicts. It takes the changes that they have at one moment, and writes them in one transaction; then it waits for
 * more, LS_DICT_STORE_MS when no task waits for it. So the file always has what the dicts were at one moment:
 *
 *     every change up to number `stored`, of all dicts of the file, is in it, and none after it
 *
 * With `sync` in one of the dicts a commit waits for the device, and tasks wait for their change. Without, it does
 * not: a crash of the program loses what was changed in the last moments, one of the system a little more. A write
 * that fails is logged, and tried again; the tasks that wait get the error. Until it succeeds no further changes are
 * taken, so that each key waits once in its list: what waits is bounded by the rows of the file and the entries of the
 * dicts.
 *
 * Rows: key (TEXT, INTEGER), value (TEXT, INTEGER, REAL, NULL for NaN; a BLOB for all others), expires (milliseconds
 * since 1970 or NULL). The BLOBs are marshalled values (marshal.h); one that is damaged makes the load fail. */
#ifndef LS_SCRIPT_DICT_STORE_H
#define LS_SCRIPT_DICT_STORE_H

#include "base/waiter.h"
#include "script/store/dict.h"

typedef struct ls_dict_store ls_dict_store;

enum { LS_DICT_STORE_MS = 50, LS_DICT_STORE_RETRY_MS = 1000 };

/* Open the file, load the dict, and set dict->store, which is `out`. LS_OK, or a code with the reason in
 * options->message. Without SQLite, LS_ENOTSUP. */
int ls_dict_store_open(ls_dict *dict, const ls_dict_options *options, ls_dict_store **out);
/* Write what has changed, and close the file. */
void ls_dict_store_close(ls_dict_store *store);

/* No waiter of any store is woken any more once those that wait are cancelled: the port is about to be closed. */
void ls_dict_stores_disconnect(ls_shared *shared);

/* The lock of the shard was taken, and it may be changed afterwards: its changes are taken before, when it is time. */
struct ls_dict_access;
void ls_dict_store_enter(ls_dict_store *store, struct ls_dict_access *access);

/* A change was put into a list. The lock of its shard is held. */
void ls_dict_store_note(ls_dict_store *store);

/* Wait until all changes made so far, to all dicts of the file, are in it. LS_PENDING: the waiter will be decided,
 * with LS_OK or a code. */
int ls_dict_store_wait(ls_dict_store *store, ls_waiter *waiter);
bool ls_dict_store_cancel(void *store, ls_waiter *waiter); /* true: it is not decided */
int ls_dict_store_block(ls_dict_store *store);             /* the same on this thread */

#endif
