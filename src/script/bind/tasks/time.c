/* time.c - ls.sleep, ls.after, ls.every, and the clock of `luaserve test` (lua/luaserve/test/clock.lua).
 *
 * A timer that the top of the file makes is a definition (core/generation.h): it runs in the first state only, for the
 * whole server. The handles that the other states get refer to the definition: they can cancel it. One that a function
 * of "start" makes runs there, too, but the other states have only a handle without a timer.
 *
 * A timer has two owners, each of which keeps it alive: the state while the timer is armed, and the handle that the
 * site received. Its packet is pinned to the state. A tick of ls.every is skipped while the previous tick still
 * runs. Its memory is that of Lua, which max_memory counts. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/option.h"
#include "script/core/generation.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

typedef struct script_timer {
    ls_timer timer;
    uint64_t due_ns; /* the time of the next tick; 0: not yet armed */
    ls_node node;    /* in the list of the state, until the timer is freed */
    ls_state *state;
    uint64_t period_ns;  /* 0: ticks once */
    double delay;        /* seconds to the first tick; counted from the start of the server when made while loading */
    int ref;             /* of a table with the function and its arguments */
    bool stopped;        /* no more ticks */
    bool packet_coming;  /* stopped too late: its packet is still under way */
    bool running;        /* a tick runs */
    bool omitted;        /* the log says that ticks were omitted */
    ls_task *task;       /* of the tick that runs */
    uint64_t began_ns;   /* the time at which it began */
    bool of_request;     /* its handler is that of a request */
    bool handle;         /* the site may still hold it */
    uint8_t scope;       /* enum ls_scope: that of its ticks */
    ls_task_end handler; /* of one that repeats: that has begun it */
    struct definition *definition; /* NULL: of one state */
} script_timer;

typedef struct definition {
    _Atomic bool canceled; /* by any state; the first one notices it at the next tick */
} definition;

enum { DEFINITIONS_MAX = 1024, OMITTED_NS = 1000000000 };

static const ls_object_type timer_type;

typedef struct timers { /* of a state */
    ls_node all;        /* the start arms those that were made while loading */
    unsigned count;     /* those that are not stopped */
    bool request_warned;
    unsigned dropped; /* calls of ls.after that a task waited for: the log has not told of them */
} timers;

static timers *timers_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_timer);
}

/* One more, or one less, of the state and of the server. */
static void count_timer(const ls_state *state, int change)
{
    timers_of(state)->count += (unsigned)change;
    atomic_fetch_add((_Atomic int *)ls_runtime_own(ls_state_runtime(state), LS_SLOT_timer), change);
}

typedef struct timer_handle {
    const void *tag;
    script_timer *timer;    /* NULL after __gc, and if another state runs the timer */
    definition *definition; /* NULL: of one state */
} timer_handle;

/* ---- sleep ------------------------------------------------------------------------------------------------- */

/* ls.sleep(seconds)
 * Suspends the task. 0 lets other tasks run. */
static int core_sleep(lua_State *L)
{
    const double seconds = ls_check_seconds(L, 1);
    ls_check_arguments(L, 1, "ls.sleep(seconds)");
    ls_task_may_wait(L);
    ls_task *task = ls_state_of(L)->current;
    ls_task_alarm(L, task, seconds);
    task->yield_sleep = seconds < LS_YIELD_SLEEP_S;
    if (task->yield_sleep) task->sleep_ns = ls_clock_ns();
    return ls_task_yield(L, LS_WAIT_IDLE, 0, ls_task_no_results);
}

/* ---- timers ------------------------------------------------------------------------------------------------ */

static script_timer *timer_alloc(lua_State *L)
{
    void *user;
    const lua_Alloc alloc = lua_getallocf(L, &user);
    script_timer *t = alloc(user, NULL, 0, sizeof *t);
    if (t == NULL) {
        (void)lua_gc(L, LUA_GCCOLLECT);
        t = alloc(user, NULL, 0, sizeof *t);
    }
    if (t != NULL) *t = (script_timer){.state = ls_state_of(L)};
    return t;
}

static void timer_free_if_unused(script_timer *t)
{
    if (!t->stopped || t->packet_coming || t->running || t->handle) return;
    void *user;
    const lua_Alloc alloc = lua_getallocf(t->state->L, &user);
    ls_list_remove(&t->node);
    (void)alloc(user, t, sizeof *t, 0);
}

