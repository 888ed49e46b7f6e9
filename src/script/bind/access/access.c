/* access.c - the access logs of the sites: from the options that lua/luaserve/access_log.lua has read to the sinks of
 * http/access/access_log.h. They stay until the server is closed, as do their files: a reload of the same site finds
 * them again by their key. */
#include "script/bind/access/access.h"

#include <stdlib.h>
#include <string.h>

#include "http/access/access_log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/request.h"
#include "script/bind/http/site_listener.h"
#include "script/bind/option.h"
#include "script/core/runtime.h"

enum { THREADS = 2048 /* the largest number of thread contexts: threads and threads_max of ls.config */ };
enum { CLOSE_MS = 1000 };

typedef struct file {
    struct file *next;
    ls_line_log *lines;
    char name[];
} file;

typedef struct entry {
    struct entry *next;
    ls_access_log log;
    ls_text key;
    ls_access_part parts[]; /* then the names of log.masked, and the bytes of the key, in which their texts are */
} entry;

typedef struct access_data { /* of the server */
    ls_mutex lock;           /* guards the lists */
    file *files;
    entry *entries;
    ls_record_sink of_apps;
} access_data;

static access_data *data_of(const ls_runtime *runtime)
{
    return ls_runtime_own(runtime, LS_SLOT_access);
}

/* The request has a log of its app, which the listener does not have. */
static void ended_of_app(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    ls_record_sink *own = record->x != NULL ? record->x->access_log : NULL;
    const ls_recorder *recorder = record->x != NULL ? record->x->recorder : NULL;
    for (unsigned n = 0; own != NULL && n < recorder->count; n++)
        if (recorder->sinks[n] == own) own = NULL;
    if (own != NULL) own->ended(own, ctx, record);
}

static int access_open(void *own)
{
    access_data *data = own;
    ls_mutex_open(&data->lock);
    data->of_apps.ended = ended_of_app;
    return LS_OK;
}

static void access_close(void *own)
{
    access_data *data = own;
    for (entry *e = data->entries, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    for (file *f = data->files, *next; f != NULL; f = next) {
        next = f->next;
        ls_line_log_close(f->lines, CLOSE_MS);
        free(f);
    }
    ls_mutex_close(&data->lock);
}

static void access_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    access_data *data = data_of(runtime);
    uint64_t dropped = 0;
    ls_mutex_lock(&data->lock);
    for (const file *f = data->files; f != NULL; f = f->next) dropped += ls_line_log_dropped(f->lines);
    ls_mutex_unlock(&data->lock);
    each(to, "access_lines_dropped", (double)dropped);
}

void ls_access_reopen(const ls_runtime *runtime)
{
    access_data *data = data_of(runtime);
    ls_mutex_lock(&data->lock);
    for (const file *f = data->files; f != NULL; f = f->next) ls_line_log_reopen(f->lines);
    ls_mutex_unlock(&data->lock);
}

/* ---- from options ----------------------------------------------------------------------------------------------- */

/* The open file of this name. */
static int open_file(access_data *data, const char *name, ls_line_log **out)
{
    file *f = data->files;
    while (f != NULL && strcmp(f->name, name) != 0) f = f->next;
    if (f == NULL) {
        if ((f = malloc(sizeof *f + strlen(name) + 1)) == NULL) return LS_ENOMEM;
        const int err = ls_line_log_open(name, THREADS, &f->lines);
        if (err < 0) {
            free(f);
            return err;
        }
        memcpy(f->name, name, strlen(name) + 1);
        f->next = data->files;
        data->files = f;
    }
    *out = f->lines;
    return LS_OK;
}

/* The next text of the key: its length, and its bytes. */
static ls_text next_text(const char **at)
{
    uint32_t len;
    memcpy(&len, *at, sizeof len);
    const ls_text text = {*at + sizeof len, len};
    *at += sizeof len + len;
    return text;
}

static entry *make(ls_text key, const ls_access_log *options)
{
    const size_t parts_bytes = options->part_count * sizeof(ls_access_part);
    const size_t masked_bytes = options->masked_count * sizeof(ls_text);
    entry *e = calloc(1, sizeof *e + parts_bytes + masked_bytes + key.len);
    if (e == NULL) return NULL;
    ls_text *masked = (ls_text *)(void *)((char *)e->parts + parts_bytes);
    const char *at = memcpy((char *)masked + masked_bytes, key.ptr, key.len);
    e->key = (ls_text){at, key.len};
    e->log = *options;
    e->log.sink.ended = ls_access_ended;
    e->log.parts = e->parts;
    e->log.masked = masked;
    for (unsigned n = 0; n < options->masked_count; n++) masked[n] = next_text(&at);
    for (unsigned n = 0; n < options->part_count; n++) {
        e->parts[n].what = (uint8_t)*at++;
        e->parts[n].text = next_text(&at);
    }
    return e;
}

