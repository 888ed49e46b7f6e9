/* udp_object.c - ls.udp: the server's side of a UDP socket, with its two objects, the socket and the peer.
 *
 * A batch runs in one task: the handler is called for each datagram in turn, and its reply is written over the
 * datagram in the block that received it. So the received batch becomes the batch of replies, and a handler that
 * returns without waiting costs a call, not a coroutine.
 *
 *     | at[0] .. at[replies - 1]: replies | handled without a reply | at[next] ..: not yet handled |
 *
 * A handler that waits keeps the task: another task handles the rest of the batch, and the late reply is sent alone. A
 * handler that raises sends no reply to its datagram; the batch continues.
 *
 * A peer is a value: an address and the socket that received from it. A state caches one peer object in each of
 * PEERS_CACHED places, chosen by a hash of the address, so that a busy peer makes no garbage. */
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/option.h"
#include "script/bind/sock/udp_object.h"
#include "script/bind/sock/udp_object_internal.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

enum { PEERS_CACHED = 256, PEER_ADDR_BYTES = 28 };

static const char peer_tag;
static const ls_object_type sock_type;

typedef struct udp_sock { /* what ls.udp returns */
    const void *tag;
    ls_site_udp_entry *entry;
} udp_sock;

typedef struct udp_peer {
    const void *tag;
    ls_udp *udp;
    ls_sockaddr addr;
} udp_peer;

typedef struct peer_key {
    const ls_udp *udp;
    uint32_t len;
    unsigned char bytes[PEER_ADDR_BYTES];
} peer_key;

typedef struct udp_run { /* one batch; on the stack of ls_site_udp_batch */
    ls_state *state;
    ls_udp *udp;
    ls_site_udp_entry *entry;
    ls_datagrams *batch;
    unsigned next, replies;
    ls_task *task; /* the running task; NULL when it has ended */
} udp_run;

/* ---- peers ------------------------------------------------------------------------------------------------- */

static const udp_peer *peer_new(lua_State *L, ls_udp_script *script, ls_udp *udp, const ls_sockaddr *addr)
{
    udp_peer *peer = ls_object_new(L, sizeof *peer, 0, &peer_tag, script->peer_meta_ref);
    peer->udp = udp;
    peer->addr = *addr;
    return peer;
}