static bool is_canceled(const script_timer *t) /* by another state */
{
    return t->definition != NULL && atomic_load(&t->definition->canceled);
}

static int timer_arm(ls_port *port, script_timer *t, uint64_t at_ns)
{
    const int err = ls_timer_set(port, &t->timer, at_ns);
    if (err >= 0) t->due_ns = at_ns;
    return err;
}

/* No further tick; the function becomes garbage. */
static void timer_stop(script_timer *t)
{
    ls_state *state = t->state;
    if (t->stopped) return;
    t->stopped = true;
    ls_task_end_remove(&t->handler);
    count_timer(state, -1);
    state->holds--;
    luaL_unref(state->L, LUA_REGISTRYINDEX, t->ref);
    t->ref = LUA_NOREF;
}

static int timer_returned(lua_State *L, int status, lua_KContext before)
{
    ls_task_log_failure(L, (int)before + 1, "a function of ls.after or ls.every");
    return 0;
}

static int timer_main(lua_State *L) /* stack: the table */
{
    const int count = ls_unpack(L, "too many arguments"), before = lua_gettop(L) - count;
    lua_callk(L, count - 1, LUA_MULTRET, before, timer_returned);
    return timer_returned(L, LUA_OK, before);
}

static void timer_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    script_timer *t = task->owner;
    if (status != LUA_OK) ls_task_log_error(ctx, task, "in a timer");
    ls_task_release(ctx, task, status == LUA_OK);
    t->running = false;
    t->task = NULL;
    timer_free_if_unused(t);
}

/* The tick before still runs. A wait of a second and more may mean that all of the function's work stands still, as
 * when it sends to a client that does not read, or calls another server. Logged once for each timer. */
static void timer_omit(script_timer *t)
{
    char line[80];
    const ls_task *task = t->task;
    const uint64_t ns = ls_clock_ns() - t->began_ns;
    if (t->omitted || task == NULL || !task->waiting || ns < OMITTED_NS) return;
    t->omitted = true;
    ls_task_line(task->co, line, sizeof line);
    ls_log(
        LS_LOG_WARN,
        "ls.every: calls are omitted, because the one before has waited for %.1f s, now at %s (logged once for this "
        "timer). Give this call a shorter timeout, or let ls.spawn make it; before a sock:send, test sock.queued",
        (double)ns / 1e9, line);
}

static void timer_tick(ls_thread_ctx *ctx, ls_op *op)
{
    script_timer *t = LS_CONTAINER(op, script_timer, timer.op);
    ls_state *state = t->state;
    t->packet_coming = false;
    if (t->stopped) {
        timer_free_if_unused(t);
        ls_state_work_ended(state);
        return;
    }
    if (t->running) {
        timer_omit(t);
    } else {
        ls_task *task = ls_task_begin(state, ctx, (enum ls_scope)t->scope, timer_ended, t, "in a timer");
        if (task != NULL) {
            t->running = true;
            t->task = task;
            t->began_ns = ls_clock_ns();
            lua_pushcfunction(task->co, timer_main);
            lua_rawgeti(task->co, LUA_REGISTRYINDEX, t->ref);
            if (t->period_ns == 0) timer_stop(t);
            ls_task_run(ctx, task, 1); /* may free a timer that ticks once */
            return;
        }
    }
    if (t->period_ns == 0) {
        timer_stop(t);
        timer_free_if_unused(t);
        ls_state_work_ended(state);
    }
}

/* Arms the next tick before the function runs, at a multiple of the period: the ticks do not drift. */
static void timer_due(ls_thread_ctx *ctx, ls_op *op)
{
    script_timer *t = LS_CONTAINER(op, script_timer, timer.op);
    if (is_canceled(t)) timer_stop(t);
    if (!t->stopped && t->period_ns > 0) {
        const uint64_t now = ls_clock_ns();
        uint64_t at = t->due_ns + t->period_ns;
        if (at <= now) at = now + t->period_ns - (now - t->due_ns) % t->period_ns;
        if (timer_arm(ctx->port, t, at) < 0) {
            ls_log(LS_LOG_ERROR, "not enough memory for the next tick of a timer: the timer stops");
            timer_stop(t);
        }
    }
    timer_tick(ctx, op);
}

