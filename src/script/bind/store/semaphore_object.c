/* semaphore_object.c - ls.semaphore: the object over script/store/semaphore.h, and tasks that wait for a permit.
 *
 * A permit belongs to the task that has acquired it, in the list of ends of the task (task.h): it does not outlast the
 * task. semaphore:with() also keeps it in a to-be-closed object on the stack: the end of the function and an error
 * close it. A coroutine that is dropped while it is inside `with` returns the permit when it is collected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/udata.h"
#include "script/core/state.h"
#include "script/core/wait.h"
#include "script/store/semaphore.h"

static const ls_object_type semaphore_type, permit_type;

typedef struct semaphore_handle {
    const void *tag;
    ls_semaphore *semaphore; /* of the server; outlives the state */
} semaphore_handle;

typedef struct permit { /* of one call of semaphore:with */
    const void *tag;
    ls_semaphore *semaphore; /* NULL: not held */
    ls_task_end end;
} permit;

typedef struct held_permit { /* of one call of semaphore:acquire */
    ls_semaphore *semaphore;
    ls_task_end end;
    char line[80]; /* of the call */
} held_permit;

static semaphore_handle *semaphore_check(lua_State *L)
{
    return ls_udata_check(L, 1, &semaphore_type, sizeof(semaphore_handle), "semaphore");
}

/* ---- acquire and release ------------------------------------------------------------------------------------ */

static void acquire_give_back(void *semaphore, ls_waiter *waiter)
{
    if (waiter->result == LS_OK) (void)ls_semaphore_release(semaphore);
}

static const ls_wait_kind acquire_kind = {ls_semaphore_cancel, acquire_give_back, LS_WAIT_WRITE, "the semaphore"};

static void held_ended(ls_task_end *end)
{
    held_permit *held = LS_CONTAINER(end, held_permit, end);
    ls_log(LS_LOG_WARN,
           "semaphore '%s': the task that called acquire%s%s has ended without release; its permit is returned",
           ls_semaphore_name(held->semaphore), held->line[0] != '\0' ? " at " : "", held->line);
    (void)ls_semaphore_release(held->semaphore);
    free(held);
}

/* The permit that `acquire` has taken belongs to the current task. */
static int acquire_result(lua_State *L, ls_semaphore *semaphore, int result)
{
    held_permit *held = result == LS_OK ? malloc(sizeof *held) : NULL;
    if (result == LS_OK && held == NULL) {
        (void)ls_semaphore_release(semaphore);
        return luaL_error(L, "not enough memory");
    }
    if (held != NULL) {
        held->semaphore = semaphore;
        held->end.run = held_ended;
        ls_task_line(L, held->line, sizeof held->line);
        ls_task_end_add(ls_state_of(L)->current, &held->end);
    }
    return ls_push_result(L, result == LS_EAGAIN ? LS_ETIMEDOUT : result);
}

/* A task that max_cpu or the close of its state ends does not get the permit. */
static int acquire_decided(lua_State *L, int status, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    ls_semaphore *semaphore = wait->object;
    int result = ls_wait_end(L, wait, NULL);
    if (result == LS_OK && ls_state_of(L)->current->cpu_exceeded) {
        (void)ls_semaphore_release(semaphore);
        result = LS_ECANCELED;
    }
    return acquire_result(L, semaphore, result);
}

static int semaphore_with(lua_State *L);
static void permit_task_ended(ls_task_end *end);

/* The permits of the semaphore that the task holds. `line`: of the last call of acquire among them, or "". */
static unsigned held_by(const ls_task *task, const ls_semaphore *semaphore, char line[80])
{
    unsigned count = 0;
    line[0] = '\0';
    for (ls_task_end *end = task->ends; end != NULL; end = end->next) {
        if (end->run == held_ended && LS_CONTAINER(end, held_permit, end)->semaphore == semaphore) {
            if (line[0] == '\0') (void)snprintf(line, 80, "%s", LS_CONTAINER(end, held_permit, end)->line);
            count++;
        } else if (end->run == permit_task_ended && LS_CONTAINER(end, permit, end)->semaphore == semaphore) {
            count++;
        }
    }
    return count;
}

/* The line of the innermost call of `with` whose function runs in this coroutine, or "". */
static void line_of_with(lua_State *L, char line[80])
{
    lua_Debug ar;
    bool inside = false;
    line[0] = '\0';
    for (int level = 1; lua_getstack(L, level, &ar); level++) { /* 0 is this call */
        (void)lua_getinfo(L, "fSl", &ar);
        const bool with = lua_tocfunction(L, -1) == semaphore_with;
        lua_pop(L, 1);
        if (with) inside = true;
        if (!inside || ar.currentline <= 0) continue;
        (void)snprintf(line, 80, "%s:%d", ar.short_src, ar.currentline);
        return;
    }
}

