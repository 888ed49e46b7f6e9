/* site.c - see site.h. */
#include "script/site/site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fopen.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/poll.h"
#include "net/resolver.h"
#include "script/bind/bind.h"
#include "script/bind/buffer.h"
#include "script/bind/tls_contexts.h"
#include "script/bind/udp_internal.h"
#include "script/core/bytecode.h"
#include "script/core/error_text.h"
#include "script/core/quiet.h"
#include "script/core/task.h"
#include "script/site/site_internal.h"

/* The pause between two full collections of a busy state: this multiple of the duration of the last one, at least
 * MIN. */
enum { COLLECT_ALL_SHARE = 100, COLLECT_ALL_MS_MIN = 5000 };

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
    if (lua_type(L, 1) != LUA_TSTRING) text = lua_pushfstring(L, "%s: %s", ls_state_of(L)->site->path, text);
    if (ls_log_level_get() <= LS_LOG_DEBUG) {
        luaL_traceback(L, L, text, 1);
        ls_log(LS_LOG_DEBUG, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return 1;
}

/* Load the chunk. As luaL_loadfile does, skip a byte order mark and a first line that begins with '#'. */
static int load_chunk(lua_State *L, const ls_site *site)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *text = site->source;
    size_t bytes = site->source_bytes;
    if (text == NULL) return luaL_loadfile(L, site->path);
    if (bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1;
        bytes -= sizeof mark - 1;
    }
    if (bytes > 0 && text[0] == '#') {
        const char *end = memchr(text, '\n', bytes); /* kept, so that the lines keep their numbers */
        const size_t skipped = end != NULL ? (size_t)(end - text) : bytes;
        text += skipped;
        bytes -= skipped;
    }
    const char *name = lua_pushfstring(L, "=%s", site->path);
    const int status = luaL_loadbufferx(L, text, bytes, name, NULL);
    lua_remove(L, -2);
    return status;
}

/* Call the function of the embedding program. */
static int load_open(lua_State *L)
{
    const ls_site *site = lua_touserdata(L, 1);
    lua_settop(L, 0);
    const int result = site->open(L, site->open_user);
    if (result < 0) return luaL_error(L, "%s: the open function of the program returned %d", site->path, result);
    return 0;
}

/* Add the control socket behind the listeners of the site. */
static int load_control(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "luaserve.repl");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "listen");
    lua_call(L, 0, 0);
    return 0;
}