static int open_failed(lua_State *L, const char *named, const char *name, int err)
{
    const char *folder = getenv("LOGS_DIRECTORY"); /* of systemd */
    if (named != NULL)
        return luaL_error(L, "cannot open %s, /dev/log: %s; start a syslog daemon, or write \"stdout\" or a file",
                          named, ls_err_text(err));
    return luaL_error(L, "cannot open %s: %s; write a file in a folder that exists and where this user may write%s%s",
                      name, ls_err_text(err), folder != NULL ? "; the folder of this service for logs is " : "",
                      folder != NULL ? folder : "");
}

/* core.access_log{ key=, name= or path=, json=, sample=, slow_ns=, masks_addresses=, masked_count=, part_count= }
 * -> the log, for core.listen and core.set_route. `key` has all of it: first the masked names, each as string.pack "s4",
 * and the parts, each as "Bs4": an index of core.access_variables() and the name of the field, or 0 and a literal. Without
 * a name and a path nothing is logged. */
static int core_access_log(lua_State *L)
{
    typedef struct given {
        ls_access_log log;
        const char *name, *path;
    } given;
    static const ls_option options[] = {LS_OPTION_AS("json", given, log.json),
                                        LS_OPTION_AS("sample", given, log.sample),
                                        LS_OPTION_AS("slow_ns", given, log.slow_ns),
                                        LS_OPTION_AS("masks_addresses", given, log.masks_addresses),
                                        LS_OPTION_AS("masked_count", given, log.masked_count),
                                        LS_OPTION_AS("part_count", given, log.part_count),
                                        LS_OPTION(given, name),
                                        LS_OPTION_FIELD("path", given, path, LS_OPTION_PATH, 0),
                                        LS_OPTIONS_END};
    given g = {.name = NULL};
    ls_state *state = ls_check_loading(L, "");
    ls_runtime *runtime = ls_state_runtime(state);
    access_data *data = data_of(runtime);
    ls_text key;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    ls_options_read(L, 1, options, &g);
    lua_getfield(L, 1, "key");
    key.ptr = luaL_checklstring(L, -1, &key.len);
    const char *const name = g.name != NULL ? g.name : g.path;
    ls_mutex_lock(&data->lock);
    entry *e = data->entries;
    while (e != NULL && (e->key.len != key.len || memcmp(e->key.ptr, key.ptr, key.len) != 0)) e = e->next;
    int err = LS_OK;
    if (e == NULL && name != NULL && !(runtime->host != NULL && runtime->host->check))
        err = open_file(data, name, &g.log.lines);
    if (e == NULL && err == LS_OK) {
        if ((e = make(key, &g.log)) == NULL) err = LS_ENOMEM;
        if (e != NULL) {
            e->next = data->entries;
            data->entries = e;
        }
    }
    ls_mutex_unlock(&data->lock);
    if (err == LS_ENOTSUP) return luaL_error(L, "this system has no syslog; write the name of a file");
    if (err < 0) return open_failed(L, g.name, name, err);
    lua_pushlightuserdata(L, &e->log.sink);
    return 1;
}

/* core.access_variables() -> the names of all variables; those that end in "_" continue with that of a field */
static int core_access_variables(lua_State *L)
{
    lua_createtable(L, LS_ACCESS_WHATS, 0);
    for (int n = 1; n < LS_ACCESS_WHATS; n++) {
        lua_pushstring(L, ls_access_names[n]);
        lua_rawseti(L, -2, n);
    }
    return 1;
}

/* core.access_of_apps(): requests are logged by the log of their app */
static int core_access_of_apps(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    if (ls_records_add(state, LS_RECORDS_ALL, &data_of(ls_state_runtime(state))->of_apps) < 0)
        return luaL_error(L, "not enough memory");
    return 0;
}

/* core.slow_routes(): a route has its own `slow`. Without effect when the site has loaded. */
static int core_slow_routes(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    if (state->loading && ls_records_add(state, LS_RECORDS_ALL, &ls_slow_sink) < 0)
        return luaL_error(L, "not enough memory");
    return 0;
}

/* core.access_is(req, log) -> whether the log has the request */
static int core_access_is(lua_State *L)
{
    const ls_exchange *x = ls_request_check_req(L, 1)->x;
    ls_record_sink *log = lua_touserdata(L, 2);
    bool is = x->access_log == log;
    for (unsigned n = 0; x->recorder != NULL && x->access_log == NULL && n < x->recorder->count; n++)
        is = is || x->recorder->sinks[n] == log;
    return ls_push_boolean(L, x->recorder != NULL && is);
}

static const luaL_Reg functions[] = {
    {"access_log", core_access_log},         {"access_variables", core_access_variables},
    {"access_of_apps", core_access_of_apps}, {"access_is", core_access_is},
    {"slow_routes", core_slow_routes},       {NULL, NULL}};
static const ls_module_common common = {sizeof(access_data), access_open, access_close, access_stats};
const ls_module ls_access_module = {.name = "access", .functions = functions, .common = &common};