/* Raise if this task would wait for a permit of its own. */
static void check_own(lua_State *L, ls_semaphore *semaphore)
{
    char line[80], with[80] = "";
    const ls_task *task = ls_state_of(L)->current;
    if (task == NULL || held_by(task, semaphore, line) < ls_semaphore_permits(semaphore)) return;
    if (line[0] == '\0') line_of_with(L, with);
    const char *const at = line[0] != '\0' ? line : with;
    luaL_error(L,
               "semaphore '%s': this task holds all its permits%s%s, and would wait for itself without end; take the "
               "permit once, around all that needs it, and call a function inside that takes none",
               ls_semaphore_name(semaphore), at[0] != '\0' ? " since " : "", at);
}

/* Take a permit; wait for it at most `timeout` seconds if that is not negative. `k` continues if the call waits; else
 * *result is LS_OK or LS_EAGAIN, and the function returns -1. */
static int acquire(lua_State *L, ls_semaphore *semaphore, double timeout, lua_KFunction k, int *result)
{
    *result = ls_semaphore_acquire(semaphore, NULL);
    if (*result != LS_EAGAIN || timeout == 0) return -1;
    if (timeout < 0) check_own(L, semaphore);
    ls_wait *wait = ls_wait_begin(L, &acquire_kind, semaphore);
    *result = ls_semaphore_acquire(semaphore, &wait->waiter);
    if (*result == LS_SEMAPHORE_WAITS) return ls_wait_suspend(L, wait, timeout, false, k);
    ls_wait_drop(wait);
    return -1;
}

/* semaphore:acquire([timeout]) -> true | nil, message, code
 * Takes a permit for this task. Waits for one; ETIMEDOUT after the timeout. */
static int semaphore_acquire(lua_State *L)
{
    ls_semaphore *semaphore = semaphore_check(L)->semaphore;
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    int result;
    if (ls_state_of(L)->current == NULL)
        return luaL_error(L,
                          "semaphore:acquire: no task is running that the permit could belong to; use semaphore:with");
    const int count = acquire(L, semaphore, timeout, acquire_decided, &result);
    return count >= 0 ? count : acquire_result(L, semaphore, result);
}

/* semaphore:release()
 * Gives a permit back that this task has acquired. Raises if it holds none. */
static int semaphore_release(lua_State *L)
{
    ls_semaphore *semaphore = semaphore_check(L)->semaphore;
    const ls_task *task = ls_state_of(L)->current;
    for (ls_task_end *end = task != NULL ? task->ends : NULL; end != NULL; end = end->next) {
        held_permit *held = LS_CONTAINER(end, held_permit, end);
        if (end->run != held_ended || held->semaphore != semaphore) continue;
        ls_task_end_remove(end);
        free(held);
        (void)ls_semaphore_release(semaphore);
        return 0;
    }
    return luaL_error(L,
                      "semaphore:release: this task holds no permit of '%s'; only the task that called acquire "
                      "can release",
                      ls_semaphore_name(semaphore));
}

/* ---- with --------------------------------------------------------------------------------------------------- */

static void permit_return(permit *p)
{
    ls_semaphore *semaphore = p->semaphore;
    if (semaphore == NULL) return;
    p->semaphore = NULL;
    ls_task_end_remove(&p->end);
    (void)ls_semaphore_release(semaphore);
}

static void permit_task_ended(ls_task_end *end)
{
    permit_return(LS_CONTAINER(end, permit, end));
}

static int permit_close(lua_State *L) /* __close and __gc */
{
    permit_return(lua_touserdata(L, 1));
    return 0;
}

/* Stack: the permit, then the results of the function. */
static int with_returned(lua_State *L, int status, lua_KContext context)
{
    permit_return(lua_touserdata(L, 1));
    return lua_gettop(L) - 1;
}

/* Stack: the permit, the function, its arguments. The permit has been acquired. */
static int with_call(lua_State *L, ls_semaphore *semaphore)
{
    const ls_state *state = ls_state_of(L);
    permit *p = lua_touserdata(L, 1);
    p->semaphore = semaphore;
    p->end.run = permit_task_ended;
    if (state->current != NULL) ls_task_end_add(state->current, &p->end);
    lua_toclose(L, 1);
    lua_callk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, with_returned);
    return with_returned(L, LUA_OK, 0);
}

