/* res_upgrade.c - res:upgrade: the connection of a request becomes a sock (RFC 9110 sections 7.8 and 9.3.6). */
#include <string.h>

#include "codec/http_text.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/sock/sock_object.h"

/* protocol-name ["/" protocol-version], both tokens */
static bool is_protocol(const char *text, size_t len)
{
    const char *slash = memchr(text, '/', len);
    const size_t name_len = slash != NULL ? (size_t)(slash - text) : len;
    return ls_is_token(text, name_len) && (slash == NULL || ls_is_token(slash + 1, len - name_len - 1));
}

static const char *check_protocol(lua_State *L, const ls_exchange *x, size_t *len)
{
    *len = 0;
    if (x->head.method == LS_HTTP_CONNECT) {
        if (!lua_isnoneornil(L, 2))
            luaL_error(L, "res:upgrade: a CONNECT request asks for a tunnel, not for a protocol; call res:upgrade()");
        if (x->status < 200 || x->status > 299)
            luaL_error(L, "res:upgrade: the status of a tunnel must be from 200 to 299, not %d", x->status);
        return "";
    }
    if (lua_isnoneornil(L, 2))
        luaL_error(L, "res:upgrade: the protocol is missing, as in res:upgrade(\"chat/1\"); only CONNECT has none");
    const char *protocol = luaL_checklstring(L, 2, len);
    if (!is_protocol(protocol, *len))
        luaL_error(
            L, "res:upgrade: invalid protocol '%s'; a protocol is a name, or a name and a version, such as \"chat/1\"",
            protocol);
    return protocol;
}

static void drop(ls_thread_ctx *ctx, void *tcp)
{
    ls_tcp_finish(ctx, tcp);
}

static const ls_response_kind sock = {.drop = drop,
                                      .sent = "the connection was taken over; use the sock of res:upgrade"};

static int push_refusal(lua_State *L, const ls_exchange *x, const char *protocol, int err)
{
    if (err == LS_ENOTSUP) return ls_push_failure_text(L, err, "%s", ls_no_upgrade(x));
    if (err != LS_EINVAL) return ls_push_failure(L, err);
    if (!x->body_done) return ls_push_failure_text(L, err, "the body of the request was not read to its end");
    return ls_push_failure_text(L, err, "the client did not ask for the protocol '%s'", protocol);
}

static int res_upgrade(lua_State *L);

static int upgrade_again(lua_State *L, int status, lua_KContext context)
{
    return res_upgrade(L);
}

/* res:upgrade([protocol: string]) -> sock | nil, message, code
 * Responds 101, or to CONNECT, which names no protocol, with the status that the handler has set (200), and takes
 * the connection over. The sock belongs to the handler: it closes when the handler ends. EINVAL: the client did not
 * ask for the protocol (Upgrade and Connection of HTTP/1.1), or the body was not read; ENOTSUP: HTTP/2 without
 * CONNECT, a listener of http.sys, or app:inject; the codes of a lost connection. Raises when the response has
 * begun. RFC 9110 sections 7.8 and 9.3.6. */
static int res_upgrade(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_exchange *const x = r->x;
    ls_upgraded up;
    size_t len;
    ls_res_check_undescribed(L, r, "res:upgrade");
    const char *protocol = check_protocol(L, x, &len);
    lua_settop(L, 2);
    if (ls_exchange_unexpect_end(r->state->ctx, x) == LS_PENDING) return ls_request_wait(L, r, 0, upgrade_again);
    ls_request_keep_tls(L, r); /* afterwards the session is that of the sock */
    ls_tcp_config config = {0};
    ls_push_function(L, "luaserve.tcp", "defaults");
    lua_call(L, 0, 1);
    ls_options_read(L, -1, ls_tcp_options, &config);
    ls_tcp_object *o = ls_tcp_push(L, NULL);
    (void)ls_res_check_open(L); /* a finalizer may have responded */
    const int err = ls_exchange_upgrade(r->state->ctx, x, protocol, len, &ls_tcp_handler, ls_tcp_own_bytes, &up);
    if (err < 0) return push_refusal(L, x, protocol, err);
    ls_tcp *tcp = ls_tcp_upgraded(r->state, up.stream, &config, up.limit, &r->owned);
    ls_tcp_attach(o, tcp);
    ls_http_task_owns(r, tcp, &sock);
    return 1;
}

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"res:upgrade(protocol)", res_upgrade}, {NULL, NULL}};
    ls_request_methods(L, ls_requests_of(state)->res_meta_ref, methods);
}

const ls_module ls_upgrade_module = {.name = "upgrade", .define = define};
