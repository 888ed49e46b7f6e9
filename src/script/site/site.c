/* site.c - see site.h. */
#include "script/site/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io/fopen.h"
#include "base/io/log.h"
#include "base/io/output.h"
#include "base/shared.h"
#include "base/utf8.h"
#include "net/stream/poll.h"
#include "net/stream/stream_pool.h"
#include "script/bind/modules.h"
#include "script/bind/operating/look.h"
#include "script/bind/redis/redis_reader.h"
#include "script/bind/sock/udp_object_internal.h"
#include "script/bind/store/publish.h"
#include "script/bind/tasks/hooks.h"
#include "script/bind/value/buffer.h"
#include "script/bind/ws/ws.h"
#include "script/core/lua/error_text.h"
#include "script/core/lua/lua_files.h"
#include "script/core/lua/push.h"
#include "script/core/mute.h"
#include "script/core/task.h"
#include "script/database/database.h"
#include "script/database/postgres.h"
#include "script/site/site_internal.h"
#include "script/store/dict.h"

#define MODULE(name) [LS_SLOT_##name] = &ls_##name##_module,
static const ls_module *const modules[LS_SLOTS] = {LS_MODULES(MODULE)};

/* ---- the runtime ------------------------------------------------------------------------------------------- */

int ls_site_runtime_open(const ls_site_host *host, ls_runtime **out)
{
    const int err = ls_runtime_open(host, modules, LS_SLOTS, out);
    if (err < 0) return err;
    (*out)->null = ls_fopen_null(); /* once: fopen waits for a thread that flushes all streams */
    (*out)->on_look = ls_look_place;
    return err;
}

int ls_site_runtime_attach(ls_runtime *runtime, ls_port *port, struct ls_deadlines *deadlines, unsigned threads_max)
{
    int err;
    if ((err = ls_runtime_watch(runtime, threads_max)) < 0) return err;
    if ((err = ls_polls_open(port, &runtime->polls)) < 0) return err;
    if ((err = ls_stream_pool_open(port, &runtime->streams)) < 0) return err;
    runtime->port = port;
    runtime->deadlines = deadlines;
    return LS_OK;
}

void ls_site_runtime_disconnect(ls_runtime *runtime, ls_thread_ctx *ctx)
{
    if (runtime->streams == NULL) return;
    ls_pool_enter(ctx->pool); /* TLS sends close_notify */
    ls_stream_pool_disconnect(ctx, runtime->streams);
}

void ls_site_runtime_close(ls_runtime *runtime)
{
    if (runtime->null != NULL) (void)fclose(runtime->null);
    if (runtime->streams != NULL) ls_stream_pool_close(runtime->streams);
    if (runtime->polls != NULL) ls_polls_close(runtime->polls);
    ls_runtime_close(runtime);
}

int64_t ls_site_publish(const ls_runtime *runtime, const char *topic, const void *data, size_t bytes)
{
    const ls_publish_order order = {.topic = topic,
                                    .topic_len = strlen(topic),
                                    .data = ls_slice_static(data, bytes),
                                    .text = ls_utf8_valid(data, bytes)};
    return ls_topics_publish(ls_topics_of(runtime), &order);
}

int ls_site_write_memory(const ls_runtime *runtime, FILE *out)
{
    return ls_dicts_write(runtime->shared, out);
}

int ls_site_read_memory(const ls_runtime *runtime, FILE *in, unsigned *entries)
{
    return ls_dicts_read(runtime->shared, in, entries);
}

void ls_site_libraries(char *text, size_t bytes)
{
    char libpq[100];
    const char *sqlite = ls_db_library(), *redis = ls_redis_reader_library();
    (void)snprintf(text, bytes, "SQLite: %s\nRedis: %s\nPostgreSQL: %s\n", sqlite != NULL ? sqlite : "not built in",
                   redis != NULL ? redis : "not built in", ls_pg_library(libpq, sizeof libpq));
}

typedef struct tick {
    bool idle, posted, more;
} tick;

static void generation_on_tick(ls_generation *generation, void *user)
{
    tick *t = user;
    t->posted |= ls_buffers_on_tick(generation, t->idle);
    t->more |= ls_states_on_tick(generation);
}

