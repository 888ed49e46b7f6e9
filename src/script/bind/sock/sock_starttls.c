/* sock_starttls.c - sock:starttls: its options, the waiting task and its results. tcp_starttls.c does the work. */
#include <lauxlib.h>

#include "base/err.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/tls/option_tls.h"
#include "script/bind/tls/tls_contexts.h"
#include "script/bind/tls/tls_object.h"

enum { SOCK = 1, OPTIONS = 2 }; /* stack indexes */
enum { HANDSHAKE_MS_MAX = 10000, WHY_BYTES = 256 };

typedef struct starttls_options {
    bool server;
    const char *server_name;
    uint32_t handshake_ms_max; /* 0: not given */
} starttls_options;

#define OPTION(field) LS_OPTION(starttls_options, field)
static const ls_option starttls_names[] = {OPTION(server), OPTION(server_name), OPTION(handshake_ms_max),
                                           LS_OPTIONS_END};

/* Close the sock. Returns nil, "TLS: why", code. */
static int fail(lua_State *L, ls_tcp *tcp, int err, const char *why)
{
    ls_thread_ctx *ctx = tcp->state->ctx;
    if (err == LS_ETIMEDOUT)
        ls_tcp_abort(ctx, tcp); /* the peer does not read */
    else
        ls_tcp_finish(ctx, tcp);
    return ls_push_tls_failure(L, err, why);
}

static int starttls_ended(lua_State *L, int status, lua_KContext context)
{
    const ls_tcp_object *o = lua_touserdata(L, SOCK);
    char why[WHY_BYTES];
    if (o->tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    const int err = ls_tcp_starttls_result(o->tcp, why, sizeof why);
    if (err == LS_PENDING && o->tcp->state->current->ending != LS_END_NONE) { /* it resumes only to end */
        o->tcp->receiver = NULL;
        ls_tcp_abort(o->tcp->state->ctx, o->tcp);
        return ls_push_failure(L, LS_ECANCELED);
    }
    if (err == LS_PENDING) return ls_task_yield(L, LS_WAIT_WRITE, 0, starttls_ended);
    if (err < 0) return fail(L, o->tcp, err, why);
    return ls_push_boolean(L, true);
}

/* Replace the options of the script by those of the core, which luaserve.tls makes of them. */
static void check_options(lua_State *L)
{
    ls_push_function(L, "luaserve.tls", "starttls");
    lua_insert(L, OPTIONS);
    lua_call(L, 1, 1);
}

/* Raise if the connection cannot change to TLS now: a fault of the script. */
static void check_use(lua_State *L, ls_tcp *tcp)
{
    if (tcp->receiver != NULL) luaL_error(L, "another task already receives from this socket");
    if (tcp->shut) luaL_error(L, "sock:starttls after sock:shutdown");
    if (ls_stream_filter(ls_tcp_stream(tcp)) != NULL) luaL_error(L, "sock:starttls: the connection uses TLS already");
}

/* The limit of a handshake without the option timeout. */
static uint32_t default_ms(const ls_tcp *tcp)
{
    const uint32_t receive_ms = tcp->receive_ms_max;
    return receive_ms != 0 && receive_ms < HANDSHAKE_MS_MAX ? receive_ms : HANDSHAKE_MS_MAX;
}

/* Wait for the handshake. */
static int start(lua_State *L, ls_tcp *tcp, ls_tls *tls, const starttls_options *options)
{
    tcp->receiver = tcp->state->current;
    const int err = ls_tcp_starttls(tcp->state->ctx, tcp, tls, options->server_name, options->handshake_ms_max);
    ls_tls_drop(tls);
    if (err == LS_OK) return starttls_ended(L, LUA_OK, 0);
    tcp->receiver = NULL;
    return fail(L, tcp, err, err == LS_EINVAL ? "invalid server_name" : "");
}

/* sock:starttls(options: StarttlsOptions) -> true | nil, message, code
 * Changes the connection to TLS: sends the queue, then waits for the handshake. A failure closes the sock. */
int ls_sock_starttls(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    char why[WHY_BYTES];
    starttls_options starttls = {0};
    ls_tls *tls;
    ls_tls_cert cert;
    ls_tls_options options;
    lua_settop(L, OPTIONS);
    check_options(L);
    ls_task_may_wait(L);
    ls_options_read(L, OPTIONS, starttls_names, &starttls);
    if (starttls.server)
        ls_option_tls_server(L, OPTIONS, &options);
    else
        ls_option_tls_client(L, OPTIONS, &cert, &options);
    ls_tcp *tcp = o->tcp; /* not earlier: an allocation may run a finalizer that closes it. No allocation follows */
    if (tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    check_use(L, tcp);
    if (tcp->received > 0) return fail(L, tcp, LS_EPROTO, "bytes arrived before the handshake");
    if (tcp->send_end != LS_OK) return fail(L, tcp, tcp->send_end, "");
    if (tcp->receive_end != LS_OK) return fail(L, tcp, tcp->receive_end, "");
    if (starttls.handshake_ms_max == 0) starttls.handshake_ms_max = default_ms(tcp);
    const int err = ls_tls_contexts_get(ls_tls_contexts_of(tcp->state), &options, &tls, why, sizeof why);
    return err < 0 ? fail(L, tcp, err, why) : start(L, tcp, tls, &starttls);
}
