/* module.h - one object or group of functions in Lua, as the core sees it.
 *
 * A module is a const table in the file of script/bind that implements it, and one row in the registry
 * (script/bind/modules.h), which numbers the modules: the number is the slot of the module. Every Lua state has
 * `bytes` bytes of zeroed data for each module, which ls_state_data(state, slot) finds with one load.
 *
 *     ls_state_open:    define, in the order of the registry
 *     the site loads
 *     the site starts:  start
 *     its work ends:    end, for one reason after the other
 *     live close:       close, repeatedly, until every module is closed --> lua_close --> free
 *     no worker runs and the port is closed:          abandon --> lua_close --> free
 *
 * Thread: the one that holds the state's actor. Every function may be NULL. */
#ifndef LS_SCRIPT_MODULE_H
#define LS_SCRIPT_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include <lauxlib.h>
#include <lua.h>

#include "port/port.h"
#include "script/core/scope.h"

typedef struct ls_state ls_state;
typedef struct ls_runtime ls_runtime;
typedef struct ls_module_common ls_module_common; /* runtime.h */

typedef struct ls_module {
    const char *name;
    size_t bytes;              /* of the data in each state */
    bool lists;                /* the data begins with an ls_node, the head of a list, which is empty at first */
    const luaL_Reg *functions; /* for the table `luaserve.core`; ends with a NULL name */

    /* Before the libraries are open: an object with a finalizer that is made here is finalized last. May raise. */
    void (*prepare)(lua_State *L, ls_state *state);
    /* Make metatables and the like. The libraries are open. Leaves the stack as it is. May raise. */
    void (*define)(lua_State *L, ls_state *state);
    /* The site has loaded and the server starts, or has started before: arm timers, run hooks. */
    void (*start)(ls_thread_ctx *ctx, ls_state *state);
    /* Work of the state ends for this reason, once for each (scope.h): REPLACED or STOP, after which the listeners
     * give no new work; OUTDATED, UNUSED, TIME. The tasks were ended before. Not called before `close`. */
    void (*end)(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why);
    /* The drain takes long: log what the state still does. */
    void (*report)(ls_thread_ctx *ctx, ls_state *state);
    /* A look at what the states do was asked for (ls_runtime.looks). */
    void (*look)(ls_thread_ctx *ctx, ls_state *state);
    /* Cancel what waits, is open or is armed; a task must not be woken by it later. The tasks that
     * still exist end when they run next. Called several times. */
    void (*close)(ls_thread_ctx *ctx, ls_state *state);
    /* Whether no operation, timer, poll or other thread refers to the state or to the data any more. Called after
     * `close`. NULL: always. */
    bool (*closed)(ls_state *state);
    /* Whether nothing of the state would be lost if it closed now, without `close`. No task exists, but those of
     * ls_tasks_spare. It may end what is idle and made again when it is needed. NULL: as `closed`. */
    bool (*unused)(ls_state *state);
    /* While the port is still open, before `abandon`: close sockets. No worker runs, and no task runs any more. */
    void (*disconnect)(ls_thread_ctx *ctx, ls_state *state);
    /* Instead of `close`: no worker runs and the port is closed, so that nothing pending completes any more. */
    void (*abandon)(ls_state *state);
    /* Free what the data refers to. Lua is closed. Also after a `define` that raised, or that was not reached. */
    void (*free)(ls_state *state);

    /* A module whose calls define something that all states of a site share, such as listeners (definition.h): the
     * plural for messages, the limit, and what frees one entry (NULL: free). */
    const char *defines;
    unsigned definitions_max;
    bool serves; /* a definition brings work: a site with one does not end with its last task */
    void (*undefine)(void *entry);

    const ls_module_common *common; /* what it has once per server; NULL: nothing */
} ls_module;

/* Work to do when the running task ends or is suspended, such as a flush of what it has sent. */
typedef struct ls_flush {
    struct ls_flush *next;
    /* `suspended`: the task waits; else it has ended, or no task runs. */
    void (*run)(ls_thread_ctx *ctx, ls_state *state, struct ls_flush *flush, bool suspended);
    bool listed;
} ls_flush;

#endif
