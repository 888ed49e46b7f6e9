/* job.c - ls.spawn and the job object; the functions of ls.on, each run in a task.
 *
 * The job object keeps the results or the error of the job, so that any number of tasks may wait for it, before or
 * after its end. An error is logged when no task waits. */
#include "script/bind/tasks/job.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

static const ls_object_type job_type;

/* The number of unfinished jobs of ls.spawn in the state. */
static unsigned *unfinished_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_job);
}

typedef struct ls_job {
    const void *tag;
    ls_task *task;  /* NULL: the job has ended */
    int self_ref;   /* keeps the object while the task runs */
    int status;     /* LUA_OK: user value 1 is a table of results; else user value 1 is the error */
    bool no_memory; /* the error could not be kept either */
    bool of_site;   /* of ls.spawn; else of luaserve itself */
    ls_node waiters;
} ls_job;

/* Stack, that of job_main: the job, then the results. */
static int job_returned(lua_State *L, int status, lua_KContext context)
{
    const ls_job *job = lua_touserdata(L, 1);
    if (ls_list_empty(&job->waiters)) ls_task_log_failure(L, 2, "a function of ls.spawn");
    ls_pack(L, lua_gettop(L) - 1);
    lua_setiuservalue(L, 1, 1);
    return 0;
}

static int job_main(lua_State *L) /* stack: the job, the function, its arguments */
{
    lua_callk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, job_returned);
    return job_returned(L, LUA_OK, 0);
}

static int job_keep_error(lua_State *L)
{
    ls_job *job = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->self_ref);
    if (job->task->cpu_exceeded)
        (void)ls_task_push_exceeded(L, job->task, NULL);
    else
        lua_xmove(job->task->co, L, 1);
    lua_setiuservalue(L, -2, 1);
    return 0;
}

/* Work of luaserve itself, such as a worker of ls.queue that waits for a job, has ended with its site: nothing is lost. */
static bool ends_idle(const ls_job *job, const ls_task *task)
{
    lua_Debug ar;
    return !job->of_site && ls_task_is_canceled(task) && !ls_task_find_line(task->co, &ar);
}

static void job_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_job *job = task->owner;
    ls_state *state = task->state;
    ls_node woken;
    job->status = status;
    if (status != LUA_OK) {
        if (ls_list_empty(&job->waiters) && !ends_idle(job, task)) ls_task_log_error(ctx, task, "in a spawned job");
        if (ls_state_protected(state, ctx, job_keep_error, job) != LUA_OK) job->no_memory = true;
    }
    job->task = NULL;
    --*unfinished_of(state);
    ls_task_release(ctx, task, status == LUA_OK);
    ls_list_move(&woken, &job->waiters);
    luaL_unref(state->L, LUA_REGISTRYINDEX, job->self_ref); /* from here on only references in Lua keep the job */
    ls_task_wake_all(ctx, &woken, LS_OK);
}

/* ls.spawn(fn: fun(...), ...) -> job
 * Starts a task that calls the function with these arguments. Not while the site loads. */
static int spawn(lua_State *L, bool held)
{
    ls_state *state = ls_state_of(L);
    const int count = lua_gettop(L);
    const uint32_t set_max = state->generation->settings.jobs_max, jobs_max = set_max > 0 ? set_max : LS_JOBS_MAX;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    if (state->loading || state->current == NULL)
        return luaL_error(L,
                          "ls.spawn: cannot be called while the site loads; call it in ls.init or ls.on(\"start\")");
    if (*unfinished_of(state) >= jobs_max)
        return luaL_error(L, "ls.spawn: too many jobs: this Lua state has %d unfinished ones (max_jobs = %d)",
                          (int)*unfinished_of(state), (int)jobs_max);
    ls_job *job = ls_object_push(L, sizeof *job, 1, &job_type);
    ls_node_init(&job->waiters);
    lua_pushvalue(L, -1);
    job->self_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_insert(L, 1);

    ls_task *task = ls_task_take(L, state);
    if (!lua_checkstack(task->co, count + 3)) { /* one for ls_task_run() */
        ls_list_remove(&task->node);            /* the task is empty: put it back; the job is garbage */
        ls_list_push(&state->tasks_free, &task->node);
        state->tasks_free_count++;
        luaL_unref(L, LUA_REGISTRYINDEX, job->self_ref);
        return luaL_error(L, "not enough memory");
    }
    lua_pushcfunction(task->co, job_main);
    lua_pushvalue(L, 1);
    lua_insert(L, 2); /* the job twice: one is the result of ls.spawn */
    lua_xmove(L, task->co, count + 1);
    job->of_site = held;
    job->task = task;
    task->ended = job_ended;
    task->owner = job;
    task->serial = state->current->serial;
    ls_task_enter(task, ls_scope_of_job((enum ls_scope)state->current->scope));
    ls_task_count(task);
    ++*unfinished_of(state);
    if (held && task->scope == LS_SCOPE_SITE && atomic_load(&state->generation->holds_jobs) &&
        !ls_state_is_ending(state, LS_END_REPLACED)) {
        task->nargs = count + 1;
        ls_list_push(&state->tasks_held, &task->wait_node);
    } else {
        ls_task_post(state->ctx, task, count + 1);
    }
    return 1;
}