static unsigned peer_place(const ls_udp *udp, const ls_sockaddr *addr)
{
    uint64_t hash = (uintptr_t)udp, word;
    for (uint32_t at = 0; at + 4 <= addr->len; at += 4) {
        word = 0;
        memcpy(&word, addr->bytes + at, 4);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (unsigned)(hash % PEERS_CACHED);
}

/* Push and return the peer object for an address; `cache` is the index of the table of cached peers. */
static const udp_peer *peer_push(lua_State *L, ls_udp_script *script, ls_udp *udp, const ls_sockaddr *addr, int cache)
{
    if (addr->len > PEER_ADDR_BYTES) return peer_new(L, script, udp, addr);
    const unsigned place = peer_place(udp, addr);
    peer_key *key = &((peer_key *)script->peer_keys)[place];
    if (key->udp == udp && key->len == addr->len && memcmp(key->bytes, addr->bytes, addr->len) == 0) {
        lua_rawgeti(L, cache, (lua_Integer)place + 1);
        return lua_touserdata(L, -1);
    }
    const udp_peer *peer = peer_new(L, script, udp, addr);
    lua_pushvalue(L, -1);
    lua_rawseti(L, cache, (lua_Integer)place + 1);
    key->udp = udp;
    key->len = addr->len;
    memcpy(key->bytes, addr->bytes, addr->len);
    return peer;
}

static udp_peer *peer_test(lua_State *L, int index)
{
    return ls_udata_test(L, index, &peer_tag, sizeof(udp_peer));
}

static udp_peer *peer_check(lua_State *L)
{
    return ls_udata_check(L, 1, &peer_tag, sizeof(udp_peer), "peer");
}

static int peer_tostring(lua_State *L)
{
    ls_addr addr;
    ls_addr_of(&peer_check(L)->addr, &addr);
    return ls_push_addr(L, &addr);
}

static int peer_eq(lua_State *L)
{
    const udp_peer *a = peer_test(L, 1), *b = peer_test(L, 2);
    return ls_push_boolean(L, a != NULL && b != NULL && a->udp == b->udp && ls_sockaddr_same(&a->addr, &b->addr));
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

size_t ls_udp_check_data(lua_State *L, int index)
{
    const ls_buffer *buffer = ls_buffer_test(L, index);
    const int type = lua_type(L, index);
    size_t len;
    if (buffer != NULL) return buffer->len;
    if (type != LUA_TSTRING && type != LUA_TNUMBER) luaL_typeerror(L, index, "string or buffer");
    (void)ls_number_tolstring(L, index, &len);
    return len;
}

int ls_udp_compose_value(lua_State *L, int index, const ls_sockaddr *to, ls_datagrams **out)
{
    ls_pool *pool = ls_state_pool(ls_state_of(L));
    const ls_buffer *buffer = ls_buffer_test(L, index);
    size_t len;
    char *bytes;
    if (buffer != NULL && buffer->count == 1) {
        const ls_slice *slice = &buffer->slices[0];
        return ls_udp_wrap(pool, to, (ls_slice){ls_block_hold(slice->block), slice->ptr, slice->len}, out);
    }
    if (buffer != NULL) ls_slices_push_string(L, buffer->slices, buffer->count, buffer->len);
    const char *text = lua_tolstring(L, buffer != NULL ? -1 : index, &len);
    const int err = ls_udp_compose(pool, to, len, out, &bytes);
    if (err == LS_OK) memcpy(bytes, text, len);
    return err;
}

/* Send the value at `index` -> true | nil, message, code */
static int send_value(lua_State *L, ls_udp *udp, const ls_sockaddr *to, int index)
{
    ls_datagrams *batch;
    int err = ls_udp_compose_value(L, index, to, &batch);
    if (err == LS_OK) err = ls_udp_send(ls_state_of(L)->ctx, udp, batch, 1);
    return ls_push_result(L, err);
}

/* peer:send(data: string|number|Buffer) -> true | nil, message, code
 * Sends a datagram to the peer. Never waits. */
static int peer_send(lua_State *L)
{
    const udp_peer *peer = peer_check(L);
    (void)ls_udp_check_data(L, 2);
    return send_value(L, peer->udp, &peer->addr, 2);
}

/* peer is a Peer: the sender of a datagram. `==` compares address and socket; `tostring` gives "127.0.0.1:40000".
 * peer.ip: string - the address
 * peer.port: integer - the port
 * peer.remote: string - both as text */
static int peer_index(lua_State *L)
{
    const udp_peer *peer = peer_check(L);
    ls_addr addr;
    if (ls_push_method(L, "a peer")) return 1;
    ls_addr_of(&peer->addr, &addr);
    return ls_push_addr_field(L, lua_tostring(L, 2), &addr);
}

/* ---- the socket -------------------------------------------------------------------------------------------- */

static udp_sock *sock_check(lua_State *L)
{
    return ls_udata_check(L, 1, &sock_type, sizeof(udp_sock), "UDP socket");
}

int ls_udp_check_port(lua_State *L, int index)
{
    int whole;
    const lua_Integer port = lua_tointegerx(L, index, &whole);
    if (!whole || port < 1 || port > 65535)
        return luaL_argerror(L, index, "port must be a whole number from 1 to 65535");
    return (int)port;
}

/* Parse a numeric IPv4 or IPv6 address or "localhost". LS_OK or an LS_E* code. */
static int parse_host(const char *host, uint16_t port, ls_addr *out)
{
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (strcmp(host, "*") == 0) return LS_EINVAL;
    const int err = ls_addr_parse(host, port, out);
    return err == LS_OK && out->family == LS_ADDR_UNIX ? LS_EINVAL : err;
}

bool ls_udp_check_host(lua_State *L, int index, uint16_t port, ls_addr *out)
{
    const ls_text host = ls_check_text(L, index);
    return strlen(host.ptr) == host.len && parse_host(host.ptr, port, out) == LS_OK;
}

int ls_udp_push_bad_host(lua_State *L, int index)
{
    return ls_push_failure_text(
        L, LS_EINVAL,
        "invalid address \"%s\"; use an IP address such as \"127.0.0.1\" or \"::1\" (names are not looked up)",
        lua_tostring(L, index));
}

/* udp:sendto(data: string|number|Buffer, host, port) -> true | nil, message, code
 * Sends a datagram. Never waits. Not while the site loads. */
static int sock_sendto(lua_State *L)
{
    const ls_site_udp_entry *entry = sock_check(L)->entry;
    (void)ls_udp_check_data(L, 2);
    (void)luaL_checkstring(L, 3);
    const uint16_t port = (uint16_t)ls_udp_check_port(L, 4);
    int err = LS_ECLOSED;
    ls_addr addr;
    ls_sockaddr to;
    if (!ls_udp_check_host(L, 3, port, &addr)) return ls_udp_push_bad_host(L, 3);
    if (ls_state_of(L)->loading) return luaL_error(L, "sendto: cannot be called while the site loads");
    for (unsigned n = 0; n < entry->socket_count; n++)
        if ((err = ls_udp_target(entry->sockets[n], &addr, &to)) == LS_OK)
            return send_value(L, entry->sockets[n], &to, 2);
    return ls_push_failure(L, err);
}

/* udp:close()
 * The socket neither receives nor sends any more, in any state. Running handlers continue. */
static int sock_close(lua_State *L)
{
    const ls_site_udp_entry *entry = sock_check(L)->entry;
    ls_state *state = ls_state_of(L);
    if (state->loading) return luaL_error(L, "close: cannot be called while the site loads");
    for (unsigned n = 0; n < entry->socket_count; n++) ls_udp_close(state->ctx, entry->sockets[n]);
    return 0;
}

/* udp is an UdpSocket: the socket of ls.udp.
 * udp.local_ip: string? - the address; nil while the site loads
 * udp.local_port: integer? - the port
 * udp.local_addr: string? - both as text */
static int sock_index(lua_State *L)
{
    const ls_site_udp_entry *entry = sock_check(L)->entry;
    if (ls_push_method(L, "a UDP socket")) return 1;
    return entry->socket_count > 0 ? ls_push_addr_field(L, lua_tostring(L, 2), ls_udp_addr(entry->sockets[0])) : 0;
}

static int sock_tostring(lua_State *L)
{
    const ls_site_udp_entry *entry = sock_check(L)->entry;
    char text[LS_ADDR_TEXT_BYTES];
    if (entry->socket_count == 0)
        lua_pushfstring(L, "UDP socket (%s)", entry->udp.where);
    else
        lua_pushfstring(L, "UDP socket %s", ls_addr_text(ls_udp_addr(entry->sockets[0]), text));
    return 1;
}

/* ---- a batch ----------------------------------------------------------------------------------------------- */

static int raise_too_long(lua_State *L, size_t len)
{
    return luaL_error(L, "the reply of %I bytes is too long for a datagram (at most %d bytes)", (lua_Integer)len,
                      LS_UDP_PAYLOAD_MAX);
}

static bool is_reply(lua_State *L, int index)
{
    return lua_toboolean(L, index); /* nil and false: no reply */
}

/* Raise for results of a handler, from `index` on, that are no reply. A number after it, as of gsub, is in order. */
static void check_results(lua_State *L, const ls_site_udp_entry *entry, int index)
{
    const char *got = luaL_typename(L, index);
    if (!is_reply(L, index)) return;
    const bool fine =
        lua_type(L, index) == LUA_TSTRING || ls_buffer_test(L, index) != NULL; /* a number is more often a count */
    if (fine && lua_type(L, index + 1) != LUA_TSTRING && ls_buffer_test(L, index + 1) == NULL) return;
    luaL_error(L, "%s: a UDP handler must return one string or buffer, the reply, or nothing; got %s%s",
               entry->udp.where, fine ? "" : "a ", fine ? "two of them, which .. joins" : got);
}

/* Add the handler's result at `index`, which was checked, to the replies of the batch, as the reply to the datagram `at`.
 * nil and false add nothing. Raises for one that is too long. */
static void reply_add(lua_State *L, udp_run *run, unsigned at, int index)
{
    ls_datagrams *batch = run->batch;
    ls_datagram *to = &batch->at[at];
    size_t len;
    const char *text = lua_tolstring(L, index, &len);
    if (text != NULL && len <= run->entry->udp.setup.datagram_bytes_max) {
        /* No other slice shares these bytes, and Lua has a copy of them. */
        memcpy((char *)(uintptr_t)to->slice.ptr, text, len);
        to->slice.len = len;
    } else if (text == NULL && !is_reply(L, index)) {
        return;
    } else {
        ls_slice slice = {NULL, NULL, 0};
        const ls_buffer *buffer = ls_buffer_test(L, index);
        if (buffer != NULL) len = buffer->len;
        if (len > LS_UDP_PAYLOAD_MAX) {
            (void)raise_too_long(L, len);
            return;
        }
        if (buffer != NULL && buffer->count == 1) {
            slice = (ls_slice){ls_block_hold(buffer->slices[0].block), buffer->slices[0].ptr, len};
        } else if (len > 0) {
            if (buffer != NULL) ls_slices_push_string(L, buffer->slices, buffer->count, len);
            if (buffer != NULL) text = lua_tostring(L, -1);
            ls_block *block = ls_state_block(L, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
            memcpy(block->data, text, len);
            slice = (ls_slice){block, block->data, len};
        }
        ls_slice_drop(&to->slice);
        to->slice = slice;
    }
    if (at != run->replies) { /* an earlier datagram had no reply: swap */
        const ls_datagram unanswered = batch->at[run->replies];
        batch->at[run->replies] = *to;
        *to = unanswered;
    }
    run->replies++;
}

enum { RUN_FN = 1, RUN_CACHE, RUN_PEER, RUN_REPLY }; /* stack of udp_main */

/* The handler returns after it waited: another task handles the rest of the batch. */
static int udp_late_reply(lua_State *L, int status, lua_KContext context)
{
    const udp_peer *peer = lua_touserdata(L, RUN_PEER);
    ls_task_log_failure(L, RUN_REPLY, "a function of ls.udp");
    check_results(L, (const ls_site_udp_entry *)context, RUN_REPLY); /* NOLINT(performance-no-int-to-ptr) */
    lua_settop(L, RUN_REPLY);
    if (!is_reply(L, RUN_REPLY)) return 0;
    const size_t len = ls_udp_check_data(L, RUN_REPLY);
    if (len > LS_UDP_PAYLOAD_MAX) return raise_too_long(L, len);
    (void)send_value(L, peer->udp, &peer->addr, RUN_REPLY); /* the socket counts failures, as for other replies */
    return 0;
}

/* Push the third argument of the handler; the first time, log a warning.
 * info is a DatagramInfo: the third argument of a function of ls.udp; nil for a datagram that was not truncated.
 * info.truncated: true - the datagram was longer than max_datagram */
static void push_truncated(lua_State *L, ls_site_udp_entry *entry)
{
    lua_createtable(L, 0, 1);
    ls_set_boolean(L, "truncated", true);
    if (!atomic_exchange(&entry->warned, true))
        ls_log(LS_LOG_WARN,
               "%s: a datagram longer than max_datagram = %u bytes was truncated (logged once): max_datagram = 65507 "
               "takes all, info.truncated tells",
               entry->udp.where, (unsigned)entry->udp.setup.datagram_bytes_max);
}

static int udp_main(lua_State *L) /* stack: the run, as light userdata */
{
    udp_run *run = lua_touserdata(L, 1);
    ls_udp_script *script = ls_udp_script_of(run->state);
    lua_settop(L, 0);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->handler_refs[run->entry->index]);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->peers_ref);
    const udp_peer *peer = NULL; /* at RUN_PEER; adjacent datagrams often have the same peer */
    while (run->next < run->batch->count) {
        /* Before the call: if the handler waits or raises, the next task starts after it. */
        const unsigned at = run->next++;
        const ls_datagram *datagram = &run->batch->at[at];
        if (peer == NULL || !ls_sockaddr_same(&peer->addr, &datagram->addr)) {
            lua_settop(L, RUN_CACHE);
            peer = peer_push(L, script, run->udp, &datagram->addr, RUN_CACHE);
        }
        lua_pushvalue(L, RUN_FN);
        lua_pushlstring(L, datagram->slice.ptr, datagram->slice.len);
        lua_pushvalue(L, RUN_PEER);
        if (datagram->truncated) push_truncated(L, run->entry);
        lua_callk(L, datagram->truncated ? 3 : 2, 3, (lua_KContext)run->entry, udp_late_reply);
        ls_task_log_failure(L, RUN_REPLY, "a function of ls.udp");
        check_results(L, run->entry, RUN_REPLY);
        lua_settop(L, RUN_REPLY);
        reply_add(L, run, at, RUN_REPLY);
        lua_settop(L, RUN_PEER);
    }
    return 0;
}

static void udp_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    udp_run *run = task->owner;
    if (run != NULL) run->task = NULL;
    if (status != LUA_OK) ls_task_log_error(ctx, task, "in a UDP handler");
    ls_task_release(ctx, task, status == LUA_OK);
}

