/* task.c - see task.h. */
#include "script/core/task.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "script/core/cpu_poll.h"
#include "script/core/lua/error_text.h"

/* A task that ends wakes the tasks that wait for it; these may end at once and wake further ones. Every level uses
 * some frames of the C stack. */
enum { WAKES_NESTED_MAX = 16 };

/* Between two looks at the tasks whose time is limited: with many of them a look takes a millisecond. */
#define WATCH_PAUSE_NS UINT64_C(100000000)

#define LS_WAIT_MAX_S 1e9 /* about 30 years; longer waits are reduced to it, so that a deadline cannot overflow */

static void task_op_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_task *task = LS_CONTAINER(op, ls_task, op);
    task->queued = false;
    ls_task_run(ctx, task, task->nargs);
}

static ls_task *task_new(lua_State *L, ls_state *state)
{
    lua_State *co = lua_newthread(L);
    const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    ls_task *task = calloc(1, sizeof *task);
    if (task == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        luaL_error(L, "not enough memory");
        return NULL;
    }
    /* Not the hook of its creator, but the one for returns that dev mode gives to the state. */
    lua_sethook(co, lua_gethook(state->L), lua_gethookmask(state->L) & LUA_MASKRET, 0);
    task->state = state;
    task->co = co;
    task->ref = ref;
    task->op.actor = &state->actor;
    task->op.done = task_op_done;
    ls_node_init(&task->wait_node);
    return task;
}

static ls_task *task_reuse(ls_state *state)
{
    ls_task *task =
        LS_CONTAINER(state->tasks_free.prev, ls_task, node); /* the last one used: its stack is in the cache */
    ls_list_remove(&task->node);
    state->tasks_free_count--;
    task->late = 0;
    return task;
}

ls_task *ls_task_take(lua_State *L, ls_state *state)
{
    ls_task *task = state->tasks_free_count > 0 ? task_reuse(state) : task_new(L, state);
    ls_list_push(&state->tasks_live, &task->node);
    return task;
}

typedef struct task_order {
    ls_state *state;
    ls_task *task;
} task_order;

static int task_new_protected(lua_State *L)
{
    task_order *order = lua_touserdata(L, 1);
    order->task = task_new(L, order->state);
    return 0;
}

ls_task *ls_task_take_new(ls_state *state, ls_thread_ctx *ctx)
{
    task_order order = {state, NULL};
    if (ls_state_protected(state, ctx, task_new_protected, &order) != LUA_OK || order.task == NULL) return NULL;
    ls_list_push(&state->tasks_live, &order.task->node);
    return order.task;
}

ls_task *ls_task_take_outside(ls_state *state, ls_thread_ctx *ctx)
{
    if (state->tasks_free_count == 0) return ls_task_take_new(state, ctx);
    ls_task *task = task_reuse(state);
    ls_list_push(&state->tasks_live, &task->node);
    return task;
}

void ls_task_count(ls_task *task)
{
    task->counted = true;
    atomic_fetch_add_explicit(&task->state->busy, 1, memory_order_relaxed);
}

ls_task *ls_task_begin(ls_state *state, ls_thread_ctx *ctx, enum ls_scope scope, ls_task_ended_fn *ended, void *owner,
                       const char *what)
{
    ls_task *task = ls_task_take_outside(state, ctx);
    if (task == NULL) {
        ls_log(LS_LOG_ERROR, "%s: not enough memory", what);
        return NULL;
    }
    task->ended = ended;
    task->owner = owner;
    ls_task_enter(task, scope);
    ls_task_count(task);
    return task;
}

int ls_task_no_results(lua_State *L, int status, lua_KContext context)
{
    return 0;
}

/* The stack is the message handler; then the results, or the error. */
static int main_returned(lua_State *L, int status, lua_KContext context)
{
    return status == LUA_OK || status == LUA_YIELD ? lua_gettop(L) - 1 : lua_error(L);
}

