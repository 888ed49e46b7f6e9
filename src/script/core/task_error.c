/* task_error.c - errors of tasks: how they are kept, described and logged. See task.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io/log.h"
#include "script/core/lua/error_text.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/task.h"

static bool is_line_of_site(lua_State *co, lua_Debug *ar)
{
    return lua_getinfo(co, "Sl", ar) != 0 && ar->currentline > 0 &&
           strncmp(ar->source, LS_LUA_SOURCE_PREFIX, sizeof LS_LUA_SOURCE_PREFIX - 1) != 0;
}

bool ls_task_find_line(lua_State *co, lua_Debug *ar)
{
    for (int level = 0; lua_getstack(co, level, ar); level++)
        if (is_line_of_site(co, ar)) return true;
    return false;
}

void ls_task_sent_late(lua_State *L)
{
    char line[128];
    ls_task *task = ls_state_of(L)->current;
    if (task == NULL || ++task->late != LS_TASK_LATE_MAX) return;
    ls_task_line(L, line, sizeof line);
    ls_log(
        LS_LOG_WARN,
        "%s: a function has sent %d times to a connection that has ended: end its loop when send returns nil, as in "
        "while ws:send(...) do",
        line, LS_TASK_LATE_MAX);
}

void ls_task_check_late(lua_State *L, uint16_t *late, const char *call, const char *loop)
{
    if (++*late >= LS_TASK_LATE_MAX)
        luaL_error(
            L, "%s has returned nil %d times in a row, since the connection has ended: end the loop then, as in %s",
            call, LS_TASK_LATE_MAX, loop);
}

void ls_task_line(lua_State *co, char *out, size_t out_bytes)
{
    lua_Debug ar;
    out[0] = '\0';
    if (ls_task_find_line(co, &ar)) (void)snprintf(out, out_bytes, "%s:%d", ar.short_src, ar.currentline);
}

void ls_task_failed(lua_State *L, const char *reason)
{
    ls_state *state = ls_state_of(L);
    lua_Debug ar;
    if (state->current == NULL || state->current->co != L) return;
    unsigned within = 0; /* functions of luaserve: one returns the results of the call */
    for (int level = 1; lua_getstack(L, level, &ar) && lua_getinfo(L, "Sl", &ar); level++) {
        if (ar.what[0] == 'C' || strcmp(ar.source, LS_LUA_SOURCE_PREFIX "usage.lua") == 0) continue; /* usage.call */
        if (strncmp(ar.source, LS_LUA_SOURCE_PREFIX, sizeof LS_LUA_SOURCE_PREFIX - 1) == 0 && within++ == 0) continue;
        if (within > 1) return;
        state->failed.task = state->current;
        state->failed.message = state->current->message;
        (void)snprintf(state->failed.text, sizeof state->failed.text, "%s:%d: %s", ar.short_src, ar.currentline,
                       reason);
        return;
    }
}

/* Append to the text on top of the stack the error that was kept before. */
static void push_reason(lua_State *L, const ls_task *task)
{
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, task);
    lua_pushfstring(L, "%s\nwhile a variable was closed because of: %s", lua_tostring(L, -2), lua_tostring(L, -1));
    lua_replace(L, -3);
    lua_pop(L, 1);
}

/* Whether names.lua can say what was meant: a call of a method that is nil or no function, or ipairs or pairs of an iterator. */
static bool may_hint(const char *text)
{
    const char *const called = strstr(text, "attempt to call a");
    return (called != NULL && strstr(called, " value (method '") != NULL) ||
           strcmp(text, "attempt to index a function value") == 0 ||
           strstr(text, "'for iterator' (table expected, got function)") != NULL;
}

/* Add to the message at index 1 what names.lua says. */
static int push_hint(lua_State *L)
{
    ls_push_function(L, "luaserve.names", "hint");
    return 1;
}

/* Add to the message at index 1 the last call that has failed in the task, if the value of a local variable or of a call
 * is nil. */