/* Run the handler for the rest of the batch, with a new task after each handler that waits or raises. */
static void run_rest(ls_thread_ctx *ctx, udp_run *run)
{
    while (run->next < run->batch->count) {
        ls_task *task = ls_task_take_outside(run->state, ctx);
        if (task == NULL) {
            ls_log(LS_LOG_ERROR, "not enough memory to run a UDP handler: %u datagrams dropped",
                   run->batch->count - run->next);
            return;
        }
        run->task = task;
        ls_task_enter(task, LS_SCOPE_JOB);
        task->ended = udp_ended;
        task->owner = run;
        lua_pushcfunction(task->co, udp_main);
        lua_pushlightuserdata(task->co, run);
        ls_task_run(ctx, task, 1);
        if (run->task != NULL) { /* its handler waits */
            task->owner = NULL;
            ls_task_count(task);
        }
    }
}

/* Handle the batch in the state, and send the replies. */
static void run_batch(ls_thread_ctx *ctx, ls_state *state, ls_site_udp_entry *entry, ls_udp *udp, ls_datagrams *batch)
{
    udp_run run = {.state = state, .udp = udp, .entry = entry, .batch = batch};
    run_rest(ctx, &run);
    if (run.replies > 0)
        (void)ls_udp_send(ctx, udp, batch, run.replies);
    else
        ls_datagrams_drop(batch);
}