/* The bottom of the stack of a task: calls its function, protected, so that after an error the __close functions of
 * its variables run where they can wait. lua_resetthread() could not do that. */
static int task_main(lua_State *L) /* (function, its arguments...) */
{
    lua_pushcfunction(L, ls_task_keep_error);
    lua_insert(L, 1);
    return main_returned(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 1, 0, main_returned), 0);
}

/* Close the variables of a task without a protected call, which has failed: its __close functions cannot wait. */
static int task_close(lua_State *L)
{
    ls_task *task = lua_touserdata(L, 1);
    lua_State *co = task->co;
    task->blocked++;
    lua_settop(L, 0);
    ls_task_copy_error(L, co);
    ls_cpu_watch_inner(task->state->cpu, co);
    if (lua_resetthread(co) == LUA_OK) return 0;
    lua_xmove(co, L, 1);
    if (!lua_rawequal(L, 1, 2)) ls_log(LS_LOG_ERROR, "while a variable was closed: %s", ls_error_describe(L, 2));
    return 0;
}

static void task_free(ls_task *task)
{
    if (task->state->failed.task == task) task->state->failed.task = NULL; /* another one may get its address */
    luaL_unref(task->state->L, LUA_REGISTRYINDEX, task->ref);
    free(task);
}

static void end_add(ls_task_end **ends, ls_task_end *end)
{
    end->next = *ends;
    end->at = ends;
    if (end->next != NULL) end->next->at = &end->next;
    *ends = end;
}

void ls_task_end_add(ls_task *task, ls_task_end *end)
{
    end_add(&task->ends, end);
}

void ls_task_handler_end_add(ls_task *task, ls_task_end *end)
{
    const bool alone = task->scope == LS_SCOPE_REQUEST || task->scope == LS_SCOPE_CONNECTION;
    if (alone || task->ends_of != NULL) end_add(alone ? &task->ends : task->ends_of, end);
}

void ls_task_end_remove(ls_task_end *end)
{
    if (end->at == NULL) return;
    *end->at = end->next;
    if (end->next != NULL) end->next->at = end->at;
    end->at = NULL;
}

void ls_task_ends_run(ls_task_end **ends, const ls_task_end *until)
{
    while (*ends != until) {
        ls_task_end *end = *ends;
        ls_task_end_remove(end);
        end->run(end);
    }
}

void ls_task_release(ls_thread_ctx *ctx, ls_task *task, bool well)
{
    ls_state *state = task->state;
    assert(!task->waiting && !task->queued);
    ls_list_remove(&task->node);
    if (task->counted) {
        atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
        ls_state_work_ended(state);
    }
    ls_task_enter(task, LS_SCOPE_NONE);
    task->wait = LS_WAIT_NONE;
    task->client_is = LS_CLIENT_HERE;
    task->counted = task->protects = task->starts = false;
    task->time_ms_max = 0;
    task->message++;
    task->due_ns = 0;
    task->times = NULL;
    task->serial = 0;
    task->client = NULL;
    task->ends_of = NULL;
    if (task->cpu_exceeded) state->ended_at[0] = '\0';
    if (task->ends != NULL) ls_task_ends_run(&task->ends, NULL);
    if (task->cpu_exceeded &&
        task->catches > 0) { /* no call has caught it: drop the traceback, which needs no memory */
        lua_pushnil(state->L);
        lua_rawsetp(state->L, LUA_REGISTRYINDEX, state->ended_at);
    }
    task->catches = 0;
    ls_task_drop_error(task);
    if (well && !task->cpu_exceeded && state->tasks_free_count < LS_TASKS_FREE_MAX) {
        lua_settop(task->co, 0);
        task->bare = false;
        ls_list_push(&state->tasks_free, &task->node);
        state->tasks_free_count++;
    } else {
        if (task->bare && !well && !task->cpu_exceeded) (void)ls_state_protected(state, ctx, task_close, task);
        task_free(task);
    }
    if (!state->refused) return;
    /* Free what the task has left. Lua would collect it only when it makes many small objects: a luaL_Buffer, such as
     * that of string.rep, raises without a collection. */
    ls_state_collect(ctx, state);
    state->refused = false;
    state->refused_at[0] = '\0';
}

