/* process_object.c - the core of ls.process (lua/luaserve/process.lua): a process whose output a task waits for.
 *
 *     core.process --> runs --- the leader has exited --> reaped --> the task gets the results, which frees the process
 *                        \--- time, too much output, or the task has ended: SIGTERM, two seconds later SIGKILL --/
 *
 * When the leader has exited, its group is killed, and what is in the pipes is read. A process without a task is freed when
 * it is reaped. One timer for all processes of a state sends SIGKILL; where the system has no descriptor for the exit of a
 * process, it looks for that as well. Thread: the one that holds the state's actor. */
#include "script/bind/work/process_object.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/stream/poll.h"
#include "port/child.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/task.h"
#include "script/core/wait.h"

enum {
    PROCESSES_MAX = 64, /* at once */
    KILL_MS = 2000,     /* from SIGTERM to SIGKILL */
    LOOK_MS = 20,       /* between two looks at a process without a descriptor for its exit */
    READ_BYTES = 65536, /* at once; then other events have their turn */
    REAP_MS = 1000      /* the wait for a killed process when no worker runs any more */
};

typedef struct output {
    char *bytes;
    size_t len, room, max;
} output;

typedef struct process {
    ls_node node; /* in the list of the state */
    ls_state *state;
    ls_task *task; /* that waits for it; NULL: it has ended */
    ls_task_end end;
    ls_child child;
    ls_poll *polls[LS_CHILD_FDS];
    const char *input; /* what is left of a string on the stack of the task */
    size_t input_len;
    output outputs[2]; /* standard output, standard error */
    uint64_t kill_ns;  /* when SIGKILL follows SIGTERM; 0: it was not ended; UINT64_MAX: it was killed */
    int failed;        /* LS_OK, or why it was ended */
    int *group;        /* its place in the groups; NULL: it is reaped */
    const char *over;  /* the name of the limit that its output exceeds, or NULL */
} process;

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

static processes *processes_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_process);
}

