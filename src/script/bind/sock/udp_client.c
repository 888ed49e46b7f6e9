/* udp_client.c - ls.udp_connect: a UDP socket with one peer, for the tasks of one state.
 *
 * The first receive of the script posts the first receive of the port; the further datagrams of its batch are kept for
 * later calls. A receive that timed out stays posted, and its datagrams belong to the next call. The udp_client
 * outlives its Lua handle until its last packet has arrived. */
#include <stdlib.h>
#include <string.h>

#include "script/bind/bind_aux.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/sock/udp_object_internal.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

static const ls_object_type client_type;

/* The list of a state, including closed ones whose last packet is outstanding. */
static ls_node *clients_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_udp_client);
}

typedef struct udp_client {
    ls_node node;
    ls_state *state;
    ls_udp *udp;
    ls_datagrams *batch; /* received; datagrams from `next` on are not yet taken */
    unsigned next;
    int err;         /* of the last receive, not yet returned */
    bool pending;    /* a receive is posted */
    bool handle;     /* Lua has a handle of it */
    bool closed;     /* by the script, or at the end of the server */
    ls_node waiters; /* the task that receives, at most one */
    ls_addr remote;
} udp_client;

typedef struct client_handle {
    const void *tag;
    udp_client *client; /* NULL: ls.udp_connect failed */
} client_handle;

/* ---- life -------------------------------------------------------------------------------------------------- */

static void client_drop_batch(udp_client *client)
{
    if (client->batch != NULL) ls_datagrams_drop(client->batch);
    client->batch = NULL;
}

static void client_close(ls_thread_ctx *ctx, udp_client *client)
{
    if (client->closed) return;
    client->closed = true;
    ls_sockets_closed(client->state);
    client_drop_batch(client);
    ls_udp_close(ctx, client->udp);
    if (!ls_list_empty(&client->waiters)) /* one at most */
        ls_task_wake(ctx, LS_CONTAINER(client->waiters.next, ls_task, wait_node), LS_OK);
}

/* The client is on no list. */
static void client_free(udp_client *client)
{
    client_drop_batch(client);
    ls_udp_free(client->udp);
    free(client);
}

/* Free clients without a handle whose last packet has arrived. */
static void clients_sweep(const ls_node *all)
{
    LS_LIST_EACH_DROP (udp_client, client, all, node) {
        if (client->handle || !ls_udp_idle(client->udp)) continue;
        ls_list_remove(&client->node);
        client_free(client);
    }
}

static int handle_gc(lua_State *L)
{
    client_handle *handle = lua_touserdata(L, 1);
    udp_client *client = handle->client;
    const ls_state *state = ls_state_of(L);
    handle->client = NULL;
    if (client == NULL) return 0;
    client->handle = false;
    if (state->port == NULL) return 0; /* the state closes, and has closed the socket */
    client_close(state->ctx, client);
    if (!ls_udp_idle(client->udp)) return 0;
    ls_list_remove(&client->node);
    client_free(client);
    return 0;
}

static udp_client *client_check(lua_State *L)
{
    const client_handle *handle = ls_udata_test(L, 1, &client_type, sizeof *handle);
    if (handle == NULL || handle->client == NULL) luaL_typeerror(L, 1, "connected UDP socket");
    return handle->client;
}

/* ---- send and receive -------------------------------------------------------------------------------------- */

/* client:send(data: string|number|Buffer) -> true | nil, message, code
 * Sends a datagram. Never waits. */
static int client_send(lua_State *L)
{
    const udp_client *client = client_check(L);
    const ls_sockaddr connected = {.len = 0}; /* no address: the connected peer */
    ls_datagrams *batch;
    (void)ls_udp_check_data(L, 2);
    if (client->closed) return ls_push_failure(L, LS_ECLOSED);
    int err = ls_udp_compose_value(L, 2, &connected, &batch);
    if (err == LS_OK) err = ls_udp_send(ls_state_of(L)->ctx, client->udp, batch, 1);
    return ls_push_result(L, err);
}

/* The posted receive has completed. */
static void client_batch_received(ls_thread_ctx *ctx, void *user, ls_datagrams *batch, int err)
{
    udp_client *client = user;
    client->pending = false;
    if (client->closed) {
        if (batch != NULL) ls_datagrams_drop(batch);
        return;
    }
    client->batch = batch;
    client->next = 0;
    client->err = err;
    if (!ls_list_empty(&client->waiters))
        ls_task_wake(ctx, LS_CONTAINER(client->waiters.next, ls_task, wait_node), LS_OK);
}

static void client_drop_taken(udp_client *client)
{
    if (client->batch != NULL && client->next == client->batch->count) client_drop_batch(client);
}

/* Push the next datagram (data [, info]) or an error (nil, message, code) and return the number of values; 0: no
 * datagram yet. lua_pushlstring may run finalizers, which may close this socket or receive from it, and may raise: so
 * the datagram counts as taken before the push. */
static int client_take(lua_State *L, udp_client *client)
{
    int count = 1;
    if (client->closed) return ls_push_failure(L, LS_ECLOSED);
    client_drop_taken(client);
    if (client->batch == NULL) {
        const int err = client->err;
        client->err = LS_OK;
        return err < 0 ? ls_push_failure(L, err) : 0;
    }
    const ls_datagram *datagram = &client->batch->at[client->next++];
    const bool truncated = datagram->truncated;
    lua_pushlstring(L, datagram->slice.ptr, datagram->slice.len);
    client_drop_taken(client);
    if (truncated) {
        lua_createtable(L, 0, 1);
        ls_set_boolean(L, "truncated", true);
        count = 2;
    }
    return count;
}