static int load_main(lua_State *L)
{
    site_load *load = lua_touserdata(L, 1);
    const ls_site *site = load->site;
    ls_quiet quiet = {0};
    lua_settop(L, 0);
    lua_pushcfunction(L, load_failed); /* 1 */
    if (load->state->index > 0) ls_quiet_begin(L, site->null, &quiet);
    lua_createtable(L, site->argc, 1);
    lua_pushstring(L, site->path);
    lua_rawseti(L, -2, 0);
    for (int n = 0; n < site->argc; n++) {
        lua_pushstring(L, site->argv[n]);
        lua_rawseti(L, -2, n + 1);
    }
    lua_setglobal(L, "arg");

    int status = LUA_OK;
    if (site->open != NULL) {
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
    if (status == LUA_OK && site->control) {
        lua_pushcfunction(L, load_control);
        status = lua_pcall(L, 0, 0, 1);
    }
    ls_quiet_end(&quiet);
    if (status == LUA_OK) return 0;
    load->result = status == LUA_ERRFILE ? LS_ENOENT : status == LUA_ERRMEM ? LS_ENOMEM : LS_ESCRIPT;
    const char *text = lua_tostring(L, -1);
    if (status == LUA_ERRMEM) {
        (void)snprintf(
            load->message, load->message_bytes,
            "%s: not enough memory: the limit of a Lua state is %zu bytes (set by ls.config{ max_memory = ... })",
            site->path, load->state->bytes_max);
        return 0;
    }
    (void)snprintf(load->message, load->message_bytes, "%s",
                   text != NULL ? text : "the site failed without a message");
    return 0;
}

/* Run the file in `state`. */
static int site_load_state(ls_site *site, ls_state *state, char *message, size_t message_bytes)
{
    site_load load = {site, state, message, message_bytes, LS_OK};
    state->loading = true;
    const int status = ls_state_protected(state, &site->load_ctx, load_main, &load);
    state->loading = false;
    if (status == LUA_OK) return load.result;
    (void)snprintf(message, message_bytes, "%s: not enough memory", site->path);
    return LS_ENOMEM;
}

int ls_site_open(const ls_site_options *options, ls_site **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_site *site = calloc(1, sizeof *site);
    (void)snprintf(message, message_bytes, "not enough memory to load %s", options->path);
    if (site == NULL) return err;
    site->argc = options->argc;
    site->argv = options->argv;
    site->host = options->host;
    site->source = options->source;
    site->source_bytes = options->source_bytes;
    site->open = options->open;
    site->open_user = options->open_user;
    site->control = options->control;
    site->load_cpu.joined = true; /* the watchdog does not check it, so it needs no thread */
    site->cpu_ns_max = (uint64_t)LS_HANDLER_CPU_MS_MAX * 1000000;
    site->path = malloc(strlen(options->path) + 1);
    site->entries = calloc(LS_LISTENERS_MAX, sizeof(ls_site_entry *));
    site->udp_entries = calloc(LS_UDP_ENTRIES_MAX, sizeof(ls_site_udp_entry *));
    site->states = calloc(1, sizeof(ls_state *));
    if (site->udp_entries == NULL || site->path == NULL || site->entries == NULL || site->states == NULL) goto fail;
    memcpy(site->path, options->path, strlen(options->path) + 1);

    if ((err = ls_file_cache_open(&ls_file_cache_defaults, &site->files)) < 0) goto fail;
    if ((err = ls_bytecode_open(&site->bytecode)) < 0) goto fail;
    if ((err = ls_pools_open(LS_LOAD_POOL_BYTES_MAX, &site->load_pools)) < 0) goto fail;
    if ((err = ls_pool_open(site->load_pools, &site->load_pool)) < 0) goto fail;
    ls_pool_enter(site->load_pool);
    ls_thread_ctx_init(&site->load_ctx, NULL, site->load_pool, 0);

    err = ls_state_open(site, 0, (size_t)LS_LUA_MIB_MAX << 20, &site->states[0], message, message_bytes);
    if (err < 0) goto fail;
    site->state_count = 1;
    if ((err = site_load_state(site, site->states[0], message, message_bytes)) < 0) goto fail;
    if (site->settings.handler_cpu_ms_max > 0)
        site->cpu_ns_max = (uint64_t)site->settings.handler_cpu_ms_max * 1000000;
    if (message_bytes > 0) message[0] = '\0';
    *out = site;
    return LS_OK;

fail:
    ls_site_close(site);
    return err;
}

const ls_site_settings *ls_site_settings_get(const ls_site *site)
{
    return &site->settings;
}

unsigned ls_site_listener_count(const ls_site *site)
{
    return site->entry_count;
}

const ls_site_listener *ls_site_listener_get(const ls_site *site, unsigned index)
{
    return &site->entries[index]->listener;
}

const ls_http_handler *ls_site_http_handler(ls_site *site, unsigned listener)
{
    return &site->entries[listener]->handler.base;
}

ls_tcp_server *ls_site_tcp_server(ls_site *site, unsigned index, ls_conn_limit *limit)
{
    ls_site_entry *entry = site->entries[index];
    entry->tcp = (ls_tcp_server){site, index, entry->listener.tcp, limit};
    return &entry->tcp;
}

ls_tcp_server *ls_site_control(ls_site *site, ls_conn_limit *limit)
{
    unsigned index = site->entry_count - 1; /* repl.lua added it after the listeners of the site */
    while (!site->entries[index]->listener.control) index--;
    return ls_site_tcp_server(site, index, limit);
}

const char *ls_site_routes(const ls_site *site, unsigned index)
{
    const char *routes = site->entries[index]->routes;
    return routes != NULL ? routes : "";
}

unsigned ls_site_served(const ls_site *site)
{
    return site->entry_count + site->udp_count - (site->control ? 1 : 0);
}

bool ls_site_has_work(const ls_site *site)
{
    const ls_state *state = site->states[0];
    return ls_site_served(site) > 0 || state->timers_live > 0 || state->once.count > 0 ||
           state->hooks[LS_HOOK_START].count > 0;
}

unsigned ls_site_udp_count(const ls_site *site)
{
    return site->udp_count;
}

const ls_site_udp *ls_site_udp_get(const ls_site *site, unsigned index)
{
    return &site->udp_entries[index]->udp;
}

void *ls_site_udp_user(ls_site *site, unsigned index)
{
    return site->udp_entries[index];
}

void ls_site_udp_bound(ls_site *site, unsigned index, ls_udp *udp)
{
    ls_site_udp_entry *entry = site->udp_entries[index];
    entry->sockets[entry->socket_count++] = udp;
}

static void start_done(ls_thread_ctx *ctx, ls_op *op);
static void drain_done(ls_thread_ctx *ctx, ls_op *op);
static void collect_done(ls_thread_ctx *ctx, ls_op *op);
static void disconnect_done(ls_thread_ctx *ctx, ls_op *op);

int ls_site_ready_ctxs(ls_site *site, ls_port *port, struct ls_deadlines *deadlines, ls_thread_ctx **ctxs,
                       unsigned count, char *message, size_t message_bytes)
{
    const size_t bytes_max =
        site->settings.lua_bytes_max > 0 ? (size_t)site->settings.lua_bytes_max : (size_t)LS_LUA_MIB_MAX << 20;
    ls_state **states = realloc(site->states, count * sizeof(ls_state *));
    int err = LS_ENOMEM;
    (void)snprintf(message, message_bytes, "not enough memory for %u Lua states", count);
    if (states == NULL) return err;
    site->states = states;
    if (count > site->state_count) site->null = ls_fopen_null(); /* NULL: the output appears once per state */
    for (unsigned n = site->state_count; n < count; n++) {
        ls_state *state;
        if ((err = ls_state_open(site, n, bytes_max, &state, message, message_bytes)) < 0) return err;
        site->states[n] = state;
        site->state_count = n + 1;
        if ((err = site_load_state(site, state, message, message_bytes)) < 0) return err;
        if (state->udp->handler_count != site->udp_count) {
            (void)snprintf(
                message, message_bytes,
                "%s defines %u UDP sockets in one Lua state and %u in another: all states must define the same",
                site->path, site->udp_count, state->udp->handler_count);
            return LS_ESCRIPT;
        }
        if (state->listener_count != site->entry_count) {
            (void)snprintf(
                message, message_bytes,
                "%s defines %u listeners in one Lua state and %u in another: all states must define the same",
                site->path, site->entry_count, state->listener_count);
            return LS_ESCRIPT;
        }
    }
    ls_bytecode_close(site->bytecode);
    site->bytecode = NULL;
    site->source = NULL;
    if (site->null != NULL) (void)fclose(site->null);
    site->null = NULL;
    (void)snprintf(message, message_bytes, "not enough memory for %u Lua states", count);
    site->cpus = ls_memory_aligned(_Alignof(ls_cpu_watch), count * sizeof *site->cpus);
    if (site->cpus == NULL) return LS_ENOMEM;
    memset((void *)site->cpus, 0, count * sizeof *site->cpus);
    site->cpu_count = count;
    if ((err = ls_cpu_limit_install(ls_state_hook)) < 0) return err;
    if ((err = ls_polls_open(port, &site->polls)) < 0) return err;
    if ((err = ls_tls_contexts_open(&site->tls_contexts)) < 0) return err;
    site->port = port;
    site->deadlines = deadlines;
    site->running_count = count;
    for (unsigned n = 0; n < count; n++) {
        ls_state *state = site->states[n];
        ctxs[n]->user = state;
        state->buffers_kept = atomic_load_explicit(&state->buffers_live, memory_order_relaxed);
        state->start_op = (ls_op){.done = start_done, .actor = &state->actor};
        state->drain_op = (ls_op){.done = drain_done, .actor = &state->actor};
        state->collect_op = (ls_op){.done = collect_done, .actor = &state->actor};
        state->disconnect_op = (ls_op){.done = disconnect_done, .actor = &state->actor};
    }
    if (message_bytes > 0) message[0] = '\0';
    return LS_OK;
}

int ls_site_ready(ls_site *site, ls_port *port, struct ls_deadlines *deadlines, ls_workers *workers, char *message,
                  size_t message_bytes)
{
    ls_workers_stats stats;
    ls_workers_stat(workers, &stats);
    ls_thread_ctx **ctxs = calloc(stats.threads_max, sizeof(ls_thread_ctx *));
    if (ctxs == NULL) {
        (void)snprintf(message, message_bytes, "not enough memory for %u Lua states", stats.threads_max);
        return LS_ENOMEM;
    }
    for (unsigned n = 0; n < stats.threads_max; n++) ctxs[n] = ls_workers_ctx(workers, n);
    const int err = ls_site_ready_ctxs(site, port, deadlines, ctxs, stats.threads_max, message, message_bytes);
    if (err == LS_OK) site->running_count = stats.threads;
    free(ctxs);
    return err;
}

/* ---- start and drain --------------------------------------------------------------------------------------- */

static void run_hooks(ls_thread_ctx *ctx, ls_state *state, const ls_hooks *hooks, const char *what)
{
    for (unsigned n = 0; n < hooks->count; n++) ls_job_run_ref(ctx, state, hooks->refs[n], what);
}

static void start_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, start_op);
    ls_timers_start(state);
    run_hooks(ctx, state, &state->once, "in an ls.once function");
    run_hooks(ctx, state, &state->hooks[LS_HOOK_START], "in a \"start\" hook");
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
    ls_state_settle(state);
}