void ls_task_catch(lua_State *L, ls_task *task, const ls_task_end *until)
{
    ls_cpu_watch *cpu = task->state->cpu;
    const uint64_t max_ns = atomic_load(&ls_state_runtime(task->state)->cpu_ns_max),
                   left_ns = LS_TASK_CAUGHT_MS * UINT64_C(1000000);
    const ls_task_end *end = task->ends;
    /* Another run: a signal for the one before has no effect. */
    ls_cpu_watch_begin(cpu, L, max_ns > left_ns ? max_ns - left_ns : 0);
    ls_cpu_watch_mark(cpu);
    atomic_store_explicit(&cpu->exceeded, 0, memory_order_relaxed);
    lua_sethook(L, NULL, 0, 0);
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, task->state->ended_at);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, task->state->ended_at);
    while (end != until && end != NULL) end = end->next;
    if (end == until)
        ls_task_ends_run(&task->ends, until); /* else the code before the call has ended what it held itself */
}

void ls_task_continue(ls_task *task)
{
    task->cpu_exceeded = false;
    task->ending = LS_END_NONE;
    task->state->ended_at[0] = '\0';
    ls_task_limit(task, LS_TASK_CAUGHT_MS);
}

/* The processor time that still counts when the task continues after a short sleep: the time for which it slept is
 * given back. */
static uint64_t cpu_ns_left_of(const ls_task *task)
{
    const uint64_t slept_ns = ls_clock_ns() - task->sleep_ns;
    return task->cpu_ns > slept_ns ? task->cpu_ns - slept_ns : 0;
}

void ls_task_run(ls_thread_ctx *ctx, ls_task *task, int nargs)
{
    ls_state *state = task->state;
    lua_State *co = task->co;
    ls_task *const outer = state->current; /* not NULL only while the site loads: app:inject in an injected request */
    ls_thread_ctx *const outer_ctx = state->ctx;
    ls_cpu_watch *const outer_cpu = state->cpu;
    ls_cpu_watch *cpu = ls_state_cpu_watch(state, ctx);
    lua_State *const outer_running = atomic_load_explicit(&cpu->running, memory_order_relaxed);
    const uint64_t outer_run = atomic_load_explicit(&cpu->run, memory_order_relaxed);
    const bool measured = task->yield_sleep;
    const uint64_t before_ns = measured ? cpu_ns_left_of(task) : 0;
    int count = 0;

    assert(!task->waiting);
    task->yield_sleep = false;
    state->ctx = ctx;
    state->cpu = cpu;
    state->current = task;
    *ls_state_extra(co) &= ~(uintptr_t)LS_EXTRA_WAITS;
    ls_cpu_watch_begin(cpu, co, before_ns);
    if (task->cpu_exceeded) {
        atomic_store_explicit(&cpu->exceeded, 1, memory_order_relaxed);
        lua_sethook(co, ls_state_hook, LUA_MASKCOUNT, 1);
    }
    if (measured) ls_cpu_watch_mark(cpu);
    if (!task->protects && !task->bare && lua_status(co) == LUA_OK) {
        lua_pushcfunction(co, task_main);
        lua_insert(co, -nargs - 2);
        nargs++;
    }
    int status = lua_resume(co, NULL, nargs, &count);
    if (ls_cpu_watch_exceeded(cpu)) task->cpu_exceeded = true;
    if (task->cpu_exceeded && (status == LUA_YIELD ? task->killed : status != LUA_OK)) {
        /* A task that was suspended for ever looks as if it had raised: the message is on top of a dead coroutine. */
        (void)lua_checkstack(co, 1);
        lua_rawgeti(co, LUA_REGISTRYINDEX, state->exceeded_text_ref);
        status = LUA_ERRRUN;
    }
    uint64_t used_ns = ls_cpu_watch_end(cpu);
    if (measured) {
        const uint64_t measured_ns = atomic_load(&cpu->before_ns) + ls_cpu_watch_since_mark(cpu);
        if (used_ns < measured_ns) used_ns = measured_ns;
        if (used_ns > atomic_load(&ls_state_runtime(state)->cpu_ns_max)) task->cpu_exceeded = true;
    }
    task->cpu_ns = used_ns;
    if (state->flushes != NULL) ls_state_flush(ctx, state, status == LUA_YIELD);
    state->current = outer;
    if (outer != NULL || state->loading) {
        state->ctx = outer_ctx;
        state->cpu = outer_cpu;
        atomic_store_explicit(&cpu->running, outer_running, memory_order_relaxed);
        atomic_store_explicit(&cpu->run, outer_run, memory_order_relaxed);
    }
    if (status == LUA_YIELD) {
        /* A flush may have woken it already. coroutine.yield raises in the task's own coroutine. */
        assert(task->waiting || task->queued);
        return;
    }
    task->ended(ctx, task, status, count);
}

