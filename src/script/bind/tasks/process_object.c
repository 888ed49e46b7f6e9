/* process_object.c - core.child: a program in a process of its own, under ls.process (lua/luaserve/process.lua) and
 * `luaserve test` (lua/luaserve/test/child.lua).
 *
 *     core.child --> runs --- the leader has exited, and is reaped --> child:status() has its code
 *                       \--- child:stop(), or nothing uses it any more: SIGTERM, two seconds later SIGKILL --/
 *
 * A child that is bound ends with its task. When the leader has exited its group is killed; what is in the pipes can
 * still be read. A process that no object uses is freed when it is reaped. One timer for all processes of a state
 * sends SIGKILL; where the system has no descriptor for the exit of a process, it looks for that as well. Thread: the
 * one that holds the state's actor. */
#include "script/bind/tasks/process_object.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/stream/poll.h"
#include "port/child.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"
#include "script/core/wait.h"

enum {
    PROCESSES_MAX = 64, /* at once */
    KILL_MS = 2000,     /* from SIGTERM to SIGKILL */
    LOOK_MS = 20,       /* between two looks at a process without a descriptor for its exit */
    READ_BYTES = 65536, /* at once */
    REAP_MS = 1000      /* the wait for a killed process when no worker runs any more */
};

typedef struct process process;

typedef struct child_object {
    const void *tag;
    process *p; /* NULL: closed */
} child_object;

struct process {
    ls_node node; /* in the list of the state */
    ls_state *state;
    child_object *object; /* NULL: nothing uses it any more */
    ls_task *task;        /* bound: its task; else the one that waits for it, or NULL */
    ls_task_end end;
    bool bound; /* it ends with its task */
    bool waits; /* the task does so in child:wait() */
    bool ready; /* there was an event since the last one */
    ls_child child;
    ls_poll *polls[LS_CHILD_FDS];
    unsigned armed;    /* a bit for each of them */
    const char *input; /* what is left of the user value of the object */
    size_t input_len;
    uint64_t kill_ns; /* when SIGKILL follows SIGTERM; 0: it was not ended; UINT64_MAX: it was killed */
    int failed;       /* LS_OK, or the error of a poll, for which it was ended */
    int *group;       /* its place in the groups; NULL: it is reaped */
};

typedef struct groups { /* of all states */
    ls_mutex mutex;
    int at[PROCESSES_MAX]; /* process groups; 0: a free place; -1: one is being started */
} groups;

typedef struct processes { /* of a state */
    ls_node all;
    ls_state *state;
    ls_timer timer;
    bool armed; /* until its packet is taken */
    bool closing;
} processes;

static const ls_object_type child_type;

static processes *processes_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_process);
}

static void close_stream(process *p, int stream)
{
    if (p->polls[stream] != NULL && p->state->port != NULL) {
        /* At once: the next process may get this descriptor before a packet about the removal would be taken. */
        ls_polls_unregister(ls_state_runtime(p->state)->polls, p->child.fds[stream]);
        ls_poll_close(p->polls[stream]);
    }
    p->polls[stream] = NULL;
    p->armed &= ~(1u << stream);
    ls_child_close(&p->child, stream);
}

static groups *groups_of(const ls_state *state)
{
    return ls_runtime_own(ls_state_runtime(state), LS_SLOT_process);
}

static void set_group(const process *p, int group)
{
    groups *all = groups_of(p->state);
    ls_mutex_lock(&all->mutex);
    *p->group = group;
    ls_mutex_unlock(&all->mutex);
}

/* The number of a group is another one's after the reaping: so ls_processes_kill does not run meanwhile. */
static bool reap(process *p, int ms)
{
    groups *all = groups_of(p->state);
    if (p->child.pid == 0) return true;
    ls_mutex_lock(&all->mutex);
    const bool reaped = ls_child_reap(&p->child, ms);
    if (reaped) *p->group = 0;
    ls_mutex_unlock(&all->mutex);
    if (reaped) p->group = NULL;
    return reaped;
}

void ls_processes_kill(const ls_runtime *runtime)
{
    groups *all = ls_runtime_own(runtime, LS_SLOT_process);
    ls_mutex_lock(&all->mutex);
    for (int n = 0; n < PROCESSES_MAX; n++)
        if (all->at[n] > 0) ls_child_end(&(ls_child){.pid = all->at[n]}, true);
    ls_mutex_unlock(&all->mutex);
}

