/* suspend.c - ls_task_suspend, ls_task_wait and ls_task_resume of luaserve.h: a C function waits until a thread of the
 * program resumes its task.
 *
 * A suspension is a wait (wait.h) that the thread decides. It belongs to the task and to the program:
 *
 *     the program resumes first    the task calls the program's function, and frees the suspension
 *     the task ends first          `ended`: the resume only releases the data, and frees the suspension
 *
 * The resume posts to the state under the mutex. The end of the wait takes the mutex as well, so the state exists
 * until the thread of the program has left it. Outside, a suspension is an opaque ls_task. */
#include <stdlib.h>

#include "base/os/thread.h"
#include "script/core/lua/push.h"
#include "script/core/wait.h"

typedef struct suspension {
    ls_mutex mutex;
    bool resumed, ended; /* guarded by the mutex; the latter implies that the wait is freed */
    bool waits;          /* ls_task_wait() was called */
    ls_wait *wait;
    ls_flush flush; /* at the end of the run that has suspended */
    ls_task_results_fn *results;
    void *data;
} suspension;

/* The program has resumed, and the task has ended or has its results. */
static void release(suspension *s)
{
    ls_mutex_lock(&s->mutex); /* the thread that resumed has left it */
    ls_mutex_unlock(&s->mutex);
    (void)s->results(NULL, s->data);
    ls_mutex_close(&s->mutex);
    free(s);
}

static bool suspension_cancel(void *object, ls_waiter *waiter)
{
    suspension *s = object;
    ls_mutex_lock(&s->mutex);
    const bool resumed = s->resumed;
    s->ended = !resumed;
    ls_mutex_unlock(&s->mutex);
    return !resumed;
}

static void suspension_give_back(void *object, ls_waiter *waiter)
{
    if (waiter->result == LS_OK) release(object); /* else it belongs to the program, which may have freed it */
}

static const ls_wait_kind kind = {suspension_cancel, suspension_give_back, LS_WAIT_WRITE, NULL};

/* The task continues or ends without a call of ls_task_wait(), for instance by an error. */
static void run_ended(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    suspension *s = LS_CONTAINER(flush, suspension, flush);
    if (!s->waits) ls_wait_give_back(s->wait);
}

ls_task *ls_task_suspend(lua_State *L)
{
    ls_task_may_wait(L);
    suspension *s = calloc(1, sizeof *s);
    if (s == NULL || (s->wait = ls_wait_get(L, &kind, s)) == NULL) {
        free(s);
        luaL_error(L, "not enough memory");
        return NULL;
    }
    ls_mutex_open(&s->mutex);
    s->flush.run = run_ended;
    ls_state_flush_later(ls_state_of(L), &s->flush);
    return (ls_task *)(void *)s;
}

static int push_results(lua_State *L)
{
    const suspension *s = lua_touserdata(L, 1);
    lua_settop(L, 0);
    return s->results(L, s->data);
}

static int resumed(lua_State *L, int status, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    suspension *s = wait->object;
    const int top = lua_gettop(L);
    const bool has_results = ls_wait_end(L, wait, NULL) == LS_OK;
    if (has_results && !ls_state_of(L)->current->cpu_exceeded && lua_checkstack(L, 2)) {
        const int failed = ls_pcall(L, push_results, s, LUA_MULTRET);
        release(s);
        return failed == LUA_OK ? lua_gettop(L) - top : lua_error(L);
    }
    if (has_results) release(s);
    if (ls_state_of(L)->current->cpu_exceeded) ls_state_end_run(L);
    return luaL_error(L, "not enough memory");
}

int ls_task_wait(lua_State *L, ls_task *task)
{
    suspension *s = (suspension *)(void *)task;
    ls_task_may_wait(L);
    s->waits = true;
    return ls_wait_suspend(L, s->wait, -1, false, resumed);
}

int ls_task_resume(ls_task *task, ls_task_results_fn *results, void *data)
{
    suspension *s = (suspension *)(void *)task;
    ls_mutex_lock(&s->mutex);
    const bool again = s->resumed, ended = s->ended;
    if (!again) {
        s->resumed = true;
        s->results = results;
        s->data = data;
    }
    if (!again && !ended) {
        s->wait->waiter.result = LS_OK;
        s->wait->waiter.wake(&s->wait->waiter);
    }
    ls_mutex_unlock(&s->mutex);
    if (again) return LS_EBUSY;
    if (!ended) return LS_OK;
    release(s);
    return LS_ECANCELED;
}
