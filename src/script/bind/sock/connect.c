/* connect.c - core.connect: a dial (net/dial.h) for which a task waits; then a sock. ls.connect, ls.fetch and
 * ls.websocket make their connections with it.
 *
 * The userdata at index CONNECTING of the task's stack owns the dial, so that nothing stays open when the task ends
 * early. Thread: the one that holds the state's actor. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "net/dial.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/tls/option_tls.h"
#include "script/bind/tls/tls_contexts.h"
#include "script/bind/tls/tls_object.h"
#include "script/core/cpu_poll.h"
#include "script/core/wait.h"

typedef struct connect_data { /* of a state */
    ls_node dialling;
    ls_resolver *resolver; /* NULL until the first name lookup */
    ls_resolver *ending;   /* ls_resolver_end was called; or NULL */
} connect_data;

static connect_data *data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_connect);
}

/* Stack indexes. TLS: the options of ls_option_tls_client with server_name, or nil: plain. */
enum { CONNECTING = 1, HOST = 2, LIMITS = 3, TLS = 4 };

typedef struct connecting {
    const void *tag;
    ls_node node;    /* in the list of the state while `dial` is not NULL */
    ls_dial *dial;   /* NULL: not started, or ended */
    ls_tls *tls;     /* NULL: plain */
    ls_task *task;   /* the task that waits */
    uint32_t ms_max; /* 0: no limit */
    uint16_t port;
    bool public_only; /* as in ls_dial_options; a field of the limits */
    bool again;       /* the second attempt, after garbage sockets were closed */
    ls_tcp_config config;
    ls_tcp *tcp; /* the connection, until the sock owns it; NULL: not connected */
    ls_dial_result result;
    char why[256]; /* of the result */
} connecting;

/* ---- the end of a dial ---------------------------------------------------------------------------------------- */

/* The finalizer. Again: no effect. */
static int drop_connecting(lua_State *L)
{
    connecting *c = lua_touserdata(L, 1);
    ls_state *state = ls_state_of(L);
    ls_list_remove(&c->node);
    if (c->dial != NULL && state->port != NULL) ls_dial_cancel(state->ctx, c->dial);
    if (c->dial != NULL && state->port == NULL) ls_dial_free(c->dial);
    if (c->tls != NULL) ls_tls_drop(c->tls);
    if (c->tcp != NULL && state->port != NULL) ls_tcp_finish(state->ctx, c->tcp);
    c->dial = NULL;
    c->tls = NULL;
    c->tcp = NULL;
    return 0;
}

static const ls_object_type connecting_type = {.name = "connecting", .drop = drop_connecting};

/* Finalize the userdata now, then push nil, message, code. */
static int fail(lua_State *L, int err)
{
    if (luaL_callmeta(L, CONNECTING, "__gc")) lua_pop(L, 1);
    return ls_push_failure(L, err);
}

static int fail_name(lua_State *L, int err)
{
    const char *reason = err == LS_ENOENT      ? "no such name"
                         : err == LS_ETIMEDOUT ? "timeout: no response from a name server"
                         : err == LS_EINVAL    ? "invalid host name"
                         : err == LS_ENOTSUP   ? "not supported by the resolver: " LS_RESOLVER
                                               : ls_err_text(err);
    const int count = fail(L, err);
    lua_pushliteral(L, "cannot look up \"");
    lua_pushvalue(L, HOST); /* may contain NUL */
    lua_pushfstring(L, "\": %s", reason);
    lua_concat(L, 3);
    lua_replace(L, -3);
    return count;
}

/* nil, "TLS: why", code */
static int fail_tls(lua_State *L, int err, const char *why)
{
    (void)fail(L, err);
    return ls_push_tls_failure(L, err, why);
}

static int dial(lua_State *L, connecting *c);

/* Push nil, message, code; or dial once more, if no descriptor was free and garbage sockets were closed. */
static int dial_failed(lua_State *L, connecting *c)
{
    if (!c->again && ls_sockets_collect(L, c->result.err)) {
        c->again = true;
        return dial(L, c);
    }
    switch (c->result.phase) {
    case LS_DIAL_NAME: return fail_name(L, c->result.err);
    case LS_DIAL_TLS: return fail_tls(L, c->result.err, c->why);
    default: return fail(L, c->result.err);
    }
}