/* The child is reaped, or was not started; no task refers to the process. */
static void process_free(process *p)
{
    if (p->group != NULL) set_group(p, 0);
    ls_list_remove(&p->node);
    ls_task_end_remove(&p->end);
    for (int n = 0; n < LS_CHILD_FDS; n++) close_stream(p, n);
    free(p);
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

static bool needs_timer(const process *p)
{
    return p->child.pid != 0 && ((p->kill_ns != 0 && p->kill_ns != UINT64_MAX) || p->polls[LS_CHILD_EXIT] == NULL);
}

/* Arm the timer for the first process that needs it. When the packet of the timer is under way, it does so itself. */
static void arm_timer(ls_state *state)
{
    processes *all = processes_of(state);
    const uint64_t now = ls_clock_ns(), look = now + LOOK_MS * UINT64_C(1000000);
    uint64_t at = 0;
    if (all->closing || state->port == NULL) return;
    LS_LIST_EACH (const process, p, &all->all, node) {
        if (!needs_timer(p)) continue;
        const uint64_t due = p->polls[LS_CHILD_EXIT] == NULL ? look : p->kill_ns;
        if (at == 0 || due < at) at = due;
    }
    if (at == 0) return;
    if (all->armed)
        (void)ls_timer_move(state->port, &all->timer, at);
    else
        all->armed = ls_timer_set(state->port, &all->timer, at) == LS_OK;
}

/* Have the process end: by SIGTERM if there is a timer for SIGKILL. */
static void process_end(process *p, bool kill)
{
    const processes *all = processes_of(p->state);
    if (p->child.pid == 0 || p->kill_ns == UINT64_MAX || (p->kill_ns != 0 && !kill)) return;
    p->kill_ns = ls_clock_ns() + KILL_MS * UINT64_C(1000000);
    close_stream(p, LS_CHILD_IN);
    if (!kill) {
        ls_child_end(&p->child, false);
        arm_timer(p->state);
        if (all->armed) return;
    }
    ls_child_end(&p->child, true);
    p->kill_ns = UINT64_MAX;
}

static void process_event(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events);

/* Arm the poll of a stream for one event. If that fails the process ends. */
static void watch(process *p, int n)
{
    const ls_poll_options options = {.actor = &p->state->actor,
                                     .fd = p->child.fds[n],
                                     .events = n == LS_CHILD_IN ? LS_EVENT_OUT : LS_EVENT_IN,
                                     .trigger = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
                                     .report = process_event,
                                     .user = p};
    if (options.fd == LS_FD_NONE || p->armed >> n & 1) return;
    const int err = p->polls[n] != NULL ? ls_poll_arm(p->polls[n], options.events)
                                        : ls_poll_open(ls_state_runtime(p->state)->polls, &options, &p->polls[n]);
    if (err == LS_OK) {
        p->armed |= 1u << n;
        return;
    }
    close_stream(p, n);
    if (p->failed == LS_OK) p->failed = err;
    process_end(p, false);
}

/* The object does not use the process any more. */
static void process_detach(process *p)
{
    ls_task_end_remove(&p->end);
    p->task = NULL;
    p->object->p = NULL;
    p->object = NULL;
    if (p->child.pid == 0) {
        process_free(p);
        return;
    }
    process_end(p, false);
    for (int n = LS_CHILD_IN; n <= LS_CHILD_ERR; n++) close_stream(p, n);
    if (p->state->port != NULL && !processes_of(p->state)->closing) watch(p, LS_CHILD_EXIT);
    arm_timer(p->state);
}

static void task_ended(ls_task_end *end)
{
    process *p = LS_CONTAINER(end, process, end);
    p->waits = false;
    if (p->bound)
        process_detach(p);
    else
        p->task = NULL;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void wake(ls_thread_ctx *ctx, process *p)
{
    p->ready = true;
    if (p->waits) ls_task_wake(ctx, p->task, LS_OK);
}

static void write_input(process *p)
{
    const long count = ls_child_write(&p->child, p->input, p->input_len);
    if (count > 0) {
        p->input += count;
        p->input_len -= (size_t)count;
    }
    if (p->input_len > 0 && (count >= 0 || count == LS_EAGAIN))
        watch(p, LS_CHILD_IN);
    else
        close_stream(p, LS_CHILD_IN); /* all of it is written, or the child does not read it */
}

/* If the leader has exited, its group is killed. May free the process. true: a task may have run, which frees
 * others. */
static bool process_look(ls_thread_ctx *ctx, process *p)
{
    if (!reap(p, 0)) return false;
    close_stream(p, LS_CHILD_IN);
    close_stream(p, LS_CHILD_EXIT);
    if (p->object == NULL) {
        process_free(p);
        return false;
    }
    wake(ctx, p);
    return true;
}

static void process_event(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events)
{
    process *p = ls_poll_user(poll);
    int n = 0;
    while (p->polls[n] != poll) n++;
    p->armed &= ~(1u << n);
    if (n == LS_CHILD_IN) {
        write_input(p);
    } else if (n == LS_CHILD_EXIT) {
        watch(p, n); /* if it has not exited */
        (void)process_look(ctx, p);
    } else {
        wake(ctx, p);
    }
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    processes *all = LS_CONTAINER(op, processes, timer.op);
    ls_state *state = all->state;
    const uint64_t now = ls_clock_ns();
    all->armed = false;
    LS_LIST_EACH_DROP (process, p, &all->all, node) {
        if (p->child.pid != 0 && p->kill_ns != 0 && p->kill_ns <= now) {
            ls_child_end(&p->child, true);
            p->kill_ns = UINT64_MAX;
        }
        if (p->child.pid != 0 && p->polls[LS_CHILD_EXIT] == NULL && process_look(ctx, p)) break;
    }
    arm_timer(state);
}

/* ---- the object ------------------------------------------------------------------------------------------------ */

static process *child_check(lua_State *L)
{
    process *p = ((child_object *)ls_udata_check(L, 1, &child_type, sizeof(child_object), "child"))->p;
    if (p == NULL) luaL_error(L, "the process is closed");
    return p;
}

static int wait_done(lua_State *L, int status, lua_KContext context)
{
    ls_task *task = ls_state_of(L)->current;
    process *p = ((child_object *)lua_touserdata(L, 1))->p;
    const bool left = ls_task_was_left(task);
    if (p == NULL) return 0; /* the state closes, and the task has resumed only to end */
    p->waits = false;
    if (!p->bound) {
        ls_task_end_remove(&p->end);
        p->task = NULL;
    }
    return left && p->child.pid != 0 && !task->cpu_exceeded ? ls_task_left_error(L, "the process was ended: ") : 0;
}

/* child:wait([seconds]): until there is output, or the process has exited; it may return early. Blocks the thread
 * where a task cannot wait, such as while the site loads. */
static int child_wait(lua_State *L)
{
    process *p = child_check(L);
    ls_state *state = p->state;
    const double seconds = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    const bool ready = p->ready;
    lua_settop(L, 1);
    p->ready = false;
    if (p->child.pid == 0 || ready) return 0;
    if (!ls_task_can_wait(L)) {
        ls_child_wait(&p->child, seconds >= 0 && seconds < 1 ? (int)(seconds * 1000) : 1000);
        if (reap(p, 0)) close_stream(p, LS_CHILD_EXIT);
        return 0;
    }
    if (seconds >= 0) ls_task_alarm(L, state->current, seconds);
    for (int n = p->input_len > 0 ? LS_CHILD_IN : LS_CHILD_OUT; n < LS_CHILD_FDS; n++) watch(p, n);
    arm_timer(state);
    if (!p->bound) {
        p->task = state->current;
        ls_task_end_add(p->task, &p->end);
    }
    p->waits = true;
    return ls_task_yield(L, LS_WAIT_WRITE, 0, wait_done);
}

/* child:read(stream, most) -> bytes of the output 1 or 2, "": none now; nil: its end */
static int child_read(lua_State *L)
{
    process *p = child_check(L);
    const int stream = luaL_checkinteger(L, 2) == 1 ? LS_CHILD_OUT : LS_CHILD_ERR;
    const lua_Integer most = luaL_checkinteger(L, 3);
    luaL_Buffer buffer;
    if (p->child.fds[stream] == LS_FD_NONE) return 0;
    const size_t room = most < READ_BYTES ? (size_t)most : READ_BYTES;
    char *to = luaL_buffinitsize(L, &buffer, room);
    const long count = ls_child_read(&p->child, stream, to, room);
    if (count <= 0 && count != LS_EAGAIN) {
        close_stream(p, stream);
        return 0;
    }
    luaL_pushresultsize(&buffer, count > 0 ? (size_t)count : 0);
    return 1;
}

/* child:close(stream): its input, 0, or an output */
static int child_close(lua_State *L)
{
    process *p = child_check(L);
    const lua_Integer stream = luaL_checkinteger(L, 2);
    luaL_argcheck(L, stream >= LS_CHILD_IN && stream <= LS_CHILD_ERR, 2, "0 to 2 expected");
    close_stream(p, (int)stream);
    return 0;
}

static int child_drop(lua_State *L)
{
    process *p = ((child_object *)lua_touserdata(L, 1))->p;
    if (p != NULL) process_detach(p);
    return 0;
}

/* child:stop([kill]) */
static int child_stop(lua_State *L)
{
    process_end(child_check(L), lua_toboolean(L, 2));
    return 0;
}

/* child:status() -> nothing while it runs | the exit status, the signal or nil [, message, code of an error] */
static int child_status(lua_State *L)
{
    const process *p = child_check(L);
    if (p->child.pid != 0) return 0;
    lua_pushinteger(L, p->child.code);
    if (p->child.signal != 0)
        lua_pushinteger(L, p->child.signal);
    else
        lua_pushnil(L);
    if (p->failed == LS_OK) return 2;
    (void)ls_push_failure(L, p->failed);
    lua_remove(L, -3);
    return 4;
}

static const luaL_Reg child_methods[] = {{"wait", child_wait}, {"read", child_read},     {"close", child_close},
                                         {"stop", child_stop}, {"status", child_status}, {NULL, NULL}};
static const ls_object_type child_type = {.name = "child", .methods = child_methods, .drop = child_drop};

/* ---- core.child ------------------------------------------------------------------------------------------------ */

/* The list of strings at `index` as an array, which is left on the stack. */
static const char *const *push_array(lua_State *L, int index)
{
    const size_t count = lua_rawlen(L, index);
    const char **array = lua_newuserdatauv(L, (count + 1) * sizeof *array, 0);
    for (size_t n = 0; n < count; n++) {
        lua_rawgeti(L, index, (lua_Integer)n + 1);
        array[n] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    array[count] = NULL;
    return array;
}

static int *take_place(groups *all)
{
    int *place = NULL;
    ls_mutex_lock(&all->mutex);
    for (int n = 0; n < PROCESSES_MAX && place == NULL; n++)
        if (all->at[n] == 0) place = &all->at[n];
    if (place != NULL) *place = -1;
    ls_mutex_unlock(&all->mutex);
    return place;
}

/* core.child(argv, env|nil, cwd|nil, input|true|nil, bound, shares_err) -> child | nil, message, code. `argv`, `env`:
 * lists of strings without NUL; nil: those of the server. `input`: a string, or true: the standard input ends with
 * child:close(0). `bound`: the process ends with the task; for ls.process. `shares_err`: its standard error is that of
 * the server. */
static int core_child(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const bool bound = lua_toboolean(L, 5), feed = lua_isboolean(L, 4);
    size_t input_len = 0;
    lua_settop(L, 6);
    const char *input = feed ? NULL : luaL_optlstring(L, 4, NULL, &input_len);
    const ls_child_options options = {.argv = push_array(L, 1),
                                      .env = lua_isnil(L, 2) ? NULL : push_array(L, 2),
                                      .cwd = lua_isnil(L, 3) ? "." : ls_push_site_path(L, 3),
                                      .input = input,
                                      .input_len = input_len,
                                      .feed = feed,
                                      .shares_err = lua_toboolean(L, 6)};
    if (bound && state->port == NULL)
        return luaL_error(L, "ls.process cannot be called while the site loads; call it in a handler or in ls.init");
    if (bound) ls_task_may_wait(L);
    child_object *object = ls_object_push(L, sizeof *object, 1, &child_type);
    lua_pushvalue(L, 4);
    (void)lua_setiuservalue(L, -2, 1);
    process *p = calloc(1, sizeof *p);
    if (p == NULL) return ls_push_failure(L, LS_ENOMEM);
    if ((p->group = take_place(groups_of(state))) == NULL) {
        free(p);
        return ls_push_failure_text(L, LS_ELIMIT, "%d processes of ls.process run already", (int)PROCESSES_MAX);
    }
    p->state = state;
    p->bound = bound;
    p->input = input;
    p->input_len = input_len;
    p->end.run = task_ended;
    ls_node_init(&p->node);
    for (int n = 0; n < LS_CHILD_FDS; n++) p->child.fds[n] = LS_FD_NONE;
    int err = ls_child_start(&options, &p->child);
    if (err < 0) {
        process_free(p);
        const char *why = err == LS_ENOTSUP ? "cmd.exe would run a batch file, and read its arguments as commands; "
                                              "start the program that it runs"
                                            : ls_err_text(err);
        return ls_push_failure_text(L, err, "cannot start %s in %s: %s", options.argv[0], options.cwd, why);
    }
    set_group(p, p->child.pid);
    ls_list_push(&processes_of(state)->all, &p->node);
    p->object = object;
    object->p = p;
    if (!bound) return 1;
    p->task = state->current;
    ls_task_end_add(p->task, &p->end);
    return 1;
}

/* core.environment() -> the list of the variables, "NAME=value" */
static int core_environment(lua_State *L)
{
    char **list = ls_child_environment();
    lua_newtable(L);
    for (lua_Integer n = 0; list != NULL && list[n] != NULL; n++) {
        lua_pushstring(L, list[n]);
        lua_rawseti(L, -2, n + 1);
    }
    return 1;
}

/* ---- the module ------------------------------------------------------------------------------------------------ */

static void process_define(lua_State *L, ls_state *state)
{
    processes *all = processes_of(state);
    all->state = state;
    all->timer.op.done = tick;
    all->timer.op.actor = &state->actor;
}

/* Kill all of them. Their tasks, if they have one, end when they run next; the other objects are of no use now. */
static void process_close(ls_thread_ctx *ctx, ls_state *state)
{
    processes *all = processes_of(state);
    all->closing = true;
    LS_LIST_EACH_DROP (process, p, &all->all, node) {
        ls_child_end(&p->child, true);
        for (int n = 0; n < LS_CHILD_FDS; n++) close_stream(p, n);
        if (p->object != NULL && !p->bound) process_detach(p);
    }
    if (all->armed && state->port != NULL && ls_timer_cancel(state->port, &all->timer)) all->armed = false;
}

/* Reap those that are killed, and free those without an object. */
static void reap_all(ls_state *state, int ms)
{
    LS_LIST_EACH_DROP (process, p, &processes_of(state)->all, node)
        if (reap(p, ms) && p->object == NULL) process_free(p);
}

static bool process_closed(ls_state *state)
{
    const processes *all = processes_of(state);
    if (all->closing) reap_all(state, 0);
    return ls_list_empty(&all->all) && !all->armed;
}

static void process_disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    process_close(ctx, state);
    reap_all(state, REAP_MS);
}

/* Processes whose tasks were ended when Lua was closed, or that the system does not end. */
static void process_free_all(ls_state *state)
{
    LS_LIST_EACH_DROP (process, p, &processes_of(state)->all, node) process_free(p);
}

static const luaL_Reg functions[] = {{"child", core_child}, {"environment", core_environment}, {NULL, NULL}};

static int groups_open(void *own)
{
    ls_mutex_open(&((groups *)own)->mutex);
    return LS_OK;
}

static void groups_close(void *own)
{
    ls_mutex_close(&((groups *)own)->mutex);
}

static const ls_module_common common = {.bytes = sizeof(groups), .open = groups_open, .close = groups_close};

const ls_module ls_process_module = {.name = "process",
                                     .bytes = sizeof(processes),
                                     .lists = true,
                                     .functions = functions,
                                     .define = process_define,
                                     .close = process_close,
                                     .closed = process_closed,
                                     .disconnect = process_disconnect,
                                     .free = process_free_all,
                                     .common = &common};