static void add_failed(lua_State *L)
{
    static const char nil[] = " a nil value";
    const ls_state *state = ls_state_of(L);
    const char *message = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    const char *what = message != NULL ? strstr(message, nil) : NULL;
    if (what == NULL || state->failed.task != state->current || state->failed.message != state->current->message)
        return;
    what += sizeof nil - 1;
    if (*what != '\0' && strncmp(what, " (local", 7) != 0 && strncmp(what, " (upvalue", 9) != 0) return;
    lua_pushfstring(L, "%s; the last call that failed before: %s", message, state->failed.text);
    lua_replace(L, 1);
}

/* An error in a C function that the site has called, such as a loop over ipairs(nil) or a comparison in table.sort, names no line:
 * add that of the caller. */
static void add_place(lua_State *L)
{
    lua_Debug at;
    const char *message = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    if (message == NULL || strncmp(message, "attempt to ", 11) != 0 || !lua_getstack(L, 1, &at)) return;
    (void)lua_getinfo(L, "n", &at);
    const char *in = strcmp(at.namewhat, "for iterator") == 0 ? "in ipairs(...): " : "";
    for (int level = 1; lua_getstack(L, level, &at); level++) {
        (void)lua_getinfo(L, "Sl", &at);
        if (at.currentline <= 0 || strncmp(at.source, "@luaserve/", 10) == 0) continue;
        lua_pushfstring(L, "%s:%d: %s%s", at.short_src, at.currentline, in, message);
        lua_replace(L, 1);
        return;
    }
}

static void add_hint(lua_State *L)
{
    add_failed(L);
    if (lua_type(L, 1) != LUA_TSTRING || !may_hint(lua_tostring(L, 1))) return;
    lua_pushcfunction(L, push_hint);
    if (lua_pcall(L, 0, 1, 0) == LUA_OK) {
        lua_pushvalue(L, 1);
        if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_isstring(L, -1)) lua_replace(L, 1);
    }
    lua_settop(L, 1);
}

int ls_task_keep_error(lua_State *L)
{
    ls_task *task = ls_state_of(L)->current;
    lua_settop(L, 1);
    add_hint(L);
    add_place(L);
    task->client_is = LS_CLIENT_IGNORED; /* the __close functions may wait, although the client has left or leaves
                                          * now */
    if (ls_task_is_left_error(L, 1)) return 1;
    const char *const message = ls_error_describe(L, 1), *before = NULL;
    if (task->traced) {
        (void)lua_rawgetp(L, LUA_REGISTRYINDEX, task);
        before = lua_tostring(L, -1);
    }
    if (before == NULL || strncmp(before, message, strlen(message)) != 0) { /* else it is raised again */
        ls_error_traceback(L, L, message, 1);
        if (before != NULL) push_reason(L, task);
        lua_rawsetp(L, LUA_REGISTRYINDEX, task);
        task->traced = true;
    }
    lua_settop(L, 1);
    return 1;
}

void ls_task_drop_error(ls_task *task)
{
    if (!task->traced) return;
    task->traced = false;
    lua_pushnil(task->state->L);
    lua_rawsetp(task->state->L, LUA_REGISTRYINDEX, task);
}

void ls_task_push_traceback(lua_State *L, ls_task *task, const char *message)
{
    if (task->traced && !task->cpu_exceeded) {
        (void)lua_rawgetp(L, LUA_REGISTRYINDEX, task);
    } else if (!task->cpu_exceeded && task->state->refused_at[0] != '\0') {
        lua_pushfstring(L, "%s: %s", task->state->refused_at, message);
    } else {
        ls_error_traceback(L, task->co, message, 0);
        if (task->traced) push_reason(L, task); /* a limit has ended a __close function */
    }
}

static const char canceled_text[] = "the task was ended while it waited: its site was replaced or stopped";

const char *ls_task_push_exceeded(lua_State *L, const ls_task *task, const char *route)
{
    const ls_state *state = task->state;
    char text[400];
    if (ls_task_is_canceled(task)) return lua_pushstring(L, canceled_text);
    (void)snprintf(text, sizeof text, "%s%s%s%s %s (%.3g s)", state->ended_at, state->ended_at[0] != '\0' ? ": " : "",
                   route != NULL ? "the handler of " : "the task", route != NULL ? route : "",
                   task->ending == LS_END_TIMEOUT ? "waited for longer than timeout allows"
                                                  : "used more processor time than max_cpu allows",
                   task->ending == LS_END_TIMEOUT ? task->time_ms_max / 1e3
                                                  : (double)atomic_load(&ls_state_runtime(state)->cpu_ns_max) / 1e9);
    return lua_pushstring(L, text);
}

