/* pool.c - a Lua function that waits for a thread of the program: ls_task_suspend, ls_task_wait and ls_task_resume of
 * src/luaserve.h.
 *
 * The site calls pool.reverse(text). The program queues the text as a job for its threads, and the task of the handler
 * waits, as in ls.sleep: other handlers run meanwhile, also in the same Lua state. The thread that has done the job
 * resumes the task. Here the work is a pause of 50 ms, in place of a library whose calls block.
 *
 *     cc -Isrc -I/usr/include/lua5.4 examples/c/pool.c -Lbuild -lluaserve -llua5.4 -lpthread -Wl,-rpath,$PWD/build */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lauxlib.h>
#include <lua.h>

#include "luaserve.h"

enum { THREADS = 4 };

static const char site[] =
    "local ls = require 'luaserve'\n"
    "local app = ls.app()\n"
    "app:get('/reverse/:text', function(req) return pool.reverse(req.params.text) .. '\\n' end)\n"
    "ls.listen('127.0.0.1:0', app)\n";

typedef struct job {
    struct job *next;
    ls_task *task;
    size_t bytes;
    char text[];
} job;

typedef struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job *first, **end;
    int stops;
    pthread_t threads[THREADS];
} pool;

/* ---- the function ------------------------------------------------------------------------------------------------ */

/* In the task, on a thread of the server; at last with L NULL, to free the job, also if the task has ended meanwhile. */
static int job_results(lua_State *L, void *data)
{
    job *j = data;
    if (L != NULL) {
        lua_pushlstring(L, j->text, j->bytes); /* may raise: the job is freed by the last call */
        return 1;
    }
    free(j);
    return 0;
}

static int no_memory(lua_State *L, void *data)
{
    (void)data;
    return L != NULL ? luaL_error(L, "not enough memory") : 0;
}

static void pool_add(pool *p, job *j)
{
    pthread_mutex_lock(&p->mutex);
    *p->end = j;
    p->end = &j->next;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

/* pool.reverse(text) -> text */
static int pool_reverse(lua_State *L)
{
    pool *p = lua_touserdata(L, lua_upvalueindex(1));
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    ls_task *task = ls_task_suspend(L); /* before the job is made, because it may raise */
    job *j = malloc(sizeof *j + bytes);
    if (j != NULL) {
        *j = (job){.task = task, .bytes = bytes};
        memcpy(j->text, text, bytes);
        pool_add(p, j); /* from here on a thread may have freed the job */
    } else {
        ls_task_resume(task, no_memory, NULL); /* what was suspended is resumed, in any case */
    }
    return ls_task_wait(L, task);
}

static int define(lua_State *L, void *user)
{
    lua_newtable(L);
    lua_pushlightuserdata(L, user);
    lua_pushcclosure(L, pool_reverse, 1);
    lua_setfield(L, -2, "reverse");
    lua_setglobal(L, "pool");
    return 0;
}

/* ---- the threads ------------------------------------------------------------------------------------------------- */

static void *pool_run(void *arg)
{
    pool *p = arg;
    for (;;) {
        pthread_mutex_lock(&p->mutex);
        while (p->first == NULL && !p->stops) pthread_cond_wait(&p->changed, &p->mutex);
        job *j = p->first;
        if (j != NULL && (p->first = j->next) == NULL) p->end = &p->first;
        pthread_mutex_unlock(&p->mutex);
        if (j == NULL) return NULL;

        const struct timespec pause = {.tv_nsec = 50000000};
        nanosleep(&pause, NULL);
        for (size_t from = 0, to = j->bytes; from + 1 < to; from++) {
            const char byte = j->text[from];
            j->text[from] = j->text[--to];
            j->text[to] = byte;
        }
        ls_task_resume(j->task, job_results, j);
    }
}

int main(void)
{
    pool p = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const ls_server_options options = {
        .size = sizeof options, .site = "pool", .source = site, .signals = 1, .open = define, .user = &p};
    ls_server *server;
    char message[512], address[128];

    if (ls_server_open(&options, &server, message, sizeof message) < 0) {
        fprintf(stderr, "pool: %s\n", message);
        return 1;
    }
    p.end = &p.first;
    for (int n = 0; n < THREADS; n++)
        if (pthread_create(&p.threads[n], NULL, pool_run, &p) != 0) return 1;
    for (unsigned n = 0; ls_server_address(server, n, address, sizeof address) == LS_OK; n++)
        printf("listening on %s\n", address);
    fflush(stdout);
    const int result = ls_server_run(server); /* the drain waits for the suspended tasks */
    if (result < 0) fprintf(stderr, "pool: %s\n", ls_error_text(result));

    pthread_mutex_lock(&p.mutex);
    p.stops = 1;
    pthread_cond_broadcast(&p.changed);
    pthread_mutex_unlock(&p.mutex);
    for (int n = 0; n < THREADS; n++) pthread_join(p.threads[n], NULL);
    ls_server_close(server);
    return result < 0;
}