void ls_task_post(ls_thread_ctx *ctx, ls_task *task, int nargs)
{
    assert(!task->queued);
    task->nargs = nargs;
    task->queued = true;
    ls_actor_post(&task->state->actor, ctx, &task->op);
}

void ls_task_may_wait(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    if (state->loading) {
        state->load_waited = true;
        luaL_error(L, "cannot wait while the site loads; call it in a handler, or in a function of ls.init or "
                      "ls.on(\"start\")");
    }
    if (state->current == NULL) {
        luaL_error(L, "cannot wait here: no task is running");
        return;
    }
    ls_cpu_poll(L);
    if (state->current->blocked > 0 || !lua_isyieldable(L))
        luaL_error(L,
                   "cannot wait here: the call is inside a C function (such as table.sort, string.gsub or require), a "
                   "hook or a finalizer");
}

bool ls_task_can_wait(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    return !state->loading && state->current != NULL && !ls_cpu_watch_exceeded(state->cpu) &&
           state->current->blocked == 0 && lua_isyieldable(L);
}

static void alarm_free(ls_alarm *alarm)
{
    alarm->task = NULL;
    alarm->next = alarm->state->alarms_free;
    alarm->state->alarms_free = alarm;
    alarm->state->alarms_used--;
}

/* The task does not wait for its event any more. */
static void drop_wait(const ls_thread_ctx *ctx, ls_task *task)
{
    ls_list_remove(&task->wait_node);
    if (task->alarm != NULL) {
        ls_alarm *alarm = task->alarm;
        task->alarm = NULL;
        alarm->task = NULL;
        if (ls_timer_cancel(ctx->port, &alarm->timer))
            alarm_free(alarm); /* else its packet is queued: alarm_done frees it */
    }
}

/* The reason for which a task ends when it waits so, also before its state has taken the step. */
static enum ls_end_why end_of(const ls_task *task, enum ls_wait_for wait)
{
    return ls_scope_end_of(ls_generation_retired(task->state->generation), (enum ls_scope)task->scope, wait);
}

