/* upgrade.h - another process takes over: the program is started again, with the sockets of this one.
 *
 *     this process                                   the new one (LUASERVE_UPGRADE, base/os/successor.h)
 *       starts it, with all its sockets  ------------->  loads the site, runs ls.init
 *                                        <-- "ready" --  waits
 *       writes its dicts to the memory, tells systemd MAINPID
 *                                        --- "go" ---->  reads them, accepts, takes over the path of the control socket
 *       drains, without its sockets     <- "serving" --
 *
 * Until "serving" this process serves, and continues when the new one sends "failed" and a reason, ends, or is late. A
 * file that only one process may use, that of a dict, turns the order round: the new one sends "waits" and the path,
 * this one sends "go", drains and ends, and connections wait in the queues of the listeners. */
#ifndef LS_SERVER_UPGRADE_H
#define LS_SERVER_UPGRADE_H

#include "base/list.h"
#include "base/os/successor.h"
#include "script/site/site.h"

typedef bool ls_upgrade_stops_fn(void *user); /* whether this process is asked to stop: then the upgrade ends */

/* ---- this process ------------------------------------------------------------------------------------------- */

typedef struct ls_upgrade_sockets { /* of the endpoints, with their names for the other process */
    intptr_t *at;
    unsigned count;
    char *names;
} ls_upgrade_sockets;

/* Find them. LS_OK, and the caller frees `at` and `names`; LS_ENOMEM. */
int ls_upgrade_sockets_of(ls_node *endpoints, ls_upgrade_sockets *out);

/* Start the new process, and wait until it serves, ms_max for the load of the site. LS_OK, and in `message` the file that
 * it waits for, or ""; an error with the reason. */
int ls_upgrade_run(const ls_upgrade_sockets *sockets, const ls_runtime *runtime, uint32_t ms_max,
                   ls_upgrade_stops_fn *stops, void *user, char *message, size_t bytes);

/* ---- the new process: one that replaces another one; else the functions have no effect --------------------------- */

typedef struct ls_upgrade {
    ls_successor other; /* the channel to it: ls_predecessor_open */
    bool go;            /* it drains, and this process waits for one of its files */
    uint64_t busy_ns;   /* when it had ended, and the file was still in use */
} ls_upgrade;

bool ls_upgrade_replaces(const ls_upgrade *u);
/* Before the first accept: wait until the other process lets this one serve, and take what it has in memory. NULL, or
 * why it will not. */
const char *ls_upgrade_ready(ls_upgrade *u, const ls_runtime *runtime, ls_upgrade_stops_fn *stops, void *user);
void ls_upgrade_serves(ls_upgrade *u);
void ls_upgrade_fail(const ls_upgrade *u, const char *why); /* it cannot serve */
bool ls_upgrade_file_busy(ls_upgrade *u, const char *path); /* for ls_site_host.file_busy */

#endif
