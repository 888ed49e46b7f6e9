/* acme_functions.c - the functions of the core for lua/luaserve/acme*.lua: keys, requests, certificates, and what the
 * listeners of the server use of them. */
#include "script/bind/tls/acme.h"

#include "base/crypto/certificate.h"
#include "base/err.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/push.h"
#include "script/core/state.h"

static int fail(lua_State *L, int err)
{
    return luaL_error(L, "%s", err == LS_ENOTSUP ? "this luaserve was built without OpenSSL" : ls_err_text(err));
}

/* ---- certificates of the listeners ------------------------------------------------------------------------------ */

ls_tls_supply *ls_tls_supply_of(lua_State *L)
{
    ls_tls_supply **supply = ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_acme);
    const int err = *supply == NULL ? ls_tls_supply_open(supply) : LS_OK;
    if (err < 0) (void)fail(L, err);
    return *supply;
}

static void supply_close(void *own)
{
    ls_tls_supply *supply = *(ls_tls_supply **)own;
    if (supply != NULL) ls_tls_supply_drop(supply);
}

/* core.acme_use(name, pem) -> true | nil, message: the listeners whose table tls has this name as `supplied` use the
 * certificate with its key from now on. */
static int core_acme_use(lua_State *L)
{
    char why[256] = "";
    const char *name = luaL_checkstring(L, 1);
    const ls_text pem = ls_check_text(L, 2);
    const int err = ls_tls_supply_set(ls_tls_supply_of(L), name, pem.ptr, pem.len, why, sizeof why);
    if (err < 0 && err != LS_EINVAL) return fail(L, err);
    return err < 0 ? ls_push_nil_text(L, why) : ls_push_boolean(L, true);
}

/* core.acme_prove(host, digest|nil): the listeners prove this name by the digest (RFC 8737), or no longer do. */
static int core_acme_prove(lua_State *L)
{
    size_t len = LS_TLS_PROOF_BYTES;
    const char *host = luaL_checkstring(L, 1), *digest = luaL_optlstring(L, 2, NULL, &len);
    luaL_argcheck(L, digest == NULL || len == LS_TLS_PROOF_BYTES, 2, "32 bytes expected");
    const int err = ls_tls_supply_prove(ls_tls_supply_of(L), host, (const uint8_t *)digest);
    return err < 0 ? fail(L, err) : 0;
}

/* ---- keys, requests, certificates ------------------------------------------------------------------------------- */

/* core.acme_key() -> a new private key (P-256), as PEM */
static int core_acme_key(lua_State *L)
{
    char pem[LS_KEY_PEM_BYTES_MAX];
    const int len = ls_key_make(pem);
    return len < 0 ? fail(L, len) : ls_push_bytes(L, pem, (size_t)len);
}

/* core.acme_point(pem) -> x and y of its public key, 32 bytes each; nil: it is no such key */
static int core_acme_point(lua_State *L)
{
    uint8_t point[LS_POINT_BYTES];
    const ls_text pem = ls_check_text(L, 1);
    const int err = ls_key_point(pem.ptr, pem.len, point);
    if (err < 0) return err == LS_EINVAL ? ls_push_nil(L) : fail(L, err);
    (void)ls_push_bytes(L, (char *)point, LS_POINT_BYTES / 2);
    return 1 + ls_push_bytes(L, (char *)point + LS_POINT_BYTES / 2, LS_POINT_BYTES / 2);
}

/* core.acme_request(pem, "DNS:a.example,...") -> a request for a certificate (DER) */
static int core_acme_request(lua_State *L)
{
    const ls_text pem = ls_check_text(L, 1), names = ls_check_text(L, 2);
    const size_t room = names.len + LS_REQUEST_BYTES;
    uint8_t *der = lua_newuserdatauv(L, room, 0);
    const int len = ls_certificate_request(pem.ptr, pem.len, names.ptr, der, room);
    return len < 0 ? fail(L, len) : ls_push_bytes(L, (char *)der, (size_t)len);
}

/* core.acme_read(pem) -> { not_before =, not_after =, names =, serial =, key_id = } of ls_certificate_read | nil,
 * message */
static int core_acme_read(lua_State *L)
{
    ls_certificate cert;
    const char *why = NULL;
    const ls_text pem = ls_check_text(L, 1);
    char *names = lua_newuserdatauv(L, pem.len, 0);
    const int err = ls_certificate_read(pem.ptr, pem.len, &cert, names, &why);
    if (err < 0) return err == LS_EINVAL ? ls_push_nil_text(L, why) : fail(L, err);
    lua_createtable(L, 0, 5);
    lua_pushlstring(L, names, cert.names_len);
    lua_setfield(L, -2, "names");
    ls_set_integer(L, "not_before", cert.not_before);
    ls_set_integer(L, "not_after", cert.not_after);
    lua_pushlstring(L, (const char *)cert.serial, cert.serial_len);
    lua_setfield(L, -2, "serial");
    lua_pushlstring(L, (const char *)cert.key_id, cert.key_id_len);
    lua_setfield(L, -2, "key_id");
    return 1;
}

static const luaL_Reg functions[] = {{"acme_use", core_acme_use},
                                     {"acme_prove", core_acme_prove},
                                     {"acme_key", core_acme_key},
                                     {"acme_point", core_acme_point},
                                     {"acme_request", core_acme_request},
                                     {"acme_read", core_acme_read},
                                     {NULL, NULL}};
static const ls_module_common common = {.bytes = sizeof(ls_tls_supply *), .close = supply_close};

const ls_module ls_acme_module = {.name = "acme", .functions = functions, .common = &common};