int ls_task_yield(lua_State *L, enum ls_wait_for wait, lua_KContext context, lua_KFunction k)
{
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    const enum ls_end_why why = wait == LS_WAIT_IDLE ? end_of(task, wait) : LS_END_NONE;
    if (why != LS_END_NONE) ls_task_cancel(task, why);
    if (task->ending != LS_END_NONE) { /* it has resumed only to end */
        drop_wait(state->ctx, task);
        ls_state_end_run(L);
    }
    task->waiting = true;
    task->wait = (uint8_t)wait;
    if (task->times != NULL) task->times->since_ns = ls_clock_ns();
    if (!state->started && wait <= LS_WAIT_MESSAGE) /* ls.init may wait for them */
        ls_tasks_begin_held(state->ctx, state, LS_END_NONE);
    if (task->time_ms_max != 0 && task->due_ns == 0) ls_task_watch(task);
    task->wake_result = 0;
    *ls_state_extra(L) |= LS_EXTRA_WAITS;
    return lua_yieldk(L, 0, context, k);
}

void ls_task_cancel(ls_task *task, enum ls_end_why why)
{
    task->ending = (uint8_t)why;
    task->cpu_exceeded = true;
}

void ls_task_end_before(lua_State *L, enum ls_wait_for wait)
{
    ls_task *task = ls_state_of(L)->current;
    const enum ls_end_why why = task != NULL ? end_of(task, wait) : LS_END_NONE;
    if (why == LS_END_NONE || !ls_task_can_wait(L)) return;
    ls_task_cancel(task, why);
    ls_state_end_run(L);
}

void ls_task_wake(ls_thread_ctx *ctx, ls_task *task, int result)
{
    ls_state *state = task->state;
    if (!task->waiting) return;
    if (task->times != NULL) ls_task_waited(task);
    const enum ls_end_why why = end_of(task, (enum ls_wait_for)task->wait);
    if (why != LS_END_NONE && task->ending == LS_END_NONE) ls_task_cancel(task, why);
    task->waiting = false;
    task->wake_result = (int16_t)result;
    drop_wait(ctx, task);
    if (state->current == NULL && state->protected_calls == 0 && ctx->inside == &state->actor &&
        state->wakes_nested < WAKES_NESTED_MAX) {
        state->wakes_nested++;
        ls_task_run(ctx, task, 0);
        state->wakes_nested--;
    } else {
        ls_task_post(ctx, task, 0);
    }
}

void ls_task_wake_all(ls_thread_ctx *ctx, ls_node *waiters, int result)
{
    ls_node woken; /* a separate list: a woken task may run at once and wait for the same event again */
    ls_list_move(&woken, waiters);
    while (!ls_list_empty(&woken)) ls_task_wake(ctx, LS_CONTAINER(woken.next, ls_task, wait_node), result);
}

static void work_done(ls_thread_ctx *ctx, ls_op *op)
{
    const ls_task_work *w = LS_CONTAINER(op, ls_task_work, work.op);
    w->task->state->works--;
    ls_task_wake(ctx, w->task, LS_OK);
}

int ls_task_await(lua_State *L, ls_task_work *w, lua_KContext context, lua_KFunction k)
{
    ls_state *state = ls_state_of(L);
    int64_t result;
    if (state->loading) {
        result = w->work.run(&w->work);
    } else {
        ls_task_may_wait(L);
        w->task = state->current;
        w->work.op.done = work_done;
        w->work.op.actor = &w->task->state->actor;
        if ((result = ls_port_work(state->port, &w->work)) == LS_PENDING) {
            state->works++;
            return ls_task_yield(L, LS_WAIT_HELD, context, k);
        }
    }
    atomic_store_explicit(&w->work.op.result, result, memory_order_relaxed);
    return k(L, LUA_OK, context);
}

static void alarm_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_alarm *alarm = LS_CONTAINER(op, ls_alarm, timer.op);
    ls_task *task = alarm->task;
    alarm_free(alarm);
    if (task == NULL) return;
    task->alarm = NULL;
    ls_task_wake(ctx, task, LS_ETIMEDOUT);
}

uint64_t ls_task_deadline(double seconds)
{
    if (seconds > LS_WAIT_MAX_S) seconds = LS_WAIT_MAX_S;
    return ls_clock_ns() + (uint64_t)(seconds * 1e9);
}