bool ls_site_on_tick(ls_runtime *runtime, bool idle, bool *more)
{
    tick t = {.idle = idle};
    ls_runtime_each(runtime, generation_on_tick, &t);
    *more = t.more;
    return t.posted;
}

/* ---- loading ----------------------------------------------------------------------------------------------- */

typedef struct site_load {
    ls_site *site;
    ls_state *state;
    char *message;
    size_t message_bytes;
    int result;
} site_load;

/* Message handler. The message already names the line, so the traceback is logged at level debug only. */
static int load_failed(lua_State *L)
{
    const char *text = ls_error_describe(L, 1);
    if (lua_type(L, 1) != LUA_TSTRING) text = lua_pushfstring(L, "%s: %s", ls_state_of(L)->generation->path, text);
    ls_dev *dev = ls_dev_of(ls_state_runtime(ls_state_of(L)));
    if (dev != NULL || ls_log_level_get() <= LS_LOG_DEBUG) {
        ls_error_traceback(L, L, text, 1);
        if (dev != NULL) ls_dev_traceback(dev, lua_tostring(L, -1));
        ls_log(LS_LOG_DEBUG, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return 1;
}

static int load_chunk(lua_State *L, const ls_site *site)
{
    const char *name = lua_pushfstring(L, "%s%s", site->from_file ? "@" : "=", site->generation.path);
    const int status = ls_lua_text_load(L, site->source, site->source_bytes, name, NULL);
    lua_remove(L, -2);
    return status;
}

/* Call the function of the embedding program. */
static int load_open(lua_State *L)
{
    const ls_site *site = lua_touserdata(L, 1);
    lua_settop(L, 0);
    const int result = site->open(L, site->open_user);
    if (result < 0)
        return luaL_error(L, "%s: the open function of the program returned %d", site->generation.path, result);
    return 0;
}

/* Of a server that only checks: what the site defines is recorded. */
static int load_check(lua_State *L)
{
    ls_push_function(L, "luaserve.description", "begin");
    lua_call(L, 0, 0);
    return 0;
}

/* Add the control socket after the listeners of the site. */
static int load_control(lua_State *L)
{
    ls_push_function(L, "luaserve.repl", "listen");
    lua_call(L, 0, 0);
    return 0;
}

/* A limit of ls_runtime_on_load has ended the chunk, or max_cpu in a state that a worker loads. */
static void explain_exceeded(site_load *load)
{
    const ls_runtime *runtime = ls_state_runtime(load->state);
    const ls_cpu_watch *cpu = load->state->cpu;
    const bool own = cpu == &runtime->load_cpu;
    const uint64_t cpu_ns_max = atomic_load(own ? &runtime->load_cpu_ns_max : &runtime->cpu_ns_max);
    load->result = LS_ESCRIPT;
    if (own && atomic_load(&cpu->used_ns) <= cpu_ns_max)
        (void)snprintf(load->message, load->message_bytes,
                       "%s: the site took longer to load than load_timeout allows (%.3g s)", load->state->ended_at,
                       (double)atomic_load(&runtime->load_ns_max) / 1e9);
    else
        (void)snprintf(load->message, load->message_bytes,
                       "%s: the site used more processor time than max_cpu allows (%.3g s) while it loaded",
                       load->state->ended_at, (double)cpu_ns_max / 1e9);
}

/* Call a step of the load, if it is due and those before have not failed. The message handler is at index 1. */
static int run_step(lua_State *L, int status, bool due, lua_CFunction step)
{
    if (status != LUA_OK || !due) return status;
    lua_pushcfunction(L, step);
    return lua_pcall(L, 0, 0, 1);
}

static int load_main(lua_State *L)
{
    site_load *load = lua_touserdata(L, 1);
    const ls_site *site = load->site;
    ls_mute quiet = {0};
    lua_settop(L, 0);
    lua_pushcfunction(L, load_failed); /* 1 */
    if (load->state->index > 0) ls_mute_begin(L, ls_state_runtime(load->state)->null, &quiet);
    lua_createtable(L, site->argc, 1);
    lua_pushstring(L, site->generation.path);
    lua_rawseti(L, -2, 0);
    for (int n = 0; n < site->argc; n++) {
        lua_pushstring(L, site->argv[n]);
        lua_rawseti(L, -2, n + 1);
    }
    lua_setglobal(L, "arg");

    const bool dev = ls_dev_of(ls_state_runtime(load->state)) != NULL;
    const ls_site_host *host = ls_state_runtime(load->state)->host;
    int status = run_step(L, LUA_OK, dev, ls_dev_begin);
    status = run_step(L, status, host != NULL && host->check && load->state->index == 0, load_check);
    if (status == LUA_OK && site->open != NULL) {
        lua_pushcfunction(L, load_open);
        lua_pushlightuserdata(L, (void *)(uintptr_t)site);
        status = lua_pcall(L, 1, 0, 1);
    }
    if (status == LUA_OK) status = load_chunk(L, site);
    if (status == LUA_OK) {
        luaL_checkstack(L, site->argc, "too many arguments to the site");
        for (int n = 0; n < site->argc; n++) lua_pushstring(L, site->argv[n]);
        status = lua_pcall(L, site->argc, 0, 1);
    }
    status = run_step(L, status, true, ls_hooks_loaded);
    status = run_step(L, status, site->control, load_control);
    status = run_step(L, status, dev, ls_dev_loaded);
    ls_mute_end(&quiet);
    if (status == LUA_OK) return 0;
    load->result = status == LUA_ERRFILE ? LS_ENOENT : status == LUA_ERRMEM ? LS_ENOMEM : LS_ESCRIPT;
    const char *text = lua_tostring(L, -1);
    if (ls_cpu_watch_exceeded(load->state->cpu)) { /* the hook has raised Lua's memory error */
        explain_exceeded(load);
        return 0;
    }
    if (status == LUA_ERRMEM) {
        const bool by_all = load->state->refused_by_all;
        const uint64_t max = by_all ? ls_generation_lua_bytes_max(&site->generation) : load->state->bytes_max;
        (void)snprintf(load->message, load->message_bytes,
                       "%s: not enough memory: the limit of %s is %llu bytes (set by ls.config{ %s = ... })",
                       site->generation.path, by_all ? "all Lua states together" : "a Lua state",
                       (unsigned long long)max, by_all ? "max_states_memory" : "max_memory");
        return 0;
    }
    (void)snprintf(load->message, load->message_bytes, "%s",
                   text != NULL ? text : "the site failed without a message");
    return 0;
}

/* Run the site in `state`: an ls_generation_load_fn. */
static int load_state(ls_generation *generation, ls_state *state, ls_thread_ctx *ctx, char *message,
                      size_t message_bytes)
{
    ls_site *site = LS_CONTAINER(generation, ls_site, generation);
    site_load load = {site, state, message, message_bytes, LS_OK};
    const int status = ls_state_protected(state, ctx, load_main, &load);
    (void)fflush(ls_output_stdio()); /* before what the program prints */
    if (status == LUA_OK) return load.result;
    (void)snprintf(message, message_bytes, "%s: not enough memory", generation->path);
    return LS_ENOMEM;
}

/* Copy the text of the options, or read the file. LS_OK, LS_ENOMEM, or LS_ENOENT with a message. */
static int read_source(ls_site *site, const ls_site_options *options, char *message, size_t message_bytes)
{
    const char *what;
    if (options->source != NULL) {
        site->source = malloc(options->source_bytes + 1);
        if (site->source == NULL) return LS_ENOMEM;
        memcpy(site->source, options->source, options->source_bytes);
        site->source_bytes = options->source_bytes;
        return LS_OK;
    }
    const int err = ls_lua_text_read(options->path, &site->source, &site->source_bytes, &what);
    if (err == LS_ENOENT)
        (void)snprintf(message, message_bytes, "cannot %s %s: %s", what, options->path, strerror(errno));
    site->from_file = true;
    return err;
}

/* Keep a copy of the arguments: additional states are loaded when they are needed. */
static int keep_arguments(ls_site *site, const ls_site_options *options)
{
    site->argv = calloc((size_t)options->argc + 1, sizeof *site->argv);
    if (site->argv == NULL) return LS_ENOMEM;
    for (; site->argc < options->argc; site->argc++) {
        const char *text = options->argv[site->argc];
        char *copy = malloc(strlen(text) + 1);
        if (copy == NULL) return LS_ENOMEM;
        site->argv[site->argc] = strcpy(copy, text);
    }
    return LS_OK;
}

static void drop_arguments(ls_site *site)
{
    while (site->argc > 0) free(site->argv[--site->argc]);
    free(site->argv);
}

int ls_site_open(ls_runtime *runtime, const ls_site_options *options, ls_site **out, char *message,
                 size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_site *site = calloc(1, sizeof *site);
    (void)snprintf(message, message_bytes, "not enough memory to load %s", options->path);
    if (site == NULL) return err;
    ls_shared_next_generation(runtime->shared);
    site->open = options->open;
    site->open_user = options->open_user;
    site->control = options->control;
    site->generation.load = load_state;
    if ((err = ls_generation_init(&site->generation, runtime, options->path)) < 0) goto fail;
    if ((err = keep_arguments(site, options)) < 0) goto fail;
    if (ls_dev_of(runtime) != NULL && options->source == NULL)
        (void)ls_dev_file(ls_dev_of(runtime), options->path, LS_DEV_SOURCE);
    if ((err = read_source(site, options, message, message_bytes)) < 0) goto fail;
    if ((err = ls_generation_add_state(&site->generation, &site->generation.load_ctx, message, message_bytes)) < 0)
        goto fail;
    if (options->listen_on != NULL && (err = ls_site_listen_on(site, options->listen_on, message, message_bytes)) < 0)
        goto fail;
    if (message_bytes > 0) message[0] = '\0';
    *out = site;
    return LS_OK;

fail:
    ls_site_close(site);
    return err;
}

/* ---- what it defines --------------------------------------------------------------------------------------- */

static ls_site_entry *entry_of(const ls_site *site, unsigned index)
{
    return ls_definition_get(&site->generation, LS_SLOT_listener, index);
}

static ls_site_udp_entry *udp_of(const ls_site *site, unsigned index)
{
    return ls_definition_get(&site->generation, LS_SLOT_udp, index);
}

const ls_site_settings *ls_site_settings_get(const ls_site *site)
{
    return &site->generation.settings;
}

unsigned ls_site_listener_count(const ls_site *site)
{
    return ls_definition_count(&site->generation, LS_SLOT_listener);
}

const ls_site_listener *ls_site_listener_get(const ls_site *site, unsigned index)
{
    return &entry_of(site, index)->listener;
}

const ls_http_handler *ls_site_http_handler(ls_site *site, unsigned listener)
{
    return &entry_of(site, listener)->handler.base;
}

ls_tcp_server *ls_site_tcp_server(ls_site *site, unsigned index, ls_conn_limit *limit)
{
    ls_site_entry *entry = entry_of(site, index);
    entry->tcp = (ls_tcp_server){&site->generation, index, entry->listener.tcp, limit};
    return &entry->tcp;
}

ls_tcp_server *ls_site_control(ls_site *site, ls_conn_limit *limit)
{
    const ls_listeners *listeners = ls_listeners_of(ls_generation_first(&site->generation));
    site->control_server = (ls_tcp_server){&site->generation, LS_LISTENER_CONTROL, listeners->control, limit};
    return &site->control_server;
}

typedef struct site_describe {
    bool as_json;
    unsigned threads, threads_max;
} site_describe;

static int describe_main(lua_State *L)
{
    const site_describe *describe = lua_touserdata(L, 1);
    ls_push_function(L, "luaserve.description", "print");
    lua_pushboolean(L, describe->as_json);
    lua_pushinteger(L, describe->threads);
    lua_pushinteger(L, describe->threads_max);
    lua_pushstring(L, ls_port_backend());
    lua_call(L, 4, 0);
    return 0;
}

void ls_site_describe(ls_site *site, bool as_json, unsigned threads, unsigned threads_max)
{
    site_describe describe = {as_json, threads, threads_max};
    ls_generation *g = &site->generation;
    (void)ls_state_protected(ls_generation_first(g), &g->load_ctx, describe_main, &describe);
}

static int files_main(lua_State *L)
{
    char **out = lua_touserdata(L, 1);
    size_t len;
    ls_push_function(L, "luaserve.description", "files");
    lua_call(L, 0, 1);
    const char *text = lua_tolstring(L, -1, &len);
    if ((*out = malloc(len + 1)) != NULL) memcpy(*out, text, len + 1);
    return 0;
}

char *ls_site_files(ls_site *site)
{
    char *text = NULL;
    ls_generation *g = &site->generation;
    (void)ls_state_protected(ls_generation_first(g), &g->load_ctx, files_main, &text);
    return text;
}

bool ls_site_logs_requests(const ls_site *site)
{
    return ls_hooks_of(ls_generation_first(&site->generation))->at[LS_HOOK_LOG].count > 0;
}

bool ls_site_has_work(const ls_site *site)
{
    return ls_site_has_init(site) || ls_site_follows_init(site);
}

bool ls_site_follows_init(const ls_site *site)
{
    const ls_state *state = ls_generation_first(&site->generation);
    return ls_generation_serves(&site->generation) || state->holds > 0 ||
           ls_hooks_of(state)->at[LS_HOOK_START].count > 0;
}

unsigned ls_site_udp_count(const ls_site *site)
{
    return ls_definition_count(&site->generation, LS_SLOT_udp);
}

const ls_site_udp *ls_site_udp_get(const ls_site *site, unsigned index)
{
    return &udp_of(site, index)->udp;
}

void *ls_site_udp_user(ls_site *site, unsigned index)
{
    return udp_of(site, index);
}

void ls_site_udp_bound(ls_site *site, unsigned index, ls_udp *udp)
{
    ls_site_udp_entry *entry = udp_of(site, index);
    entry->sockets[entry->socket_count++] = udp;
}

bool ls_site_has_host_hooks(const ls_site *site)
{
    return ls_host_has_hooks(&site->generation);
}

void ls_site_post(ls_site *site, ls_thread_ctx *ctx, ls_host_post *post)
{
    ls_host_deliver(&site->generation, ctx, post);
}

/* ---- the life ---------------------------------------------------------------------------------------------- */

/* State n; NULL: it is being made. */
static ls_state *state_at(const ls_site *site, unsigned n)
{
    return atomic_load(&site->generation.states[n]);
}

static unsigned state_count(const ls_site *site)
{
    return atomic_load(&site->generation.state_count);
}

int ls_site_ready(ls_site *site, unsigned threads, unsigned threads_max, char *message, size_t message_bytes)
{
    ls_generation *g = &site->generation;
    g->takes_turns = ls_dev_of(g->runtime) != NULL;
    if (g->takes_turns) {
        threads = LS_DEV_STATES;
        if (threads_max < threads) threads_max = threads;
    }
    const unsigned set_max = g->settings.states_max,
                   states_max = set_max > 0 && set_max < threads_max ? set_max : threads_max;
    g->refuses = states_max == threads_max && states_max > threads;
    int err = ls_generation_room(g, states_max);
    (void)snprintf(message, message_bytes, "not enough memory for %u Lua states", states_max);
    if (err < 0) return err;
    ls_runtime_add(g->runtime, g); /* not before: the room for the states moved */
    g->running_count = threads;
    ls_pool_enter(g->load_pool);
    while (state_count(site) < threads && state_count(site) < states_max)
        if ((err = ls_generation_add_state(g, &g->load_ctx, message, message_bytes)) < 0) return err;
    for (unsigned n = 0; n < state_count(site); n++) ls_state_loaded(state_at(site, n));
    if (message_bytes > 0) message[0] = '\0';
    return LS_OK;
}

/* A state that is made meanwhile and is not in the list yet looks at the phase when it has loaded (generation.c). */
static void post_steps(ls_site *site)
{
    for (unsigned n = 0; n < state_count(site); n++)
        if (state_at(site, n) != NULL) ls_state_post_step(state_at(site, n), site->generation.runtime->port);
}

void ls_site_apply(ls_site *site)
{
    ls_generation *g = &site->generation;
    ls_log_mask_addresses(g->settings.mask_addresses);
    if (g->settings.handler_cpu_ms_max > 0)
        atomic_store(&g->runtime->cpu_ns_max, (uint64_t)g->settings.handler_cpu_ms_max * 1000000);
    else
        atomic_store(&g->runtime->cpu_ns_max, (uint64_t)LS_HANDLER_CPU_MS_MAX * 1000000);
}

bool ls_site_has_init(const ls_site *site)
{
    return ls_hooks_of(ls_generation_first(&site->generation))->at[LS_HOOK_INIT].count > 0;
}

static void run_init(ls_thread_ctx *ctx, ls_op *op)
{
    ls_site *site = LS_CONTAINER(op, ls_site, init_op);
    ls_state *state = ls_generation_first(&site->generation);
    ls_hooks_init(ctx, state, site->init_reload);
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
}

void ls_site_init(ls_site *site, bool reload)
{
    ls_state *state = ls_generation_first(&site->generation);
    ls_site_apply(site);
    site->init_reload = reload;
    site->init_op = (ls_op){.done = run_init, .actor = &state->actor};
    atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed); /* until the task counts */
    ls_port_post(site->generation.runtime->port, &site->init_op, 0);
}

void ls_site_hold_jobs(ls_site *site)
{
    atomic_store(&site->generation.holds_jobs, true);
}

void ls_site_begin_jobs(ls_site *site)
{
    if (atomic_exchange(&site->generation.holds_jobs, false)) post_steps(site);
}

void ls_site_start(ls_site *site, ls_site *previous)
{
    ls_generation *g = &site->generation;
    ls_site_apply(site);
    atomic_store_explicit(&g->states_left, state_count(site), memory_order_relaxed);
    g->topic_site = ls_topics_site_starts(ls_topics_of(g->runtime));
    if (previous != NULL) /* after the last message of its own */
        atomic_fetch_or(&previous->generation.ending, 1u << LS_END_REPLACED);
    atomic_store(&g->started, true);
    post_steps(site);
}

void ls_site_end_work(ls_site *site, enum ls_end_why why)
{
    atomic_fetch_or(&site->generation.ending, 1u << why);
    for (unsigned n = 0; n < state_count(site); n++) {
        ls_state *const state = state_at(site, n);
        if (state != NULL && !atomic_load(&state->closed) && !ls_state_is_ending(state, why))
            ls_state_post_step(state, site->generation.runtime->port);
    }
}

bool ls_site_unfinished(const ls_site *site, unsigned counts[LS_SCOPES])
{
    for (unsigned n = 0; n < state_count(site); n++) {
        const ls_state *const state = state_at(site, n);
        if (state != NULL && !atomic_load(&state->closed) && !ls_state_is_ending(state, LS_END_TIME) &&
            !ls_state_is_ending(state, LS_END_CLOSED))
            return false;
    }
    for (int scope = 0; scope < LS_SCOPES; scope++) counts[scope] = atomic_load(&site->generation.unfinished[scope]);
    return true;
}

void ls_site_add_running(const ls_site *site, unsigned counts[LS_SCOPES])
{
    for (unsigned n = 0; n < state_count(site); n++)
        if (state_at(site, n) != NULL) ls_state_add_running(state_at(site, n), counts);
}

void ls_site_report(ls_site *site, bool ended)
{
    atomic_store(&site->generation.reporting, ended ? LS_REPORT_ENDED : LS_REPORT_WAITING);
    post_steps(site);
}

bool ls_site_reported(const ls_site *site)
{
    for (unsigned n = 0; n < state_count(site); n++)
        if (state_at(site, n) != NULL && !atomic_load(&state_at(site, n)->closed) &&
            atomic_load(&state_at(site, n)->reported) < atomic_load(&site->generation.reporting))
            return false;
    return true;
}

unsigned ls_site_ask_status(ls_site *site, const ls_log_target *to)
{
    ls_generation *g = &site->generation;
    unsigned left = 0;
    if (to != NULL) {
        g->status_to = to;
        atomic_fetch_add(&g->status_turn, 1);
        post_steps(site);
    }
    for (unsigned n = 0; n < state_count(site); n++)
        left += state_at(site, n) != NULL && !atomic_load(&state_at(site, n)->closed) &&
                atomic_load(&state_at(site, n)->status_turn) != atomic_load(&g->status_turn);
    return left;
}

void ls_site_disconnect(ls_site *site)
{
    atomic_store(&site->generation.closing, LS_CLOSING_DISCONNECT);
    post_steps(site);
}

bool ls_site_end(ls_site *site, bool force)
{
    bool ended = true;
    ls_generation *g = &site->generation;
    if (force || atomic_load(&g->closing) != LS_CLOSING_FORCED)
        atomic_store(&g->closing, force ? LS_CLOSING_FORCED : LS_CLOSING);
    for (unsigned n = 0; n < state_count(site); n++) {
        ls_state *state = state_at(site, n);
        if (state == NULL || ls_state_is_released(state)) continue;
        ended = false;
        if (!atomic_load(&state->closed)) ls_state_post_step(state, g->runtime->port);
    }
    return ended && atomic_load(&g->waiting) == 0;
}

uint32_t ls_site_connections(const ls_site *site)
{
    ls_mutex *const mutex = &site->generation.runtime->mutex; /* no state is closed meanwhile */
    uint32_t sum = 0;
    ls_mutex_lock(mutex);
    for (unsigned n = 0; n < state_count(site); n++) {
        const ls_state *state = state_at(site, n);
        if (state != NULL && !atomic_load(&state->closed))
            sum += atomic_load(&ls_tcps_of(state)->live) + atomic_load(&ls_wss_of(state)->live);
    }
    ls_mutex_unlock(mutex);
    return sum;
}

unsigned ls_site_websockets(const ls_site *site)
{
    unsigned sum = 0;
    for (unsigned n = 0; n < state_count(site); n++)
        if (state_at(site, n) != NULL)
            sum += atomic_load_explicit(&state_at(site, n)->long_lived, memory_order_relaxed);
    return sum;
}

unsigned ls_site_busy(const ls_site *site)
{
    ls_mutex *const mutex = &site->generation.runtime->mutex; /* no state is closed meanwhile */
    unsigned sum = atomic_load(&site->generation.waiting);
    ls_mutex_lock(mutex);
    for (unsigned n = 0; n < state_count(site); n++) {
        const ls_state *state = state_at(site, n);
        if (state == NULL) continue;
        sum += atomic_load_explicit(&state->busy, memory_order_relaxed);
        if (atomic_load(&state->closed)) continue;
        sum += atomic_load(&ls_tcps_of(state)->finishing) + atomic_load(&ls_wss_of(state)->finishing);
    }
    ls_mutex_unlock(mutex);
    return sum;
}

void ls_site_close_sockets(ls_site *site, ls_thread_ctx *ctx)
{
    const ls_generation *g = &site->generation;
    for (unsigned n = 0; n < state_count(site); n++) {
        ls_state *state = state_at(site, n);
        if (state == NULL || atomic_load(&state->closed)) continue;
        for (unsigned slot = 0; slot < g->module_count; slot++)
            if (g->modules[slot]->disconnect != NULL) g->modules[slot]->disconnect(ctx, state);
    }
}

void ls_site_close(ls_site *site)
{
    ls_generation *g = &site->generation;
    ls_runtime_remove(g->runtime, g);                /* the watchdog sees it no more */
    for (unsigned n = 0; n < state_count(site); n++) /* first: a finalizer of one state may reach another one */
        if (state_at(site, n) != NULL && !atomic_load(&state_at(site, n)->closed))
            ls_state_disconnect(state_at(site, n));
    for (unsigned n = state_count(site); n-- > 0;) {
        if (state_at(site, n) != NULL) ls_state_free(state_at(site, n));
        atomic_store(&g->states[n], NULL); /* a finalizer of another one may need memory: it counts that of all */
    }
    ls_generation_finish(g);
    drop_arguments(site);
    free(site->source);
    free(site);
}
