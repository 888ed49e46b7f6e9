/* bind_connect.c - ls.connect: looks a name up, tries its addresses in turn, returns a sock.
 *
 * Everything runs in one task, which waits for the lookup and then for one connection attempt after the other. There
 * is one deadline for the whole call; each address receives an equal share of the remaining time. The `connecting`
 * object on the task's stack owns the lookup and the connection, so that nothing stays open when the task ends
 * early. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/resolver.h"
#include "net/sock.h"
#include "script/bind.h"
#include "script/bind_aux.h"
#include "script/bind_sock.h"
#include "script/option.h"
#include "script/site_internal.h"
#include "script/sockets.h"

typedef struct connecting {
    ls_lookup *lookup; /* NULL: the address is numeric */
    ls_tcp *tcp;       /* the current attempt, or NULL */
    ls_task *task;     /* the task that waits for the lookup, or NULL */
    ls_tcp_config config;
    uint32_t connect_ms_max; /* 0: no limit */
    uint64_t deadline_ns;
    ls_addr numeric;
    const ls_addr *addrs;
    unsigned count, next;
    int err; /* of the last failed attempt */
    ls_sockaddr to;
} connecting;

enum { CONNECTING = 1 }; /* stack index of the object */
enum { CONNECT_MS_MAX = 60000, SHARE_MS_MIN = 250 };

static int drop_connecting(lua_State *L)
{
    connecting *c = lua_touserdata(L, 1);
    ls_state *state = ls_state_of(L);
    if (c->lookup != NULL) ls_lookup_drop(c->lookup);
    if (c->tcp != NULL && state->site->port != NULL) ls_tcp_finish(state->ctx, c->tcp);
    c->lookup = NULL;
    c->tcp = NULL;
    return 0;
}

void ls_connect_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", drop_connecting}, {NULL, NULL}};
    luaL_newlib(L, meta);
    state->connecting_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static int fail(lua_State *L, int err)
{
    lua_pushcfunction(L, drop_connecting);
    lua_pushvalue(L, CONNECTING);
    lua_call(L, 1, 0);
    return ls_push_failure(L, err);
}

/* The number of seconds that the next wait may take. */
static double share(const connecting *c)
{
    const uint64_t now_ns = ls_clock_ns();
    const double left = c->deadline_ns > now_ns ? (double)(c->deadline_ns - now_ns) / 1e9 : 0;
    const double part = left / (c->count - c->next + 1); /* `next` is already past the current address */
    return part < SHARE_MS_MIN / 1e3 && left > part ? fmin(left, SHARE_MS_MIN / 1e3) : part;
}

static int connect_next(lua_State *L, connecting *c);

static int connected(lua_State *L, connecting *c)
{
    ls_tcp *tcp = c->tcp;
    if (c->config.keepalive_s > 0) (void)ls_stream_keepalive(ls_tcp_stream(tcp), true, c->config.keepalive_s);
    (void)ls_tcp_push(L, tcp);
    c->tcp = NULL; /* the sock owns it */
    return 1;
}

static int connect_ended(lua_State *L, int status, lua_KContext context)
{
    connecting *c = lua_touserdata(L, CONNECTING);
    ls_state *state = ls_state_of(L);
    (void)status;
    (void)context;
    if (state->current->wake_result == LS_ETIMEDOUT)
        c->err = LS_ETIMEDOUT;
    else if (c->tcp->receive_end == LS_OK)
        return connected(L, c);
    else
        c->err = (int)c->tcp->receive_end;
    ls_tcp *tcp = c->tcp;
    c->tcp = NULL;
    tcp->receiver = NULL;
    ls_tcp_finish(state->ctx, tcp);
    return connect_next(L, c);
}

/* Start to connect to the next address; skips addresses that fail at once. */
static int connect_next(lua_State *L, connecting *c)
{
    ls_state *state = ls_state_of(L);
    while (c->next < c->count) {
        const ls_addr *addr = &c->addrs[c->next++];
        ls_fd fd;
        if (c->connect_ms_max != 0 && ls_clock_ns() >= c->deadline_ns) {
            c->err = LS_ETIMEDOUT;
            break;
        }
        c->err = ls_sock_open(addr->family, &fd);
        if (ls_sockets_collect(L, c->err)) c->err = ls_sock_open(addr->family, &fd);
        if (c->err < 0) continue;
        if ((c->err = ls_tcp_open(state, fd, addr, &c->config, &c->tcp)) < 0) continue;
        ls_addr_to(addr, &c->to);
        c->err = ls_stream_connect(state->ctx, ls_tcp_stream(c->tcp), &c->to);
        if (c->err == LS_DONE) return connected(L, c);
        if (c->err == LS_PENDING) {
            if (c->connect_ms_max != 0) ls_task_alarm(L, state->current, share(c));
            c->tcp->connecting = true;
            c->tcp->receiver = state->current;
            return ls_task_suspend(L, 0, connect_ended);
        }
        ls_tcp *tcp = c->tcp;
        c->tcp = NULL;
        tcp->receive_end = (int8_t)c->err;
        ls_tcp_finish(state->ctx, tcp);
    }
    return fail(L, c->err);
}

