/* host.c - ls.on("host"): see host.h. */
#include "script/bind/tasks/host.h"

#include <string.h>

#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/value/json.h"
#include "script/core/state.h"
#include "script/core/task.h"

enum { FUNCTIONS_MAX = 16, WHY_BYTES = 1024 };

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

/* A string is the answer as it is, another value as JSON. */
static int host_returned(lua_State *L, int status, lua_KContext context)
{
    const ls_host_post *post = lua_touserdata(L, 1);
    ls_slice text;
    if (post->answered == NULL || lua_isnil(L, 2)) return 0;
    if (lua_type(L, 2) != LUA_TSTRING && ls_json_encode_in(L, 2, "ls.on(\"host\")", &text))
        lua_pushlstring(L, text.ptr, text.len);
    return 1;
}

static int host_main(lua_State *L) /* (post as light userdata, function) */
{
    const ls_host_post *post = lua_touserdata(L, 1);
    lua_pushlstring(L, post->data, post->bytes);
    lua_callk(L, 1, 1, 0, host_returned);
    return host_returned(L, LUA_OK, 0);
}

static void host_unhold(ls_host_post *post)
{
    if (--post->unfinished == 0) post->ops->ended(post);
}

static void host_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_host_post *post = task->owner;
    char why[WHY_BYTES] = "the task was ended";
    size_t bytes;
    if (status != LUA_OK) {
        const int result = ls_task_is_canceled(task) ? LS_ECANCELED : LS_ESCRIPT;
        ls_task_log_error_to(ctx, task, "in a \"host\" hook", why, sizeof why);
        post->ops->answer(post, result, why, strlen(why));
    } else if (count > 0) {
        const char *text = lua_tolstring(task->co, -1, &bytes);
        post->ops->answer(post, LS_OK, text, bytes);
    }
    ls_task_release(ctx, task, status == LUA_OK);
    host_unhold(post);
}

static void run(ls_thread_ctx *ctx, ls_state *state, ls_host_post *post, int ref)
{
    ls_task *task = ls_task_begin(state, ctx, LS_SCOPE_JOB, host_ended, post, "in a \"host\" hook");
    if (task == NULL) {
        post->ops->answer(post, LS_ENOMEM, "", 0);
        return;
    }
    post->unfinished++;
    lua_pushcfunction(task->co, host_main);
    lua_pushlightuserdata(task->co, post);
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, ref);
    ls_task_run(ctx, task, 2);
}

/* The thread is inside the actor of the state. */
static void run_all(ls_thread_ctx *ctx, ls_state *state, ls_host_post *post)
{
    const host_data *data = ls_state_data(state, LS_SLOT_host);
    const unsigned count = ls_definition_count(state->generation, LS_SLOT_host);
    post->unfinished = 1; /* until all have begun */
    for (unsigned n = 0; n < count; n++) run(ctx, state, post, data->refs[n]);
    if (count == 0) post->ops->answer(post, LS_ENOENT, "", 0); /* of a site that a reload has brought */
    post->ops->begun(post);
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
