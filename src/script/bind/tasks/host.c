/* host.c - ls.on("host"): see host.h. */
#include "script/bind/tasks/host.h"

#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/state.h"
#include "script/core/task.h"

enum { FUNCTIONS_MAX = 16 };

typedef struct host_data {
    int refs[FUNCTIONS_MAX]; /* registry references to the functions */
} host_data;

bool ls_host_has_hooks(const ls_generation *generation)
{
    return ls_definition_count(generation, LS_SLOT_host) > 0;
}

/* core.on_host(fn) */
static int core_on_host(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    host_data *data = ls_state_data(state, LS_SLOT_host);
    unsigned index;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    (void)ls_define(L, LS_SLOT_host, 1, &index);
    lua_settop(L, 1);
    data->refs[index] = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

static int host_main(lua_State *L) /* (function, post as light userdata) */
{
    const ls_host_post *post = lua_touserdata(L, 2);
    lua_settop(L, 1);
    lua_pushlstring(L, post->data, post->bytes);
    lua_callk(L, 1, 0, 0, ls_task_no_results);
    return 0;
}

static void host_unhold(ls_host_post *post)
{
    if (--post->unfinished == 0) post->ended(post);
}

static void host_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_host_post *post = task->owner;
    if (status != LUA_OK) ls_task_log_error(ctx, task, "in a \"host\" hook");
    ls_task_release(ctx, task, status == LUA_OK);
    host_unhold(post);
}

static void run(ls_thread_ctx *ctx, ls_state *state, ls_host_post *post, int ref)
{
    ls_task *task = ls_task_begin(state, ctx, LS_SCOPE_JOB, host_ended, post, "in a \"host\" hook");
    if (task == NULL) return;
    post->unfinished++;
    lua_pushcfunction(task->co, host_main);
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, ref);
    lua_pushlightuserdata(task->co, post);
    ls_task_run(ctx, task, 2);
}

/* The thread is inside the actor of the state. */
static void run_all(ls_thread_ctx *ctx, ls_state *state, ls_host_post *post)
{
    const host_data *data = ls_state_data(state, LS_SLOT_host);
    const unsigned count = ls_definition_count(state->generation, LS_SLOT_host);
    post->unfinished = 1; /* until all have begun */
    for (unsigned n = 0; n < count; n++) run(ctx, state, post, data->refs[n]);
    host_unhold(post);
}

/* The state that was in use when the post arrived. */
static void run_later(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = ls_state_of_actor(op->actor);
    ls_state_begin_request(ctx, state);
    run_all(ctx, state, LS_CONTAINER(op, ls_host_post, op));
    atomic_fetch_sub(&state->generation->waiting, 1);
}

void ls_host_deliver(ls_generation *generation, ls_thread_ctx *ctx, ls_host_post *post)
{
    ls_state *state = ls_generation_enter(generation, ctx, NULL);
    if (state != NULL) {
        run_all(ctx, state, post);
        ls_actor_leave(&state->actor, ctx);
        return;
    }
    ls_generation_post(generation, ctx, &post->op, run_later);
}

static const luaL_Reg functions[] = {{"on_host", core_on_host}, {NULL, NULL}};

const ls_module ls_host_module = {.name = "host",
                                  .bytes = sizeof(host_data),
                                  .functions = functions,
                                  .defines = "\"host\" hooks",
                                  .serves = true,
                                  .definitions_max = FUNCTIONS_MAX};