/* core.spawn(fn, ...): the same for the work of luaserve itself, which begins at once, also while the loops of the
 * previous site have not ended. */
static int core_spawn(lua_State *L)
{
    return spawn(L, false);
}

static int core_spawn_of_site(lua_State *L)
{
    return spawn(L, true);
}

/* ---- the object -------------------------------------------------------------------------------------------- */

static ls_job *job_check(lua_State *L)
{
    return ls_udata_check(L, 1, &job_type, sizeof(ls_job), "job");
}

static int job_results(lua_State *L, const ls_job *job)
{
    if (job->no_memory) return luaL_error(L, "not enough memory");
    lua_getiuservalue(L, 1, 1);
    if (job->status != LUA_OK) return lua_error(L);
    return ls_unpack(L, "too many results");
}

static int job_waited(lua_State *L, int status, lua_KContext context)
{
    const ls_job *job = job_check(L);
    if (job->task == NULL) return job_results(L, job);
    return ls_push_failure(L, LS_ETIMEDOUT);
}

/* job:wait([timeout]) -> ...: any
 * Waits for the job and returns the results of its function; after the timeout nil, a message and "ETIMEDOUT". Raises
 * the error of the function. */
static int job_wait(lua_State *L)
{
    ls_job *job = job_check(L);
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    ls_task *task = ls_state_of(L)->current;
    lua_settop(L, 1);
    if (job->task == NULL) return job_results(L, job);
    if (job->task == task) return luaL_error(L, "a job cannot wait for itself");
    ls_task_may_wait(L);
    if (task->scope == LS_SCOPE_SITE) ls_tasks_begin_held(task->state->ctx, task->state, LS_END_NONE);
    if (timeout >= 0) ls_task_alarm(L, task, timeout);
    ls_list_push(&job->waiters, &task->wait_node);
    return ls_task_yield(L, LS_WAIT_IDLE, 0, job_waited);
}

/* core.spawn_limited(ms, fn, ...) -> job: as core.spawn, for work that a reload lets run for drain_timeout wherever it was
 * begun, and that ends when it has waited for so long; 0: no limit. */
static int core_spawn_limited(lua_State *L)
{
    const lua_Integer ms = luaL_checkinteger(L, 1);
    luaL_argcheck(L, ms >= 0 && ms <= UINT32_MAX, 1, "milliseconds expected");
    lua_remove(L, 1);
    const int count = spawn(L, false);
    ls_task *task = ((ls_job *)lua_touserdata(L, -1))->task;
    ls_task_enter(task, LS_SCOPE_JOB);
    ls_task_limit(task, (uint32_t)ms);
    return count;
}

/* core.job_limit(job, ms): it ends when it has waited for so long from now on. */
static int core_job_limit(lua_State *L)
{
    const ls_job *job = job_check(L);
    const lua_Integer ms = luaL_checkinteger(L, 2);
    luaL_argcheck(L, ms > 0 && ms <= UINT32_MAX, 2, "milliseconds expected");
    if (job->task != NULL) ls_task_limit(job->task, (uint32_t)ms);
    return 0;
}

/* job is a Job: what ls.spawn returns. */
static const luaL_Reg methods[] = {{"job:wait(timeout)", job_wait}, {NULL, NULL}};
static const ls_object_type job_type = {.name = "job", .methods = methods};

/* ---- functions of ls.on --------------------------------------------------------------------------------------- */

static int hook_returned(lua_State *L, int status, lua_KContext context)
{
    ls_task_log_failure(L, 1, "a function of ls.on");
    return 0;
}

static int hook_main(lua_State *L)
{
    lua_callk(L, 0, LUA_MULTRET, 0, hook_returned);
    return hook_returned(L, LUA_OK, 0);
}

static void hook_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    if (status != LUA_OK) ls_task_log_error(ctx, task, task->owner);
    ls_task_release(ctx, task, status == LUA_OK);
}

void ls_job_run_ref(ls_thread_ctx *ctx, ls_state *state, int ref, enum ls_scope scope, const char *what)
{
    ls_task *task = ls_task_begin(state, ctx, scope, hook_ended, (void *)what, what);
    if (task == NULL) return;
    task->starts = scope == LS_SCOPE_SITE;
    lua_pushcfunction(task->co, hook_main);
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, ref);
    ls_task_run(ctx, task, 1);
}

static const luaL_Reg functions[] = {{"spawn", core_spawn},
                                     {"spawn_of_site", core_spawn_of_site},
                                     {"spawn_limited", core_spawn_limited},
                                     {"job_limit", core_job_limit},
                                     {NULL, NULL}};

const ls_module ls_job_module = {.name = "job", .bytes = sizeof(unsigned), .functions = functions};