static void close_stream(process *p, int stream)
{
    if (p->polls[stream] != NULL && p->state->port != NULL) ls_poll_close(p->polls[stream]);
    p->polls[stream] = NULL;
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
    free(p->outputs[0].bytes);
    free(p->outputs[1].bytes);
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

/* Have the process end. When the timer cannot be armed it is killed at once. */
static void process_end(process *p, int why)
{
    const processes *all = processes_of(p->state);
    if (p->child.pid == 0 || p->kill_ns != 0) return;
    if (p->failed == LS_OK) p->failed = why;
    p->kill_ns = ls_clock_ns() + KILL_MS * UINT64_C(1000000);
    close_stream(p, LS_CHILD_IN);
    ls_child_end(&p->child, false);
    arm_timer(p->state);
    if (all->armed) return;
    ls_child_end(&p->child, true);
    p->kill_ns = UINT64_MAX;
}

/* The task does not wait any more. */
static void process_detach(process *p)
{
    ls_task_end_remove(&p->end);
    p->task = NULL;
    if (p->child.pid == 0) {
        process_free(p);
        return;
    }
    process_end(p, LS_ECANCELED);
    close_stream(p, LS_CHILD_OUT);
    close_stream(p, LS_CHILD_ERR);
}

static void task_ended(ls_task_end *end)
{
    process_detach(LS_CONTAINER(end, process, end));
}

/* ---- input and output ---------------------------------------------------------------------------------------- */

static void rearm(process *p, int stream, uint16_t events)
{
    const int err = ls_poll_arm(p->polls[stream], events);
    if (err == LS_OK) return;
    close_stream(p, stream);
    process_end(p, err);
}

static void write_input(process *p)
{
    const long count = ls_child_write(&p->child, p->input, p->input_len);
    if (count > 0) {
        p->input += count;
        p->input_len -= (size_t)count;
    }
    if (p->input_len > 0 && (count >= 0 || count == LS_EAGAIN))
        rearm(p, LS_CHILD_IN, LS_EVENT_OUT);
    else
        close_stream(p, LS_CHILD_IN); /* all of it is written, or the child does not read it */
}

/* Room for one byte past the limit shows that there is more. */
static bool grow(output *out)
{
    if (out->len < out->room) return true;
    size_t room = out->room == 0 ? 4096 : out->room * 2;
    if (room > out->max + 1) room = out->max + 1;
    char *bytes = realloc(out->bytes, room);
    if (bytes == NULL) return false;
    out->bytes = bytes;
    out->room = room;
    return true;
}

/* Read what is there, at most `most` bytes. false: the stream has ended and is closed. */
static bool read_output(process *p, int stream, size_t most)
{
    output *out = &p->outputs[stream - LS_CHILD_OUT];
    int err = LS_OK;
    while (most > 0) {
        if (!grow(out)) {
            err = LS_ENOMEM;
            break;
        }
        const size_t room = out->room - out->len < most ? out->room - out->len : most;
        const long count = ls_child_read(&p->child, stream, out->bytes + out->len, room);
        if (count == LS_EAGAIN) return true;
        if (count <= 0) {
            close_stream(p, stream);
            return false;
        }
        out->len += (size_t)count;
        most -= (size_t)count;
        if (out->len <= out->max) continue;
        out->len = out->max;
        err = LS_EMSGSIZE;
        if (p->failed == LS_OK) p->over = stream == LS_CHILD_OUT ? "max_out" : "max_err";
        break;
    }
    if (err == LS_OK) return true;
    close_stream(p, stream);
    if (p->failed == LS_OK) p->failed = err;
    process_end(p, err);
    return false;
}

/* If the leader has exited, its group is killed, and what is in the pipes belongs to the results. May run the task, and
 * free the process. */
static void process_look(ls_thread_ctx *ctx, process *p)
{
    if (!reap(p, 0)) return;
    for (int n = LS_CHILD_OUT; n <= LS_CHILD_ERR; n++) {
        if (p->child.fds[n] != LS_FD_NONE) (void)read_output(p, n, SIZE_MAX);
    }
    for (int n = 0; n < LS_CHILD_FDS; n++) close_stream(p, n);
    if (p->task != NULL)
        ls_task_wake(ctx, p->task, LS_OK);
    else
        process_free(p);
}

static void process_event(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events)
{
    process *p = ls_poll_user(poll);
    if (poll == p->polls[LS_CHILD_IN]) {
        write_input(p);
    } else if (poll != p->polls[LS_CHILD_EXIT]) {
        const int n = poll == p->polls[LS_CHILD_OUT] ? LS_CHILD_OUT : LS_CHILD_ERR;
        if (read_output(p, n, READ_BYTES)) rearm(p, n, LS_EVENT_IN);
    } else {
        rearm(p, LS_CHILD_EXIT, LS_EVENT_IN); /* if it has not exited */
        process_look(ctx, p);
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
        if (p->child.pid != 0 && p->polls[LS_CHILD_EXIT] == NULL) process_look(ctx, p);
    }
    arm_timer(state);
}

/* ---- core.process ---------------------------------------------------------------------------------------------- */

/* { code =, out =, err =, signal = }, behind nil, message and code if the process was ended. */
static int push_results(lua_State *L, process *p)
{
    lua_settop(L, 0);
    if (p->failed != LS_OK) {
        if (p->failed == LS_EMSGSIZE)
            (void)ls_push_failure_text(L, p->failed, "the process was ended: it has written more than %s", p->over);
        else if (p->failed == LS_ETIMEDOUT)
            (void)ls_push_failure_text(L, p->failed, "timeout: the process was ended");
        else
            (void)ls_push_failure_text(L, p->failed, "the process was ended: %s", ls_err_text(p->failed));
    }
    lua_createtable(L, 0, 4);
    lua_pushlstring(L, p->outputs[0].bytes != NULL ? p->outputs[0].bytes : "", p->outputs[0].len);
    lua_setfield(L, -2, "out");
    lua_pushlstring(L, p->outputs[1].bytes != NULL ? p->outputs[1].bytes : "", p->outputs[1].len);
    lua_setfield(L, -2, "err");
    ls_set_integer(L, "code", p->child.code);
    if (p->child.signal != 0) ls_set_integer(L, "signal", p->child.signal);
    process_free(p);
    return lua_gettop(L);
}

static int process_done(lua_State *L, int status, lua_KContext context)
{
    process *p = (process *)context; /* NOLINT(performance-no-int-to-ptr) */
    ls_task *task = p->task;
    const bool left = task->takes && task->client_left;
    task->takes = false;
    if (task->cpu_exceeded) { /* it has resumed only to end */
        process_detach(p);
        return ls_push_failure(L, LS_ECANCELED);
    }
    if (p->child.pid == 0) return push_results(L, p);
    if (left) {
        process_detach(p);
        return ls_task_left_error(L, "the process was ended: ");
    }
    if (task->wake_result == LS_ETIMEDOUT) process_end(p, LS_ETIMEDOUT);
    return ls_task_yield(L, context, process_done);
}

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

static int watch(process *p, int n, uint16_t events)
{
    const ls_poll_options options = {.actor = &p->state->actor,
                                     .fd = p->child.fds[n],
                                     .events = events,
                                     .trigger = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
                                     .report = process_event,
                                     .user = p};
    if (p->child.fds[n] == LS_FD_NONE) return LS_OK;
    return ls_poll_open(ls_state_runtime(p->state)->polls, &options, &p->polls[n]);
}

/* core.process(argv, env|nil, cwd, input|nil, max_out, max_err, seconds|nil)
 * -> { code =, out =, err =, signal = } | nil, message, code, table. `argv`, `env`: lists of strings without NUL. */
static int core_process(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const bool timed = !lua_isnoneornil(L, 7);
    const double seconds = timed ? ls_check_seconds(L, 7) : 0;
    const size_t max_out = (size_t)luaL_checkinteger(L, 5), max_err = (size_t)luaL_checkinteger(L, 6);
    size_t input_len = 0;
    lua_settop(L, 7);
    const char *input = luaL_optlstring(L, 4, NULL, &input_len);
    const ls_child_options options = {.argv = push_array(L, 1),
                                      .env = lua_isnil(L, 2) ? NULL : push_array(L, 2),
                                      .cwd = ls_push_site_path(L, 3),
                                      .input = input,
                                      .input_len = input_len};
    if (state->port == NULL)
        return luaL_error(L, "ls.process cannot be called while the site loads; call it in a handler or in ls.init");
    ls_task_may_wait(L);
    if (ls_wait_expect_end(state->current) < 0) return ls_task_left_error(L, "ls.process: ");
    process *p = calloc(1, sizeof *p);
    if (p == NULL) return ls_push_failure(L, LS_ENOMEM);
    if ((p->group = take_place(groups_of(state))) == NULL) {
        free(p);
        return ls_push_failure_text(L, LS_ELIMIT, "%d processes of ls.process run already", (int)PROCESSES_MAX);
    }
    p->state = state;
    p->input = input;
    p->input_len = input_len;
    p->outputs[0].max = max_out;
    p->outputs[1].max = max_err;
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
    p->task = state->current;
    ls_task_end_add(p->task, &p->end);
    for (int n = 0; n < LS_CHILD_FDS; n++) {
        if ((err = watch(p, n, n == LS_CHILD_IN ? LS_EVENT_OUT : LS_EVENT_IN)) < 0) process_end(p, err);
    }
    arm_timer(state);
    if (timed && !ls_task_try_alarm(p->task, seconds)) process_end(p, LS_ENOMEM);
    p->task->takes = true;
    return ls_task_yield(L, (lua_KContext)p, process_done);
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
    ls_node_init(&all->all);
    all->state = state;
    all->timer.op.done = tick;
    all->timer.op.actor = &state->actor;
}

/* Kill all of them. Their tasks, if they have one, end when they run next. */
static void process_close(ls_thread_ctx *ctx, ls_state *state)
{
    processes *all = processes_of(state);
    all->closing = true;
    LS_LIST_EACH (process, p, &all->all, node) {
        ls_child_end(&p->child, true);
        for (int n = 0; n < LS_CHILD_FDS; n++) close_stream(p, n);
    }
    if (all->armed && state->port != NULL && ls_timer_cancel(state->port, &all->timer)) all->armed = false;
}

/* Reap those that are killed, and free those without a task. */
static void reap_all(ls_state *state, int ms)
{
    processes *all = processes_of(state);
    LS_LIST_EACH_DROP (process, p, &all->all, node)
        if (reap(p, ms) && p->task == NULL) process_free(p);
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
    processes *all = processes_of(state);
    while (all->all.next != NULL && !ls_list_empty(&all->all)) {
        process *p = LS_CONTAINER(all->all.next, process, node);
        process_free(p);
    }
}

static const luaL_Reg functions[] = {{"process", core_process}, {"environment", core_environment}, {NULL, NULL}};

static int groups_open(void *own)
{
    return ls_mutex_open(&((groups *)own)->mutex);
}

static void groups_close(void *own)
{
    ls_mutex_close(&((groups *)own)->mutex);
}

static const ls_module_common common = {.bytes = sizeof(groups), .open = groups_open, .close = groups_close};

const ls_module ls_process_module = {.name = "process",
                                     .bytes = sizeof(processes),
                                     .functions = functions,
                                     .define = process_define,
                                     .close = process_close,
                                     .closed = process_closed,
                                     .disconnect = process_disconnect,
                                     .free = process_free_all,
                                     .common = &common};