static void drain_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, drain_op);
    state->draining = true;
    ls_timers_drain(ctx, state);
    ls_tcps_drain(ctx, state);
    run_hooks(ctx, state, &state->hooks[LS_HOOK_DRAIN], "in a \"drain\" hook");
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
}

static void disconnect_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, disconnect_op);
    ls_tcps_disconnect(ctx, state);
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
}

static void collect_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, collect_op);
    const uint64_t begun_ms = ls_clock_coarse_ms();
    ls_buffers_collect(state, ctx, state->collect_all);
    if (state->collect_all) {
        const uint64_t now_ms = ls_clock_coarse_ms();
        const uint64_t rest_ms = (now_ms - begun_ms) * COLLECT_ALL_SHARE;
        state->collect_all_due_ms = now_ms + (rest_ms > COLLECT_ALL_MS_MIN ? rest_ms : COLLECT_ALL_MS_MIN);
    }
    atomic_store_explicit(&state->collect_ordered, false, memory_order_release);
}

bool ls_site_on_tick(ls_site *site, bool idle)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    bool ordered = false;
    for (unsigned n = 0; n < site->state_count; n++) {
        ls_state *state = site->states[n];
        if (atomic_load_explicit(&state->collect_ordered, memory_order_acquire)) continue;
        const size_t held = atomic_load_explicit(&state->buffer_bytes, memory_order_relaxed);
        const bool unchanged = held == state->buffer_bytes_seen;
        state->buffer_bytes_seen = held;
        /* A young collection does not free objects that have survived two of them. A full one does: it runs when the
         * workers are idle, and in a server that is always busy rarely enough to cost little. */
        const bool all = atomic_load_explicit(&state->buffers_live, memory_order_relaxed) > state->buffers_kept &&
                         (idle || now_ms >= state->collect_all_due_ms);
        if (!all && (held == 0 || (!unchanged && !idle))) continue;
        state->collect_all = all;
        atomic_store_explicit(&state->collect_ordered, true, memory_order_relaxed);
        ls_port_post(site->port, &state->collect_op, NULL, 0);
        ordered = true;
    }
    return ordered;
}