bool ls_task_try_alarm(ls_task *task, double seconds)
{
    ls_state *state = task->state;
    ls_alarm *alarm = state->alarms_free;
    assert(task->alarm == NULL);
    if (alarm != NULL) {
        state->alarms_free = alarm->next;
    } else {
        alarm = calloc(1, sizeof *alarm);
        if (alarm == NULL) return false;
        alarm->state = state;
        alarm->all_next = state->alarms;
        state->alarms = alarm;
        alarm->timer.op.actor = &state->actor;
        alarm->timer.op.done = alarm_done;
    }
    alarm->task = task;
    state->alarms_used++;
    if (ls_timer_set(state->ctx->port, &alarm->timer, ls_task_deadline(seconds)) < 0) {
        alarm_free(alarm);
        return false;
    }
    task->alarm = alarm;
    return true;
}

bool ls_tasks_wait(const ls_state *state)
{
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node)
        if (task != state->current && !task->waiting && !task->killed) return false;
    return state->works == 0;
}

uint64_t ls_task_alarms_next(const ls_state *state)
{
    uint64_t next = UINT64_MAX;
    for (const ls_alarm *alarm = state->alarms; alarm != NULL; alarm = alarm->all_next)
        if (alarm->task != NULL && !alarm->task->of_test && alarm->timer.at_ns < next) next = alarm->timer.at_ns;
    return next;
}

void ls_task_alarms_move(ls_state *state, uint64_t ns)
{
    for (ls_alarm *alarm = state->alarms; alarm != NULL; alarm = alarm->all_next)
        if (alarm->task != NULL && !alarm->task->of_test)
            (void)ls_timer_move(state->ctx->port, &alarm->timer, alarm->timer.at_ns - ns); /* or it has expired */
}

void ls_task_alarm(lua_State *L, ls_task *task, double seconds)
{
    if (!ls_task_try_alarm(task, seconds)) luaL_error(L, "not enough memory");
}

bool ls_tasks_unfinished(const ls_state *state, bool ended)
{
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) {
        const enum ls_scope scope = ls_state_scope(state, (enum ls_scope)task->scope);
        if ((task->counted || task->client != NULL) &&
            (!ended || ls_scope_ends(LS_END_UNUSED, scope, LS_WAIT_NONE) != LS_ENDS_NEVER))
            return true;
    }
    return false;
}

bool ls_tasks_spare(const ls_state *state)
{
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node)
        if (!task->waiting || ls_scope_end_of(1u << LS_END_SPARE, (enum ls_scope)task->scope,
                                              (enum ls_wait_for)task->wait) == LS_END_NONE)
            return false;
    return true;
}

void ls_tasks_cancel(ls_state *state, enum ls_end_why why)
{
    const bool forced = why == LS_END_TIME || why == LS_END_CLOSED;
    LS_LIST_EACH (ls_task, task, &state->tasks_live, node) {
        const enum ls_scope scope = ls_state_scope(state, (enum ls_scope)task->scope);
        const enum ls_wait_for wait = task->waiting ? (enum ls_wait_for)task->wait : LS_WAIT_NONE;
        if (ls_task_is_canceled(task) || ls_scope_ends(why, scope, wait) == LS_ENDS_NEVER) continue;
        if (forced && (task->client != NULL || task->counted))
            atomic_fetch_add_explicit(&state->generation->unfinished[task->scope], 1, memory_order_relaxed);
        ls_task_cancel(task, why);
    }
}

/* A task that waits although its time is over; NULL: none. *next receives the time of the next one; 0: none. The
 * oldest tasks come first. */
static ls_task *overdue_task(const ls_state *state, uint64_t now_ns, uint64_t *next)
{
    *next = 0;
    LS_LIST_EACH (ls_task, task, &state->tasks_live, node) {
        if (task->due_ns == 0 || task->ending != LS_END_NONE) continue;
        if (task->due_ns <= now_ns && task->waiting &&
            ls_scope_ends(LS_END_TIMEOUT, (enum ls_scope)task->scope, (enum ls_wait_for)task->wait) == LS_ENDS_NOW)
            return task;
        if (*next == 0 || task->due_ns < *next) *next = task->due_ns;
    }
    return NULL;
}