typedef struct waiting_batch { /* no state is free */
    ls_op op;
    ls_site_udp_entry *entry;
    ls_udp *udp;
    ls_datagrams *batch;
} waiting_batch;

static void run_waiting(ls_thread_ctx *ctx, ls_op *op)
{
    waiting_batch *w = LS_CONTAINER(op, waiting_batch, op);
    ls_generation *generation = w->entry->generation;
    ls_state *state = ls_state_of_actor(op->actor);
    ls_state_begin_request(ctx, state);
    run_batch(ctx, state, w->entry, w->udp, w->batch);
    free(w);
    atomic_fetch_sub(&generation->waiting, 1);
}

void ls_site_udp_batch(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch)
{
    ls_site_udp_entry *entry = user;
    ls_state *state = ls_generation_enter_own(entry->generation, ctx, "", 0);
    waiting_batch *w = NULL;
    if (state != NULL && !ls_actor_has_waiting(&state->actor)) { /* earlier batches may wait in it */
        run_batch(ctx, state, entry, udp, batch);
    } else if ((w = calloc(1, sizeof *w)) == NULL) {
        ls_log(LS_LOG_ERROR, "not enough memory to run a UDP handler: %u datagrams dropped", batch->count);
        ls_datagrams_drop(batch);
    } else {
        *w = (waiting_batch){.entry = entry, .udp = udp, .batch = batch};
        ls_generation_post(entry->generation, ctx, &w->op, run_waiting);
    }
    if (state != NULL) ls_actor_leave(&state->actor, ctx);
}