static int receive_done(lua_State *L, int status, lua_KContext context)
{
    udp_client *client = client_check(L);
    const int count = client_take(L, client);
    return count > 0 ? count : ls_push_failure(L, LS_ETIMEDOUT);
}

/* client:receive([timeout]) -> data: string, info: DatagramInfo? | nil, message, code
 * Waits for a datagram. The second result is `{ truncated = true }` for one that was truncated. */
static int client_receive(lua_State *L)
{
    udp_client *client = client_check(L);
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    int count = client_take(L, client);
    if (count > 0) return count;
    if (!ls_list_empty(&client->waiters)) return luaL_error(L, "another task already receives from this socket");
    if (timeout != 0) ls_task_may_wait(L);
    if (!client->pending) {
        const int posted = ls_udp_receive(state->ctx, client->udp, &client->batch);
        if (posted < 0) return ls_push_failure(L, posted);
        if (posted == LS_DONE) {
            client->next = 0;
            return client_take(L, client);
        }
        client->pending = true;
    }
    if (timeout == 0) return ls_push_failure(L, LS_ETIMEDOUT);
    if (timeout > 0) ls_task_alarm(L, state->current, timeout);
    ls_list_push(&client->waiters, &state->current->wait_node);
    return ls_task_yield(L, LS_WAIT_WRITE, 0, receive_done);
}

/* client:close()
 * Closes the socket. */
static int client_close_call(lua_State *L)
{
    client_close(ls_state_of(L)->ctx, client_check(L));
    return 0;
}

/* client is an UdpClient: the socket of ls.udp_connect.
 * client.ip: string - address of the peer
 * client.port: integer - port of the peer
 * client.remote: string - both as text
 * client.local_ip: string - address of this side
 * client.local_port: integer - port of this side
 * client.local_addr: string - both as text */
static int client_index(lua_State *L)
{
    const udp_client *client = client_check(L);
    if (ls_push_method(L, "a connected UDP socket")) return 1;
    const char *name = lua_tostring(L, 2);
    return ls_push_addr_field(L, name, strncmp(name, "local_", 6) == 0 ? ls_udp_addr(client->udp) : &client->remote);
}

static int client_tostring(lua_State *L)
{
    const udp_client *client = client_check(L);
    char text[LS_ADDR_TEXT_BYTES];
    lua_pushfstring(L, "UDP socket to %s%s", ls_addr_text(&client->remote, text), client->closed ? " (closed)" : "");
    return 1;
}

/* core.udp_connect(host, port, setup) -> sock | nil, message, code */
static int core_udp_connect(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    (void)luaL_checkstring(L, 1);
    const uint16_t port = (uint16_t)ls_udp_check_port(L, 2);
    ls_udp_setup setup;
    ls_addr to;
    luaL_checktype(L, 3, LUA_TTABLE);
    if (state->port == NULL)
        return luaL_error(L,
                          "cannot be called while the site loads; call it in a handler, ls.init or ls.on(\"start\")");
    if (!ls_udp_check_host(L, 1, port, &to)) return ls_udp_push_bad_host(L, 1);
    ls_udp_check_setup(L, 3, &setup);

    client_handle *handle = ls_object_push(L, sizeof *handle, 0, &client_type);
    ls_sockets_make_room(L);
    clients_sweep(clients_of(state));
    udp_client *client = calloc(1, sizeof *client);
    if (client == NULL) return luaL_error(L, "not enough memory");
    int err;
    do err = ls_udp_connect(state->port, &setup, &to, &state->actor, client_batch_received, client, &client->udp);
    while (ls_sockets_collect(L, err));
    if (err < 0) {
        free(client);
        return ls_push_failure(L, err);
    }
    ls_sockets_opened(state);
    ls_node_init(&client->waiters);
    client->handle = true;
    client->state = state;
    client->remote = to;
    ls_list_push(clients_of(state), &client->node);
    handle->client = client;
    return 1;
}

static const luaL_Reg methods[] = {{"client:send(data)", client_send},
                                   {"client:receive(timeout)", client_receive},
                                   {"client:close()", client_close_call},
                                   {NULL, NULL}};
static const char *const fields[] = {"ip", "port", "remote", "local_ip", "local_port", "local_addr", NULL};
static const luaL_Reg meta[] = {
    {"__tostring", client_tostring}, {"__gc", handle_gc}, {"__close", client_close_call}, {NULL, NULL}};
static const ls_object_type client_type = {
    .name = "connected UDP socket", .methods = methods, .meta = meta, .fields = fields, .index = client_index};

static void clients_close(ls_thread_ctx *ctx, ls_state *state)
{
    LS_LIST_EACH_DROP (udp_client, client, clients_of(state), node)
        client_close(ctx, client); /* may wake a task, which only ends */
}

static bool clients_closed(ls_state *state)
{
    LS_LIST_EACH (const udp_client, client, clients_of(state), node)
        if (!ls_udp_idle(client->udp)) return false;
    return true;
}

static bool clients_unused(ls_state *state)
{
    return ls_list_empty(clients_of(state));
}

static void clients_disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    LS_LIST_EACH (udp_client, client, clients_of(state), node) {
        ls_node_init(&client->waiters); /* no task runs */
        client_close(ctx, client);
    }
}

static void clients_free(ls_state *state)
{
    LS_LIST_EACH_DROP (udp_client, client, clients_of(state), node) client_free(client);
}

static const luaL_Reg functions[] = {{"udp_connect", core_udp_connect}, {NULL, NULL}};

const ls_module ls_udp_client_module = {.name = "udp_client",
                                        .bytes = sizeof(ls_node),
                                        .lists = true,
                                        .functions = functions,
                                        .close = clients_close,
                                        .closed = clients_closed,
                                        .unused = clients_unused,
                                        .disconnect = clients_disconnect,
                                        .free = clients_free};