static void timer_cancel(ls_port *port, script_timer *t)
{
    if (t->stopped) return;
    if (port != NULL && t->due_ns != 0 && !ls_timer_cancel(port, &t->timer)) t->packet_coming = true;
    timer_stop(t);
}

static void handler_ended(ls_task_end *ending)
{
    script_timer *t = LS_CONTAINER(ending, script_timer, handler);
    timers *own = timers_of(t->state);
    if (t->of_request && !t->stopped && t->began_ns == 0 && !own->request_warned) {
        lua_State *L = t->state->L;
        lua_Debug fn;
        own->request_warned = true;
        (void)lua_rawgeti(L, LUA_REGISTRYINDEX, t->ref);
        (void)lua_rawgeti(L, -1, 1);
        (void)lua_getinfo(L, ">S", &fn);
        lua_pop(L, 1);
        ls_log(LS_LOG_WARN,
               "ls.every: the timer with the function at %s:%d has ended with its request, before its first call; "
               "ls.spawn(ls.every, seconds, fn) makes one that stays, and ls.every at the top of the site one for all",
               fn.short_src, fn.linedefined);
    }
    timer_cancel(t->state->port, t);
    timer_free_if_unused(t);
}

/* timer:cancel()
 * Stops the timer. */
static int handle_cancel(lua_State *L)
{
    const timer_handle *handle = ls_udata_check(L, 1, &timer_type, sizeof *handle, "timer");
    if (handle->definition != NULL) atomic_store(&handle->definition->canceled, true);
    if (handle->timer != NULL) timer_cancel(ls_state_of(L)->port, handle->timer);
    if (handle->timer == NULL && handle->definition == NULL) ls_refuse_once(L, "timer:cancel");
    return 0;
}

static int handle_gc(lua_State *L)
{
    timer_handle *handle = lua_touserdata(L, 1);
    script_timer *t = handle->timer;
    handle->timer = NULL;
    if (t == NULL) return 0;
    t->handle = false;
    timer_free_if_unused(t);
    return 0;
}

typedef struct timer_options {
    double seconds;
    bool each_state;
} timer_options;

/* Replace the options at index 1 by the seconds. Returns each_state.
 * options is a TimerOptions: options of ls.after and ls.every.
 * options.seconds: number - in place of the number
 * options.each_state: boolean - at the top of the file and in "start": in each Lua state; default false */
static bool take_options(lua_State *L, const char *call)
{
    static const ls_option options[] = {LS_OPTION(timer_options, seconds), LS_OPTION(timer_options, each_state),
                                        LS_OPTIONS_END};
    timer_options given = {0};
    if (lua_type(L, 1) != LUA_TTABLE) return false;
    ls_options_take(L, 1, call, options, &given);
    lua_getfield(L, 1, "seconds"); /* or nil */
    lua_replace(L, 1);
    return given.each_state;
}

/* Raises if options are the last argument, as in many other functions: the function of the site would receive them. */
static void refuse_last_options(lua_State *L, const char *call)
{
    lua_pushliteral(L, "each_state");
    if (!lua_istable(L, -2) || lua_rawget(L, -2) == LUA_TNIL) return;
    const char *given = luaL_tolstring(L, -1, NULL), *seconds = luaL_tolstring(L, 1, NULL);
    luaL_error(L, "%s: options are the first argument: %s({ seconds = %s, each_state = %s }, fn)", call, call, seconds,
               given);
}

static void report_dropped(const ls_state *state)
{
    const unsigned count = timers_of(state)->dropped;
    timers_of(state)->dropped = 0;
    if (count > 0)
        ls_log(LS_LOG_WARN,
               "%u call%s of ls.after did not run, because the site was replaced or stopped before; a function of "
               "ls.spawn runs to its end",
               count, count == 1 ? "" : "s");
}

/* Whether what is lost with it is work: its one tick, which the next site does not make again. */
static bool is_awaited(const script_timer *t)
{
    return !t->stopped && t->period_ns == 0 && t->scope != LS_SCOPE_TIMER;
}

