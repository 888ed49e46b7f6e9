/* interrupt.c - see interrupt.h. */
#include "script/bind/tasks/interrupt.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/error_text.h"
#include "script/core/lua/udata.h"
#include "script/core/state.h"
#include "script/core/task.h"

enum { HOOK_INSTRUCTIONS = 1000 };

static const ls_object_type interrupt_type;

typedef struct interrupts { /* of all states */
    ls_mutex mutex;
    ls_node list;  /* guarded by the mutex */
    uint64_t last; /* number of the last object; guarded by the mutex */
} interrupts;

typedef struct ls_interrupt {
    const void *tag;
    interrupts *all; /* NULL: finalized */
    ls_node node;
    uint64_t number;
    _Atomic bool flag;
    uint64_t until_ns; /* object:within; 0: no limit */
    char line[80];     /* at which the limit has ended the call; "": it has not */
} ls_interrupt;

static int interrupts_open(void *own)
{
    interrupts *all = own;
    ls_node_init(&all->list);
    ls_mutex_open(&all->mutex);
    return LS_OK;
}

static void interrupts_close(void *own)
{
    ls_mutex_close(&((interrupts *)own)->mutex);
}

void ls_interrupts_set(const ls_runtime *runtime, uint64_t number)
{
    interrupts *all = ls_runtime_own(runtime, LS_SLOT_interrupt);
    ls_mutex_lock(&all->mutex);
    LS_LIST_EACH (ls_interrupt, object, &all->list, node)
        if (number == 0 || object->number == number) atomic_store_explicit(&object->flag, true, memory_order_relaxed);
    ls_mutex_unlock(&all->mutex);
}

/* ---- the object ------------------------------------------------------------------------------------------------- */

static ls_interrupt *check(lua_State *L)
{
    return ls_udata_check(L, 1, &interrupt_type, sizeof(ls_interrupt), "interrupt");
}

static int interrupt_gc(lua_State *L)
{
    ls_interrupt *object = lua_touserdata(L, 1);
    if (object->all == NULL) return 0;
    ls_mutex_lock(&object->all->mutex);
    ls_list_remove(&object->node);
    ls_mutex_unlock(&object->all->mutex);
    object->all = NULL;
    return 0;
}

static void hook(lua_State *L, lua_Debug *ar);

/* object:set(). A task that waits ends with its first instruction after the wait. */
static int interrupt_set(lua_State *L)
{
    ls_interrupt *object = check(L);
    const ls_state *state = ls_state_of(L);
    atomic_store_explicit(&object->flag, true, memory_order_relaxed);
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node)
        if (task->interrupt == object) lua_sethook(task->co, hook, LUA_MASKCOUNT, 1);
    return 0;
}

/* object:clear(): before the next computation */
static int interrupt_clear(lua_State *L)
{
    atomic_store_explicit(&check(L)->flag, false, memory_order_relaxed);
    return 0;
}

/* object:within(seconds): the calls end when they compute after that time; 0: no limit */
static int interrupt_within(lua_State *L)
{
    ls_interrupt *object = check(L);
    const double seconds = ls_check_seconds(L, 2);
    object->until_ns = seconds > 0 ? ls_task_deadline(seconds) : 0;
    return 0;
}

static int interrupt_index(lua_State *L)
{
    if (ls_push_method(L, "an interrupt")) return 1;
    return ls_push_integer(L, (lua_Integer)check(L)->number);
}

static const luaL_Reg methods[] = {
    {"set", interrupt_set}, {"clear", interrupt_clear}, {"within", interrupt_within}, {NULL, NULL}};
static const char *const fields[] = {"id", NULL};
static const ls_object_type interrupt_type = {
    .name = "interrupt", .methods = methods, .fields = fields, .index = interrupt_index, .drop = interrupt_gc};

/* core.interrupt() -> object. object.id: its number. */
static int core_interrupt(lua_State *L)
{
    interrupts *all = ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_interrupt);
    ls_interrupt *object = ls_object_push(L, sizeof *object, 0, &interrupt_type);
    ls_mutex_lock(&all->mutex);
    object->number = ++all->last;
    object->all = all;
    ls_list_push(&all->list, &object->node);
    ls_mutex_unlock(&all->mutex);
    return 1;
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static bool is_set(const ls_interrupt *object)
{
    return atomic_load_explicit(&object->flag, memory_order_relaxed);
}

static bool is_late(lua_State *L, ls_interrupt *object)
{
    if (object->until_ns == 0 || ls_clock_ns() < object->until_ns) return false;
    if (object->line[0] == '\0') ls_task_line(L, object->line, sizeof object->line);
    return true;
}

/* Coroutines inherit the hook. In one that outlives the call, or that another task resumes, it removes itself. */
static void hook(lua_State *L, lua_Debug *ar)
{
    const ls_task *task = ls_state_of(L)->current;
    if (task == NULL || task->interrupt == NULL) {
        lua_sethook(L, NULL, 0, 0);
    } else if (is_set(task->interrupt) || is_late(L, task->interrupt)) {
        lua_sethook(L, hook, LUA_MASKCOUNT, 1); /* a pcall of the script ends with its next instruction */
        ls_state_raise_unhandled(L);
    }
}

/* Message handler: the error as text with a traceback. */
static int describe(lua_State *L)
{
    luaL_traceback(L, L, ls_error_describe(L, 1), 1);
    return 1;
}

/* Stack: the object, the message handler, the results or the error. */
static int returned(lua_State *L, int status, lua_KContext context)
{
    ls_interrupt *object = check(L);
    lua_sethook(L, NULL, 0, 0);
    ls_state_of(L)->current->interrupt = NULL;
    if (status == LUA_OK || status == LUA_YIELD) return lua_gettop(L) - 2;
    if (object->line[0] != '\0')
        lua_pushfstring(L, "%s: interrupted", object->line);
    else if (is_set(object))
        lua_pushliteral(L, "interrupted");
    return lua_error(L);
}

/* core.interruptible(object, fn, ...) -> the results of fn. Raises its error as a text with a traceback, and
 * "interrupted" when the flag of the object was set, with the line when the time of object:within was over. In the
 * coroutine of a task, not nested. */
static int core_interruptible(lua_State *L)
{
    ls_interrupt *object = check(L);
    ls_task *task = ls_state_of(L)->current;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    if (task == NULL || task->co != L || task->interrupt != NULL)
        return luaL_error(L, "interruptible: not in the coroutine of a task, or nested");
    lua_pushcfunction(L, describe);
    lua_insert(L, 2);
    task->interrupt = object;
    lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
    return returned(L, lua_pcallk(L, lua_gettop(L) - 3, LUA_MULTRET, 2, 0, returned), 0);
}

static const luaL_Reg functions[] = {
    {"interrupt", core_interrupt}, {"interruptible", core_interruptible}, {NULL, NULL}};

static const ls_module_common common = {
    .bytes = sizeof(interrupts), .open = interrupts_open, .close = interrupts_close};

const ls_module ls_interrupt_module = {.name = "interrupt", .functions = functions, .common = &common};