/* A posted operation counts as busy, so that ls_site_busy() is not 0 before the hooks have started. */
void ls_site_start(ls_site *site)
{
    atomic_store_explicit(&site->states_left, site->state_count, memory_order_relaxed);
    for (unsigned n = 0; n < site->state_count; n++) {
        atomic_fetch_add_explicit(&site->states[n]->busy, 1, memory_order_relaxed);
        ls_port_post(site->port, &site->states[n]->start_op, NULL, 0);
    }
}

void ls_site_drain(ls_site *site)
{
    for (unsigned n = 0; n < site->state_count; n++) {
        atomic_fetch_add_explicit(&site->states[n]->busy, 1, memory_order_relaxed);
        ls_port_post(site->port, &site->states[n]->drain_op, NULL, 0);
    }
}

void ls_site_disconnect(ls_site *site)
{
    for (unsigned n = 0; n < site->state_count; n++) {
        atomic_fetch_add_explicit(&site->states[n]->busy, 1, memory_order_relaxed);
        ls_port_post(site->port, &site->states[n]->disconnect_op, NULL, 0);
    }
}

uint32_t ls_site_connections(const ls_site *site)
{
    return atomic_load(&site->tcps_open);
}

unsigned ls_site_busy(const ls_site *site)
{
    unsigned sum = 0;
    for (unsigned n = 0; n < site->state_count; n++)
        sum += atomic_load_explicit(&site->states[n]->busy, memory_order_relaxed);
    return sum;
}