static int timer_new(lua_State *L, bool repeats, const char *call)
{
    ls_state *state = ls_state_of(L);
    const bool each_state = take_options(L, call), for_server = !each_state && ls_is_once(state);
    const double delay = ls_check_seconds(L, 1);
    const int count = lua_gettop(L) - 1;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    if (count > 1) refuse_last_options(L, call);
    lua_settop(L, count + 1);
    luaL_argcheck(L, !repeats || delay >= 0.001, 1, "interval must be at least 0.001 s");
    luaL_argcheck(L, delay <= 1e9, 1, "time must be at most 1e9 s");
    if (!state->loading && state->port == NULL) return luaL_error(L, "the server has stopped");
    const uint32_t set_max = state->generation->settings.timers_max,
                   timers_max = set_max > 0 ? set_max : LS_TIMERS_MAX;
    if (timers_of(state)->count >= timers_max)
        return luaL_error(L, "%s: too many timers: this Lua state has %d (max_timers = %d)", call,
                          (int)timers_of(state)->count, (int)timers_max);
    ls_pack(L, count);
    if (each_state) ls_set_boolean(L, "each_state", true); /* for dev/variables.lua */

    timer_handle *handle = ls_object_push(L, sizeof *handle, 0, &timer_type);
    unsigned number;
    if (for_server && state->loading)
        handle->definition = ls_define(L, LS_SLOT_timer, sizeof *handle->definition, &number);
    if (for_server && state->index > 0) return 1;
    lua_pushvalue(L, 2);
    const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    script_timer *t = timer_alloc(L);
    if (t == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        return luaL_error(L, "not enough memory");
    }
    t->timer.op.actor = &state->actor;
    t->timer.op.done = timer_due;
    t->period_ns = repeats ? (uint64_t)(delay * 1e9) : 0;
    t->delay = delay;
    t->ref = ref;
    t->handle = true;
    t->definition = handle->definition;
    t->scope = (uint8_t)ls_scope_of_timer(state->current != NULL ? (enum ls_scope)state->current->scope
                                          : state->loading       ? LS_SCOPE_SITE
                                                                 : LS_SCOPE_JOB);
    handle->timer = t;
    t->handler.run = handler_ended;
    t->of_request = state->current != NULL && state->current->scope == LS_SCOPE_REQUEST;
    if (repeats && state->current != NULL) ls_task_handler_end_add(state->current, &t->handler);
    ls_list_push(&timers_of(state)->all, &t->node);
    count_timer(state, 1);
    state->holds++;
    if (ls_state_ends(state, (enum ls_scope)t->scope, LS_WAIT_ONCE)) { /* a repeating one, too, may tick until then */
        timers_of(state)->dropped += is_awaited(t);
        timer_stop(t);
        return 1;
    }
    if (!state->loading && timer_arm(state->port, t, ls_task_deadline(delay)) < 0) {
        timer_stop(t);
        return luaL_error(L, "not enough memory");
    }
    return 1;
}

/* ls.after(seconds: number|TimerOptions, fn: fun(...), ...) -> timer
 * Runs a function later, in a task, with these arguments. At the top of the file and in "start": once for the server. */
static int core_after(lua_State *L)
{
    return timer_new(L, false, "ls.after");
}

/* ls.every(seconds: number|TimerOptions, fn: fun(...), ...) -> timer
 * Runs a function again and again, in a task. At the top of the file and in "start": once for the server. A tick is
 * skipped while the previous one still runs. */
static int core_every(lua_State *L)
{
    return timer_new(L, true, "ls.every");
}

/* ---- the clock of a test ------------------------------------------------------------------------------------- */

/* core.clock_moved() -> seconds by which the tests have moved the clock */
static int core_clock_moved(lua_State *L)
{
    return ls_push_number(L, (double)ls_clock_moved_ns() / 1e9);
}

/* core.clock_real(): the waits of this task, which runs the tests, do not follow their clock. */
static int core_clock_real(lua_State *L)
{
    ls_state_of(L)->current->of_test = true;
    return 0;
}

/* core.clock_idle() -> whether all other tasks wait, none of them for work on another thread but that of a database */
static int core_clock_idle(lua_State *L)
{
    return ls_push_boolean(L, ls_tasks_wait(ls_state_of(L)));
}

/* core.clock_step(target|nil, seconds) -> target, whether a timer is due. Moves the clock to the time `target`,
 * without it by `seconds` from now, or only to the first timer or wait of the site that is due before. */