/* ---- definitions ------------------------------------------------------------------------------------------- */

#define OPTION(field)    LS_OPTION(ls_udp_setup, field)
#define MOST(field, max) LS_OPTION_MAX(ls_udp_setup, field, max)
static const ls_option setup_options[] = {MOST(batch, LS_DATAGRAMS_MAX),
                                          MOST(datagram_bytes_max, LS_UDP_PAYLOAD_MAX),
                                          MOST(recv_buffer_bytes, INT32_MAX / 2),
                                          MOST(send_buffer_bytes, INT32_MAX / 2),
                                          OPTION(reuse_port),
                                          OPTION(gather),
                                          OPTION(broadcast),
                                          OPTION(loop_set),
                                          OPTION(loop),
                                          OPTION(ttl),
                                          OPTION(interface),
                                          LS_OPTIONS_END};

void ls_udp_check_setup(lua_State *L, int index, ls_udp_setup *setup)
{
    *setup = (ls_udp_setup){0};
    ls_options_read(L, index, setup_options, setup);
    if (setup->batch == 0 || setup->datagram_bytes_max == 0)
        luaL_error(L, "batch and datagram_bytes_max must be at least 1");
    if (lua_getfield(L, index, "groups") == LUA_TTABLE) {
        const lua_Unsigned groups = lua_rawlen(L, -1);
        if (groups > LS_UDP_GROUPS_MAX) luaL_error(L, "more than %d multicast groups", LS_UDP_GROUPS_MAX);
        for (lua_Unsigned n = 0; n < groups && n < LS_UDP_GROUPS_MAX; n++) {
            lua_rawgeti(L, -1, (lua_Integer)n + 1);
            const char *group = luaL_checkstring(L, -1);
            if (parse_host(group, 0, &setup->groups[n]) < 0) luaL_error(L, "invalid multicast group \"%s\"", group);
            if (setup->groups[n].family != setup->groups[0].family)
                luaL_error(L, "multicast groups must be all IPv4 or all IPv6; use one socket for each");
            lua_pop(L, 1);
        }
        setup->group_count = (unsigned)groups;
    }
    lua_pop(L, 1);
}