static void dial_done(ls_thread_ctx *ctx, void *user, const ls_dial_result *result)
{
    connecting *c = user;
    c->dial = NULL;
    ls_list_remove(&c->node);
    c->result = *result;
    (void)snprintf(c->why, sizeof c->why, "%s", result->why);
    if (result->stream != NULL) c->tcp = ls_tcp_connected(c->task->state, result->stream, &c->config);
    ls_task_wake(ctx, c->task, LS_OK);
}

static int dial_ended(lua_State *L, int status, lua_KContext context)
{
    connecting *c = lua_touserdata(L, CONNECTING);
    if (c->dial != NULL) return fail(L, LS_ECANCELED); /* the task resumes only to end, or its client left */
    if (c->tcp == NULL) return dial_failed(L, c);
    if (c->config.keepalive_s > 0) (void)ls_stream_keepalive(ls_tcp_stream(c->tcp), true, c->config.keepalive_s);
    (void)ls_tcp_push(L, c->tcp);
    c->tcp = NULL; /* the sock owns it */
    return 1;
}

/* ---- dial ------------------------------------------------------------------------------------------------------ */

/* The resolver of the state, opened at its first use. LS_OK or an error. */
static int resolver_of(ls_state *state, ls_resolver **out)
{
    connect_data *data = data_of(state);
    if (data->resolver == NULL) {
        const int err = ls_resolver_open(state->port, ls_state_runtime(state)->polls, &state->actor,
                                         state->generation->settings.nameservers, &data->resolver);
        if (err < 0) return err;
    }
    *out = data->resolver;
    return LS_OK;
}

/* The value of the field server_name of the options for TLS, or NULL. */
static const char *server_name(lua_State *L)
{
    const char *name = NULL;
    if (lua_isnil(L, TLS)) return NULL;
    if (lua_getfield(L, TLS, "server_name") == LUA_TSTRING) name = lua_tostring(L, -1);
    lua_pop(L, 1); /* the table holds it */
    return name;
}

/* Dial, and suspend the task. */
static int dial(lua_State *L, connecting *c)
{
    ls_state *state = ls_state_of(L);
    ls_resolver *resolver = NULL;
    ls_addr numeric;
    const ls_dial_options options = {.port = state->port,
                                     .deadlines = ls_state_runtime(state)->deadlines,
                                     .actor = &state->actor,
                                     .host = lua_tostring(L, HOST),
                                     .port_number = c->port,
                                     .public_only = c->public_only,
                                     .ms_max = c->ms_max,
                                     .tls = c->tls,
                                     .server_name = server_name(L),
                                     .handler = &ls_tcp_handler,
                                     .user_bytes = ls_tcp_own_bytes,
                                     .live = &ls_tcps_of(state)->live};
    int err = LS_OK;
    ls_cpu_poll(L); /* before a dial refers to a task that was told to end */
    if (ls_addr_parse(options.host, c->port, &numeric) == LS_EINVAL && ls_addr_is_name(options.host))
        err = resolver_of(state, &resolver);
    if (err == LS_OK) err = ls_dial_start(state->ctx, &options, resolver, dial_done, c, &c->dial);
    if (err == LS_EINVAL) return fail_name(L, err);
    if (err < 0) return fail(L, err);
    c->task = state->current;
    ls_list_push(&data_of(state)->dialling, &c->node);
    return ls_task_yield(L, LS_WAIT_WRITE, 0, dial_ended);
}

/* Read the options for TLS, and take a context with them. LS_OK, or an error with its reason in c->why. */
static int take_tls(lua_State *L, connecting *c)
{
    ls_tls_cert cert;
    ls_tls_options options;
    ls_option_tls_client(L, TLS, &cert, &options);
    return ls_tls_contexts_get(ls_tls_contexts_of(ls_state_of(L)), &options, &c->tls, c->why, sizeof c->why);
}