static const char left_text[] = "the client has left while the handler waited";

typedef struct task_error {
    ls_task *task;
    const char *what;
    char *text; /* NULL, or receives the message */
    size_t text_bytes;
} task_error;

static int log_error_protected(lua_State *L)
{
    const task_error *error = lua_touserdata(L, 1);
    lua_settop(L, 0);
    ls_task_copy_error(L, error->task->co);
    const char *message =
        error->task->cpu_exceeded ? ls_task_push_exceeded(L, error->task, NULL) : ls_error_describe(L, 1);
    if (error->text != NULL) (void)snprintf(error->text, error->text_bytes, "%s", message);
    ls_task_push_traceback(L, error->task, message);
    ls_error_log(L, 1, error->what, lua_tostring(L, -1));
    return 0;
}

/* " (site.lua:5)", where the function of the task begins, or "". */
static void function_line(lua_State *co, char *out, size_t out_bytes)
{
    lua_Debug ar;
    out[0] = '\0';
    for (int level = 0; lua_getstack(co, level, &ar); level++)
        if (is_line_of_site(co, &ar)) (void)snprintf(out, out_bytes, " (%s:%d)", ar.short_src, ar.linedefined);
}

void ls_task_log_error_to(ls_thread_ctx *ctx, ls_task *task, const char *what, char *text, size_t text_bytes)
{
    if (text != NULL)
        (void)snprintf(text, text_bytes, "%s", ls_task_is_canceled(task) ? canceled_text : "not enough memory");
    if (ls_task_is_canceled(task)) {
        char function[80], line[80];
        if (task->ending == LS_END_SPARE) return;
        ls_task_line(task->co, line, sizeof line);
        function_line(task->co, function, sizeof function);
        const bool unfinished = task->ending > LS_END_UNUSED && line[0] != '\0';
        ls_log(unfinished ? LS_LOG_WARN : LS_LOG_INFO, "%s%s%s%s: %s", what, function, line[0] != '\0' ? ", at " : "",
               line, canceled_text);
        return;
    }
    if (ls_task_is_left_error(task->co, -1)) {
        if (text != NULL) (void)snprintf(text, text_bytes, "%s", left_text);
        ls_log(LS_LOG_INFO, "%s: %s", what, lua_tostring(task->co, -1));
        return;
    }
    task_error error = {task, what, text, text_bytes};
    if (ls_state_report(task->state, ctx, log_error_protected, &error) != LUA_OK)
        ls_log(LS_LOG_ERROR, "%s: not enough memory", what);
}

void ls_task_log_failure(lua_State *L, int first, const char *what)
{
    const char *code = lua_type(L, first + 2) == LUA_TSTRING ? lua_tostring(L, first + 2) : "";
    if (lua_isnil(L, first) && lua_isstring(L, first + 1) && code[0] == 'E' && strcmp(code, "ECLOSED") != 0)
        ls_log(LS_LOG_WARN, "%s has returned nil, which nothing looks at: %s", what, lua_tostring(L, first + 1));
}

int ls_task_error(lua_State *L, const char *format, ...)
{
    char line[80];
    va_list arguments;
    ls_task_line(L, line, sizeof line);
    lua_pushfstring(L, "%s%s", line, line[0] != '\0' ? ": " : "");
    va_start(arguments, format);
    lua_pushvfstring(L, format, arguments);
    va_end(arguments);
    lua_concat(L, 2);
    return lua_error(L);
}

int ls_task_left_error(lua_State *L, const char *what)
{
    return ls_task_error(L, "%s%s", what, left_text);
}

bool ls_task_is_left_error(lua_State *L, int index)
{
    size_t len = 0;
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tolstring(L, index, &len) : NULL;
    return len >= sizeof left_text - 1 && strcmp(text + len - (sizeof left_text - 1), left_text) == 0;
}