static int with_decided(lua_State *L, int status, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    ls_semaphore *semaphore = wait->object;
    const int result = ls_wait_end(L, wait, NULL);
    const bool ends = ls_state_of(L)->current->cpu_exceeded; /* the task is ended while it waits */
    if (result == LS_OK && !ends) return with_call(L, semaphore);
    if (result == LS_OK) (void)ls_semaphore_release(semaphore);
    if (result == LS_ETIMEDOUT && !ends) return ls_push_failure(L, result);
    ls_state_end_run(L);
    return 0;
}

/* semaphore:with(fn: fun(...): ..., ...) -> ...: any
 * Runs a function with a permit, for which it waits, and returns its results. The permit is given back when the
 * function has ended, also by an error, which is raised again. The function may wait. */
static int semaphore_with(lua_State *L)
{
    ls_semaphore *semaphore = semaphore_check(L)->semaphore;
    int result;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    (void)ls_object_push(L, sizeof(permit), 0, &permit_type); /* before: it may raise */
    lua_replace(L, 1);
    const int count = acquire(L, semaphore, -1, with_decided, &result);
    return count >= 0 ? count : with_call(L, semaphore);
}

/* core.semaphore_within(semaphore, timeout, fn, ...) -> the results of fn(...) | nil, message, code
 * As semaphore:with, for at most `timeout` seconds. */
static int core_semaphore_within(lua_State *L)
{
    ls_semaphore *semaphore = semaphore_check(L)->semaphore;
    const double timeout = ls_check_seconds(L, 2);
    int result;
    (void)ls_object_push(L, sizeof(permit), 0, &permit_type); /* before: it may raise */
    lua_replace(L, 1);
    lua_remove(L, 2);
    const int count = acquire(L, semaphore, timeout, with_decided, &result);
    if (count >= 0) return count;
    return result == LS_OK ? with_call(L, semaphore) : ls_push_failure(L, LS_ETIMEDOUT);
}

/* ---- the rest of the object --------------------------------------------------------------------------------- */

/* semaphore is a Semaphore: permits that tasks of all Lua states share.
 * semaphore.name: string - its name
 * semaphore.permits: integer - their number
 * semaphore.held: integer - how many are held */
static int semaphore_index(lua_State *L)
{
    const semaphore_handle *handle = semaphore_check(L);
    if (ls_push_method(L, "a semaphore")) return 1;
    const char *field = lua_tostring(L, 2);
    if (strcmp(field, "permits") == 0)
        lua_pushinteger(L, ls_semaphore_permits(handle->semaphore));
    else if (strcmp(field, "held") == 0)
        lua_pushinteger(L, ls_semaphore_taken(handle->semaphore));
    else /* name */
        lua_pushstring(L, ls_semaphore_name(handle->semaphore));
    return 1;
}

static int semaphore_tostring(lua_State *L)
{
    lua_pushfstring(L, "semaphore '%s'", ls_semaphore_name(semaphore_check(L)->semaphore));
    return 1;
}

static const luaL_Reg methods[] = {{"semaphore:acquire(timeout)", semaphore_acquire},
                                   {"semaphore:release()", semaphore_release},
                                   {"with", semaphore_with},
                                   {NULL, NULL}};
static const char *const fields[] = {"permits", "held", "name", NULL};
static const luaL_Reg meta[] = {{"__tostring", semaphore_tostring}, {NULL, NULL}};
static const ls_object_type semaphore_type = {
    .name = "semaphore", .methods = methods, .meta = meta, .fields = fields, .index = semaphore_index};
static const ls_object_type permit_type = {.name = "permit", .drop = permit_close};

/* core.semaphore(name, permits, where) -> semaphore | nil, where it was defined with another number. `where`: the line
 * of the call. */
static int core_semaphore(lua_State *L)
{
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *object;
    const char *name = luaL_checkstring(L, 1);
    const unsigned permits = (unsigned)luaL_checkinteger(L, 2);
    const char *where = luaL_checkstring(L, 3);
    semaphore_handle *handle = ls_object_push(L, sizeof *handle, 0, &semaphore_type);
    const int err = ls_shared_get(ls_state_runtime(ls_state_of(L))->shared, &ls_semaphore_kind, name, where, &permits,
                                  &object, before);
    if (err == LS_ENOMEM) return luaL_error(L, "not enough memory");
    if (err < 0) return ls_push_nil_text(L, before);
    handle->semaphore = ls_semaphore_of(object);
    return 1;
}

static const luaL_Reg semaphore_functions[] = {
    {"semaphore", core_semaphore}, {"semaphore_within", core_semaphore_within}, {NULL, NULL}};

const ls_module ls_semaphore_module = {.name = "semaphore", .functions = semaphore_functions};