static int core_clock_step(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_node *all = &timers_of(state)->all;
    const uint64_t now = ls_clock_ns(), time = now + ls_clock_moved_ns();
    const uint64_t target =
        lua_isnil(L, 1) ? time + (uint64_t)(luaL_checknumber(L, 2) * 1e9) : (uint64_t)luaL_checkinteger(L, 1);
    uint64_t ns = target > time ? target - time : 0, next = ls_task_alarms_next(state);
    LS_LIST_EACH (const script_timer, t, all, node)
        if (!t->stopped && t->due_ns != 0 && t->due_ns < next) next = t->due_ns;
    const bool due = next != UINT64_MAX && next <= now + ns;
    if (due) ns = next > now ? next - now : 0;
    LS_LIST_EACH (script_timer, t, all, node)
        if (!t->stopped && t->due_ns != 0 && ls_timer_move(state->port, &t->timer, t->due_ns - ns)) t->due_ns -= ns;
    ls_task_alarms_move(state, ns);
    ls_clock_move(ns);
    lua_pushinteger(L, (lua_Integer)target);
    lua_pushboolean(L, due);
    return 2;
}

static void timer_start(ls_thread_ctx *ctx, ls_state *state)
{
    LS_LIST_EACH (script_timer, t, &timers_of(state)->all, node)
        if (!t->stopped && t->due_ns == 0 && timer_arm(ctx->port, t, ls_task_deadline(t->delay)) < 0)
            ls_log(LS_LOG_ERROR, "not enough memory to start a timer");
}

static void timer_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    LS_LIST_EACH_DROP (script_timer, t, &timers_of(state)->all, node) {
        const enum ls_scope scope = ls_state_scope(state, (enum ls_scope)t->scope);
        const enum ls_wait_for wait = t->period_ns > 0 ? LS_WAIT_REPEAT : LS_WAIT_ONCE;
        if (t->stopped || (ls_scope_ends(why, scope, wait) == LS_ENDS_NEVER && !is_canceled(t))) continue;
        timers_of(state)->dropped += is_awaited(t);
        timer_cancel(ctx->port, t);
        timer_free_if_unused(t);
    }
    report_dropped(state);
}

static void timer_close(ls_thread_ctx *ctx, ls_state *state)
{
    timer_end(ctx, state, LS_END_CLOSED);
}

static bool timer_closed(ls_state *state)
{
    LS_LIST_EACH (const script_timer, t, &timers_of(state)->all, node)
        if (t->packet_coming || t->running) return false;
    return true; /* their handles free them */
}

static void timer_abandon(ls_state *state)
{
    LS_LIST_EACH_DROP (script_timer, t, &timers_of(state)->all, node) {
        timers_of(state)->dropped += is_awaited(t);
        if (!t->stopped) count_timer(state, -1);
        t->stopped = true;
        t->packet_coming = t->running = false; /* no packet or task follows */
        timer_free_if_unused(t);               /* or the handle frees it, when the state closes */
    }
    report_dropped(state);
}

/* timer is a Timer: what ls.after and ls.every return. */
static const luaL_Reg methods[] = {{"timer:cancel()", handle_cancel}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", handle_gc}, {NULL, NULL}};
static const ls_object_type timer_type = {.name = "timer", .methods = methods, .meta = meta};

static const luaL_Reg functions[] = {{"sleep", core_sleep},           {"after", core_after},
                                     {"every", core_every},           {"clock_moved", core_clock_moved},
                                     {"clock_real", core_clock_real}, {"clock_step", core_clock_step},
                                     {"clock_idle", core_clock_idle}, {NULL, NULL}};

static void timer_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    each(to, "timers", atomic_load((_Atomic int *)ls_runtime_own(runtime, LS_SLOT_timer)));
}

static const ls_module_common timers_common = {.bytes = sizeof(_Atomic int), .stats = timer_stats};
const ls_module ls_timer_module = {.name = "timer",
                                   .common = &timers_common,
                                   .bytes = sizeof(timers),
                                   .lists = true,
                                   .functions = functions,
                                   .defines = "timers at the top of the file (each runs once for the server)",
                                   .definitions_max = DEFINITIONS_MAX,
                                   .start = timer_start,
                                   .end = timer_end,
                                   .close = timer_close,
                                   .closed = timer_closed,
                                   .abandon = timer_abandon};