void ls_site_on_stall(ls_thread_ctx *ctx, uint32_t ms, void *user)
{
    ls_site *site = user;
    (void)ms;
    if (site->cpus == NULL) return;
    ls_cpu_watch *cpu = &site->cpus[ctx->index];
    const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_acquire);
    if (run == 0) return;
    const uint64_t now = ls_cpu_limit_cpu_ns(cpu);
    if (now == 0) return; /* not available at this time */
    if (cpu->seen_run != run) {
        cpu->seen_run = run;
        cpu->seen_ns = now;
        return;
    }
    const uint64_t used = atomic_load_explicit(&cpu->before_ns, memory_order_relaxed) + (now - cpu->seen_ns);
    atomic_store_explicit(&cpu->used_ns, used, memory_order_relaxed);
    atomic_store_explicit(&cpu->used_run, run, memory_order_release);
    if (used <= site->cpu_ns_max) return;
    atomic_store_explicit(&cpu->end_run, run, memory_order_release);
    ls_cpu_limit_send(cpu);
}

void ls_site_close_sockets(ls_site *site, ls_thread_ctx *ctx)
{
    for (unsigned n = 0; n < site->state_count; n++) {
        ls_udp_script_close(site->states[n], ctx);
        if (site->states[n]->resolver != NULL) ls_resolver_stop(site->states[n]->resolver);
    }
}

void ls_site_close(ls_site *site)
{
    site->port = NULL;              /* finalizers may still read it */
    while (site->state_count > 0) { /* and read the states that are still open */
        site->state_count--;
        ls_state_close(site->states[site->state_count]);
    }
    if (site->files != NULL) ls_file_cache_close(site->files);
    if (site->null != NULL) (void)fclose(site->null);
    ls_bytecode_close(site->bytecode);
    if (site->load_pool != NULL) ls_pool_close(site->load_pool);
    if (site->load_pools != NULL) ls_pools_close(site->load_pools);
    for (unsigned n = 0; n < site->entry_count; n++) {
        free(site->entries[n]->routes);
        free(site->entries[n]);
    }
    for (unsigned n = 0; n < LS_UDP_ENTRIES_MAX && site->udp_entries != NULL; n++) free(site->udp_entries[n]);
    if (site->polls != NULL) ls_polls_close(site->polls);
    if (site->tls_contexts != NULL) ls_tls_contexts_close(site->tls_contexts);
    free(site->udp_entries);
    for (unsigned n = 0; n < site->cpu_count; n++) ls_cpu_limit_leave(&site->cpus[n]);
    ls_memory_aligned_free(site->cpus);
    free(site->states);
    free(site->entries);
    free(site->path);
    free(site);
}