/* ---- the name --------------------------------------------------------------------------------------------------- */

/* The host is at index 2. */
static int fail_name(lua_State *L, int err)
{
    const char *reason = err == LS_ENOENT      ? "no such name"
                         : err == LS_ETIMEDOUT ? "timeout: no response from a name server"
                         : err == LS_EINVAL    ? "invalid host name"
                         : err == LS_ENOTSUP   ? "not supported by the resolver: " LS_RESOLVER
                                               : ls_err_text(err);
    const int count = fail(L, err);
    lua_pushliteral(L, "cannot look up \"");
    lua_pushvalue(L, 2); /* may contain NUL */
    lua_pushfstring(L, "\": %s", reason);
    lua_concat(L, 3);
    lua_replace(L, -3);
    return count;
}

static int lookup_result(lua_State *L, connecting *c)
{
    if (c->lookup->err < 0) return fail_name(L, c->lookup->err);
    c->addrs = c->lookup->addrs;
    c->count = c->lookup->count;
    return connect_next(L, c);
}

static int lookup_ended(lua_State *L, int status, lua_KContext context)
{
    connecting *c = lua_touserdata(L, CONNECTING);
    (void)status;
    (void)context;
    c->task = NULL;
    if (ls_state_of(L)->current->wake_result != LS_ETIMEDOUT) return lookup_result(L, c);
    c->lookup->err = LS_ETIMEDOUT;
    return lookup_result(L, c);
}

static void lookup_done(ls_thread_ctx *ctx, ls_lookup *lookup)
{
    connecting *c = lookup->user;
    ls_task *task = c->task;
    c->task = NULL;
    if (task != NULL) ls_task_wake(ctx, task, LS_OK);
}

static int look_up(lua_State *L, connecting *c, const char *host, uint16_t port)
{
    ls_state *state = ls_state_of(L);
    if (state->resolver == NULL) {
        const int err = ls_resolver_open(state->site->port, state->site->polls, &state->actor,
                                         state->site->nameservers, &state->resolver);
        if (err < 0) return fail(L, err);
    }
    const int err = ls_resolver_lookup(state->ctx, state->resolver, host, port, lookup_done, c, &c->lookup);
    if (err == LS_DONE) return lookup_result(L, c);
    if (err < 0) return fail(L, err);
    if (c->connect_ms_max != 0) ls_task_alarm(L, state->current, share(c));
    c->task = state->current;
    return ls_task_suspend(L, 0, lookup_ended);
}

/* core.connect(host, port, limits) -> sock | nil, message, code. host may be "unix:/path", an address or a name. */
int ls_core_connect(lua_State *L)
{
    size_t len;
    const char *host = luaL_checklstring(L, 1, &len);
    const lua_Integer port = luaL_checkinteger(L, 2);
    const uint64_t now_ns = ls_clock_ns();
    uint64_t ms = CONNECT_MS_MAX;
    luaL_argcheck(L, port >= 0 && port <= 65535, 2, "port must be from 1 to 65535");
    luaL_checktype(L, 3, LUA_TTABLE);
    ls_task_may_wait(L);
    connecting *c = lua_newuserdatauv(L, sizeof *c, 0);
    *c = (connecting){.config = ls_tcp_config_default};
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_state_of(L)->connecting_meta_ref);
    lua_setmetatable(L, -2);
    ls_tcp_options(L, 3, &c->config);
    (void)ls_option_number(L, 3, "connect_ms_max", UINT32_MAX, &ms);
    c->connect_ms_max = (uint32_t)ms;
    c->deadline_ns = now_ns + ms * 1000000u;
    lua_insert(L, CONNECTING); /* index 2 is the host */
    lua_settop(L, 2);
    ls_sockets_make_room(L);

    const int err = ls_addr_parse(host, (uint16_t)port, &c->numeric);
    const bool is_name = err == LS_EINVAL && strncmp(host, "unix:", 5) != 0;
    if (strlen(host) != len || (is_name && !ls_addr_is_name(host))) /* NUL would cut the name or the path */
        return fail_name(L, LS_EINVAL);
    if (is_name) return look_up(L, c, host, (uint16_t)port);
    if (err < 0) return fail(L, err);
    c->addrs = &c->numeric;
    c->count = 1;
    return connect_next(L, c);
}