/* core.udp({ host=, port=, where=, batch=, ... }, fn) -> sock */
static int core_udp(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_udp_script *script = ls_udp_script_of(state);
    static const ls_option options[] = {LS_OPTION(ls_site_udp, host), LS_OPTION(ls_site_udp, where),
                                        LS_OPTION(ls_site_udp, port), LS_OPTIONS_END};
    ls_site_udp udp = {.port = 0};
    if (!state->loading) return luaL_error(L, "ls.udp must be called while the site loads");
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    ls_options_read(L, 1, options, &udp);
    ls_udp_check_setup(L, 1, &udp.setup);

    unsigned index;
    ls_site_udp_entry *entry = ls_define(L, LS_SLOT_udp, sizeof *entry, &index);
    if (state->index == 0) {
        entry->udp = udp;
        entry->generation = state->generation;
        entry->index = index;
    }
    if (script->peer_keys == NULL && (script->peer_keys = calloc(PEERS_CACHED, sizeof(peer_key))) == NULL)
        return luaL_error(L, "not enough memory");
    lua_pushvalue(L, 2);
    script->handler_refs[index] = luaL_ref(L, LUA_REGISTRYINDEX);

    ((udp_sock *)ls_object_push(L, sizeof(udp_sock), 0, &sock_type))->entry = entry;
    return 1;
}

static const luaL_Reg sock_methods[] = {
    {"udp:sendto(data, host, port)", sock_sendto}, {"udp:close()", sock_close}, {NULL, NULL}};
static const luaL_Reg sock_meta[] = {{"__tostring", sock_tostring}, {NULL, NULL}};
static const char *const sock_fields[] = {"local_ip", "local_port", "local_addr", NULL};
static const ls_object_type sock_type = {
    .name = "UDP socket", .methods = sock_methods, .meta = sock_meta, .fields = sock_fields, .index = sock_index};

static void udp_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg peer_methods[] = {{"peer:send(data)", peer_send}, {NULL, NULL}};
    static const char *const peer_fields[] = {"ip", "port", "remote", NULL};
    static const luaL_Reg peer_meta[] = {{"__tostring", peer_tostring}, {"__eq", peer_eq}, {NULL, NULL}};
    static const ls_object_type peer_type = {
        .name = "peer", .methods = peer_methods, .meta = peer_meta, .fields = peer_fields, .index = peer_index};
    ls_udp_script *script = ls_udp_script_of(state);
    ls_object_define(L, &peer_type, &script->peer_meta_ref);
    lua_createtable(L, PEERS_CACHED, 0);
    for (int n = 1; n <= PEERS_CACHED; n++) { /* fill all places: the table stays an array */
        lua_pushboolean(L, 0);
        lua_rawseti(L, -2, n);
    }
    script->peers_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void udp_free(ls_state *state)
{
    free(ls_udp_script_of(state)->peer_keys);
}

static const luaL_Reg functions[] = {{"udp", core_udp}, {NULL, NULL}};

const ls_module ls_udp_module = {.name = "udp",
                                 .bytes = sizeof(ls_udp_script),
                                 .functions = functions,
                                 .define = udp_define,
                                 .free = udp_free,
                                 .defines = "UDP sockets",
                                 .serves = true,
                                 .definitions_max = LS_UDP_ENTRIES_MAX};