static void watch_done(ls_thread_ctx *ctx, ls_op *op);

/* Look at the tasks at this time, or earlier. */
static void watch_at(ls_state *state, uint64_t at_ns)
{
    if (!state->watching) {
        state->watch.op.actor = &state->actor;
        state->watch.op.done = watch_done;
        state->watching =
            ls_timer_set(state->port, &state->watch, at_ns) == LS_OK; /* else the next wait tries again */
        if (state->watching) state->alarms_used++;
    } else if (at_ns < state->watch.at_ns) {
        (void)ls_timer_move(state->port, &state->watch, at_ns); /* else its packet is on its way */
    }
}

static void watch_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, watch.op);
    const uint64_t now_ns = ls_clock_ns();
    uint64_t next;
    state->watching = false;
    state->alarms_used--;
    for (ls_task *task; (task = overdue_task(state, now_ns, &next)) != NULL;) {
        ls_task_cancel(task, LS_END_TIMEOUT);
        ls_task_line(task->co, state->ended_at, sizeof state->ended_at);
        ls_task_wake(ctx, task, LS_ECANCELED);
    }
    if (next == 0) return;
    if (next < now_ns + WATCH_PAUSE_NS) next = now_ns + WATCH_PAUSE_NS;
    watch_at(state, next); /* a task that began when another one ended may have set it to a later time */
}

void ls_task_watch(ls_task *task)
{
    task->due_ns = ls_clock_ns() + task->time_ms_max * UINT64_C(1000000);
    if (task->state->port != NULL) watch_at(task->state, task->due_ns);
}

/* A task that waits and may be woken; NULL: none. */
static ls_task *waiting_task(const ls_state *state)
{
    LS_LIST_EACH (ls_task, task, &state->tasks_live, node)
        if (task->waiting && task->ending != LS_END_NONE && task->wait != LS_WAIT_HELD) return task;
    return NULL;
}

/* Whether a task that continues may only wait for some time. */
static bool has_limit(const ls_state *state)
{
    LS_LIST_EACH (ls_task, task, &state->tasks_live, node)
        if (task->due_ns != 0 && task->ending == LS_END_NONE) return true;
    return false;
}

void ls_tasks_end(ls_thread_ctx *ctx, ls_state *state)
{
    for (ls_task *task; (task = waiting_task(state)) != NULL;) ls_task_wake(ctx, task, LS_ECANCELED);
    if (state->watching && !has_limit(state) && ls_timer_cancel(ctx->port, &state->watch)) {
        state->watching = false;
        state->alarms_used--;
    }
}

void ls_tasks_begin_held(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    LS_LIST_EACH_DROP (ls_task, task, &state->tasks_held, wait_node) {
        ls_list_remove(&task->wait_node);
        if (why != LS_END_NONE) ls_task_cancel(task, why);
        ls_task_post(ctx, task, task->nargs);
    }
}

static void tasks_free(ls_node *head)
{
    LS_LIST_EACH_DROP (ls_task, task, head, node) free(task);
    ls_node_init(head);
}

void ls_tasks_run_ends(ls_state *state)
{
    LS_LIST_EACH (ls_task, task, &state->tasks_live, node) ls_task_ends_run(&task->ends, NULL);
}

void ls_task_free_all(ls_state *state)
{
    tasks_free(&state->tasks_free);
    tasks_free(&state->tasks_live);
    state->tasks_free_count = 0;
    while (state->alarms != NULL) {
        ls_alarm *alarm = state->alarms;
        state->alarms = alarm->all_next;
        free(alarm);
    }
    state->alarms_free = NULL;
}