/* core.connect(host, port, limits) -> sock | nil, message, code. host may be "unix:/path", an address or a name.
 * limits: of a sock; connect_ms_max; public_only: see above; tls: see TLS. */
static int core_connect(lua_State *L)
{
    static const ls_option limits[] = {LS_OPTION_AS("connect_ms_max", connecting, ms_max),
                                       LS_OPTION(connecting, public_only), LS_OPTIONS_END};
    const ls_text host = ls_check_text(L, 1);
    const lua_Integer port = luaL_checkinteger(L, 2);
    luaL_argcheck(L, port >= 0 && port <= 65535, 2, "port must be from 1 to 65535");
    luaL_checktype(L, 3, LUA_TTABLE);
    ls_task_may_wait(L);
    lua_settop(L, 3);
    connecting *c = ls_object_push(L, sizeof *c, 0, &connecting_type);
    ls_node_init(&c->node);
    c->port = (uint16_t)port;
    lua_insert(L, CONNECTING);
    lua_remove(L, LIMITS); /* the port */
    lua_getfield(L, LIMITS, "tls");
    ls_options_read(L, LIMITS, limits, c);
    ls_options_read(L, LIMITS, ls_tcp_options, &c->config);
    if (!lua_isnil(L, TLS)) {
        const int err = take_tls(L, c);
        if (err < 0) return fail_tls(L, err, c->why);
    }
    if (strlen(host.ptr) != host.len) return fail_name(L, LS_EINVAL); /* NUL would truncate the name or the path */
    ls_sockets_make_room(L);
    return dial(L, c);
}

/* ---- the module -------------------------------------------------------------------------------------------- */

/* Returns whether none is left. */
static bool end_resolver(ls_thread_ctx *ctx, connect_data *data)
{
    if (data->ending == NULL) {
        data->ending = data->resolver;
        data->resolver = NULL;
    }
    if (data->ending != NULL && ls_resolver_end(ctx, data->ending)) data->ending = NULL;
    return data->ending == NULL && data->resolver == NULL;
}

static void connect_close(ls_thread_ctx *ctx, ls_state *state)
{
    connect_data *data = data_of(state);
    LS_LIST_TAKE (connecting, c, &data->dialling, node) {
        ls_dial_cancel(ctx, c->dial);
        c->dial = NULL;
        c->again = true;
        c->result = (ls_dial_result){.err = LS_ECANCELED, .phase = LS_DIAL_CONNECT};
        ls_task_wake(ctx, c->task, LS_ECANCELED);
    }
    (void)end_resolver(ctx, data);
}

static bool connect_closed(ls_state *state)
{
    return data_of(state)->resolver == NULL && data_of(state)->ending == NULL;
}

/* A resolver that has nothing to look up is ended: the next dial would open another one. */
static bool connect_unused(ls_state *state)
{
    return ls_list_empty(&data_of(state)->dialling) && end_resolver(state->ctx, data_of(state));
}

static void connect_disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    if (data_of(state)->resolver != NULL) ls_resolver_stop(data_of(state)->resolver);
    if (data_of(state)->ending != NULL) ls_resolver_stop(data_of(state)->ending);
}

static void connect_free(ls_state *state)
{
    if (data_of(state)->resolver != NULL) ls_resolver_close(data_of(state)->resolver);
    if (data_of(state)->ending != NULL) ls_resolver_close(data_of(state)->ending);
}

static const luaL_Reg functions[] = {{"connect", core_connect}, {NULL, NULL}};

static int common_open(void *own)
{
    return ls_tls_contexts_open(own);
}

static void common_close(void *own)
{
    ls_tls_contexts_close(*(ls_tls_contexts **)own);
}

static const ls_module_common common = {
    .bytes = sizeof(ls_tls_contexts *), .open = common_open, .close = common_close};

const ls_module ls_connect_module = {.name = "connect",
                                     .bytes = sizeof(connect_data),
                                     .lists = true,
                                     .functions = functions,
                                     .close = connect_close,
                                     .closed = connect_closed,
                                     .unused = connect_unused,
                                     .disconnect = connect_disconnect,
                                     .free = connect_free,
                                     .common = &common};
