/* crypto_object.c - the core of ls.crypto (lua/luaserve/crypto.lua, which checks the arguments): digests of strings
 * and buffers, the object of ls.crypto.hasher, sealed texts, scrypt, signatures, base64.
 *
 * What takes long, scrypt and the digest of many bytes, is done by a thread of the port while the task waits. The
 * object of such a call is on the stack of the task and owns what the call needs. */
#include <string.h>

#include "base/crypto/digest.h"
#include "base/crypto/random.h"
#include "base/crypto/seal.h"
#include "base/crypto/signature.h"
#include "base/err.h"
#include "base/slices.h"
#include "codec/base64.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

enum {
    HASH_BYTES_AT_ONCE = 1 << 20, /* more are left to a thread of the port: about a millisecond */
    SCRYPT_BYTES = 32,
    SAME_BYTES = 32, /* of core.crypto_same */
    SAME_MAX = 100   /* its calls in one site */
};

/* How the result of a digest is written; the numbers are those of crypto.lua. */
enum encoding { RAW, HEX, BASE64, BASE64URL };

static const ls_object_type hasher_type, key_type, call_type;

typedef struct hasher {
    const void *tag;
    ls_hasher *hash; /* NULL: it has ended */
} hasher;

typedef struct key_object {
    const void *tag;
    ls_signature_key *key;
} key_object;

typedef struct call {
    const void *tag;
    ls_task_work w;
    ls_digest digest;
    enum encoding encoding;
    ls_slices data;         /* their bytes are on the stack of the task, or in blocks */
    const char *key, *text; /* on the stack of the task: the key of an HMAC or the salt, the password */
    size_t key_len, text_len;
    unsigned log_n, r, p;
    uint8_t out[LS_DIGEST_BYTES_MAX];
} call;

static int fail(lua_State *L, int err)
{
    return luaL_error(L, "%s", err == LS_ENOMEM ? "not enough memory" : ls_err_text(err));
}

static int push_encoded(lua_State *L, const void *bytes, size_t len, enum encoding encoding)
{
    luaL_Buffer buffer;
    if (encoding == RAW) {
        lua_pushlstring(L, bytes, len);
    } else if (encoding == HEX) {
        ls_hex_write(bytes, len, luaL_buffinitsize(L, &buffer, 2 * len));
        luaL_pushresultsize(&buffer, 2 * len);
    } else {
        char *out = luaL_buffinitsize(L, &buffer, LS_BASE64_CHARS(len));
        luaL_pushresultsize(&buffer, ls_base64_write(bytes, len, encoding == BASE64URL, out));
    }
    return 1;
}

/* The bytes of the string or buffer at `index`, without a reference: its slices, or *one. */
static const ls_slice *data_at(lua_State *L, int index, ls_slice *one, unsigned *count, size_t *len)
{
    const ls_buffer *buffer = ls_buffer_test(L, index);
    *count = buffer != NULL ? buffer->count : 1;
    *one = (ls_slice){NULL, NULL, 0};
    if (buffer == NULL) one->ptr = luaL_checklstring(L, index, &one->len);
    *len = buffer != NULL ? buffer->len : one->len;
    return buffer != NULL ? buffer->slices : one;
}

/* ---- digests ---------------------------------------------------------------------------------------------------- */

static int add_all(ls_hasher *hash, const ls_slice *slices, unsigned count)
{
    int err = LS_OK;
    for (unsigned n = 0; n < count && err == LS_OK; n++) err = ls_hasher_add(hash, slices[n].ptr, slices[n].len);
    return err;
}

/* The number of bytes of the digest, or an error. */
static int digest_of(const call *c, const ls_slice *slices, unsigned count, uint8_t *out)
{
    ls_hasher *hash;
    int result = ls_hasher_open(c->digest, c->key, c->key_len, &hash);
    if (result < 0) return result;
    if ((result = add_all(hash, slices, count)) == LS_OK) result = ls_hasher_end(hash, out);
    ls_hasher_free(hash);
    return result;
}

static int64_t run_hash(ls_work *work)
{
    call *c = LS_CONTAINER(work, call, w.work);
    return digest_of(c, ls_slices_items(&c->data), c->data.count, c->out);
}

static int call_drop(lua_State *L)
{
    ls_slices_clear(&((call *)lua_touserdata(L, 1))->data);
    return 0;
}

static int call_done(lua_State *L, int status, lua_KContext context)
{
    call *c = (call *)context; /* NOLINT(performance-no-int-to-ptr) */
    const int64_t result = ls_task_work_result(&c->w);
    ls_slices_clear(&c->data); /* the collector does not see the size of what it holds */
    return result < 0 ? fail(L, (int)result) : push_encoded(L, c->out, (size_t)result, c->encoding);
}

static int hash_elsewhere(lua_State *L, const call *of)
{
    ls_slice one;
    unsigned count;
    size_t len;
    call *c = ls_object_push(L, sizeof *c, 0, &call_type); /* may run finalizers, which may change the buffer */
    const ls_slice *slices = data_at(L, 2, &one, &count, &len);
    *c = *of;
    c->w.work.run = run_hash;
    for (unsigned n = 0; n < count; n++) { /* references: the buffer may change meanwhile */
        const ls_slice slice = {slices[n].block != NULL ? ls_block_hold(slices[n].block) : NULL, slices[n].ptr,
                                slices[n].len};
        if (ls_slices_add(&c->data, slice) == LS_OK) continue;
        if (slice.block != NULL) ls_block_drop(slice.block);
        return fail(L, LS_ENOMEM);
    }
    return ls_task_await(L, &c->w, (lua_KContext)c, call_done);
}

/* core.crypto_hash(digest, data, key or nil, encoding) -> the digest or HMAC of a string or buffer. Waits for that of
 * many bytes, where the task can wait. */
static int core_crypto_hash(lua_State *L)
{
    call c = {.tag = &call_type,
              .digest = (ls_digest)luaL_checkinteger(L, 1),
              .encoding = (enum encoding)luaL_optinteger(L, 4, RAW)};
    ls_slice one;
    unsigned count;
    size_t len;
    const ls_slice *slices = data_at(L, 2, &one, &count, &len);
    c.key = lua_isnoneornil(L, 3) ? NULL : luaL_checklstring(L, 3, &c.key_len);
    if (len > HASH_BYTES_AT_ONCE && ls_task_can_wait(L)) return hash_elsewhere(L, &c);
    const int result = digest_of(&c, slices, count, c.out);
    return result < 0 ? fail(L, result) : push_encoded(L, c.out, (size_t)result, c.encoding);
}

static ls_hasher *hasher_check(lua_State *L)
{
    const hasher *h = ls_udata_check(L, 1, &hasher_type, sizeof *h, "hasher");
    if (h->hash == NULL) luaL_error(L, "hasher:final was called: make a new hasher for further data");
    return h->hash;
}

/* hasher is a Hasher: a digest or an HMAC of data that arrive in parts.
 * hasher:update(data: string|Buffer) -> hasher
 * Adds data. */
static int hasher_update(lua_State *L)
{
    ls_hasher *hash = hasher_check(L);
    ls_slice one;
    unsigned count;
    size_t len;
    const ls_slice *slices = data_at(L, 2, &one, &count, &len);
    const int err = add_all(hash, slices, count);
    if (err < 0) return fail(L, err);
    lua_settop(L, 1);
    return 1;
}

static int hasher_drop(lua_State *L) /* __gc */
{
    hasher *h = lua_touserdata(L, 1);
    ls_hasher_free(h->hash);
    h->hash = NULL;
    return 0;
}

/* hasher:final([encoding: "hex"|"base64"|"base64url"]) -> digest: string
 * Returns the digest of all data; the hasher cannot be used afterwards. */
static int hasher_final(lua_State *L)
{
    static const char *const names[] = {"", "hex", "base64", "base64url", NULL};
    ls_hasher *hash = hasher_check(L);
    const enum encoding encoding = (enum encoding)luaL_checkoption(L, 2, "", names);
    uint8_t out[LS_DIGEST_BYTES_MAX];
    const int len = ls_hasher_end(hash, out);
    (void)hasher_drop(L);
    return len < 0 ? fail(L, len) : push_encoded(L, out, (size_t)len, encoding);
}

/* core.crypto_hasher(digest, key or nil) -> hasher */
static int core_crypto_hasher(lua_State *L)
{
    size_t key_len = 0;
    const ls_digest digest = (ls_digest)luaL_checkinteger(L, 1);
    const char *key = lua_isnoneornil(L, 2) ? NULL : luaL_checklstring(L, 2, &key_len);
    hasher *h = ls_object_push(L, sizeof *h, 0, &hasher_type);
    const int err = ls_hasher_open(digest, key, key_len, &h->hash);
    return err < 0 ? fail(L, err) : 1;
}

/* ---- secrets ---------------------------------------------------------------------------------------------------- */

static const uint8_t *check_key(lua_State *L, int index)
{
    const ls_text key = ls_check_text(L, index);
    luaL_argcheck(L, key.len == LS_SEAL_KEY_BYTES, index, "32 bytes expected");
    return (const uint8_t *)key.ptr;
}

/* core.crypto_seal(key, text, context) -> base64url */
static int core_crypto_seal(lua_State *L)
{
    const uint8_t *key = check_key(L, 1);
    const ls_text text = ls_check_text(L, 2), context = ls_check_text(L, 3);
    uint8_t *sealed = lua_newuserdatauv(L, text.len + LS_SEAL_BYTES, 0);
    const int err = ls_seal(key, context.ptr, context.len, text.ptr, text.len, sealed);
    return err < 0 ? fail(L, err) : push_encoded(L, sealed, text.len + LS_SEAL_BYTES, BASE64URL);
}

/* core.crypto_unseal(key, base64url, context) -> text; nil: it is not a text that was sealed with this key and
 * context */
static int core_crypto_unseal(lua_State *L)
{
    luaL_Buffer buffer;
    const uint8_t *key = check_key(L, 1);
    const ls_text text = ls_check_text(L, 2), context = ls_check_text(L, 3);
    uint8_t *sealed = (uint8_t *)luaL_buffinitsize(L, &buffer, text.len / 4 * 3 + LS_SEAL_BYTES);
    const ptrdiff_t len = ls_base64_read(text.ptr, text.len, true, sealed);
    uint8_t *out = sealed + LS_SEAL_NONCE_BYTES;
    const int err = len < 0 ? LS_EINVAL : ls_unseal(key, context.ptr, context.len, sealed, (size_t)len, out);
    if (err < 0 && err != LS_EINVAL) return fail(L, err);
    if (err == LS_OK) memmove(sealed, out, (size_t)len - LS_SEAL_BYTES);
    luaL_pushresultsize(&buffer, err < 0 ? 0 : (size_t)len - LS_SEAL_BYTES);
    if (err < 0) lua_pushnil(L);
    return 1;
}

static int64_t run_scrypt(ls_work *work)
{
    call *c = LS_CONTAINER(work, call, w.work);
    const int err = ls_scrypt(c->text, c->text_len, c->key, c->key_len, c->log_n, c->r, c->p, c->out, SCRYPT_BYTES);
    return err < 0 ? err : SCRYPT_BYTES;
}

/* core.crypto_scrypt(password, salt, log_n, r, p) -> 32 bytes. Waits. */
static int core_crypto_scrypt(lua_State *L)
{
    unsigned cost[3]; /* log2 of N, r, p */
    for (int n = 0; n < 3; n++) {
        const lua_Integer given = luaL_checkinteger(L, 3 + n);
        luaL_argcheck(L, given >= 1 && given <= 65536, 3 + n, "from 1 to 65536");
        cost[n] = (unsigned)given;
    }
    call c = {.tag = &call_type, .log_n = cost[0], .r = cost[1], .p = cost[2]};
    c.text = luaL_checklstring(L, 1, &c.text_len);
    c.key = luaL_checklstring(L, 2, &c.key_len);
    call *made = ls_object_push(L, sizeof *made, 0, &call_type);
    *made = c;
    made->w.work.run = run_scrypt;
    return ls_task_await(L, &made->w, (lua_KContext)made, call_done);
}

/* ---- signatures ------------------------------------------------------------------------------------------------ */

static int key_drop(lua_State *L) /* __gc */
{
    key_object *object = lua_touserdata(L, 1);
    ls_signature_key_free(object->key);
    object->key = NULL;
    return 0;
}

/* core.crypto_key(pem) -> key, "RS256" | "ES256" | "EdDSA"; nil, code: as of ls_signature_key_open */
static int core_crypto_key(lua_State *L)
{
    static const char *const names[] = {[LS_RS256] = "RS256", [LS_ES256] = "ES256", [LS_EDDSA] = "EdDSA"};
    const ls_text pem = ls_check_text(L, 1);
    key_object *object = ls_object_push(L, sizeof *object, 0, &key_type);
    const int err = ls_signature_key_open(pem.ptr, pem.len, &object->key);
    if (err == LS_ENOMEM) return fail(L, err);
    if (err < 0) lua_pushnil(L);
    lua_pushstring(L, err < 0 ? ls_err_name(err) : names[ls_signature_key_kind(object->key)]);
    return 2;
}

static const ls_signature_key *key_check(lua_State *L)
{
    return ((key_object *)ls_udata_check(L, 1, &key_type, sizeof(key_object), "key"))->key;
}

/* core.crypto_sign(key, data) -> signature; nil: the key is a public one */
static int core_crypto_sign(lua_State *L)
{
    uint8_t out[LS_SIGNATURE_BYTES_MAX];
    const ls_signature_key *key = key_check(L);
    const ls_text data = ls_check_text(L, 2);
    const int bytes = ls_signature_make(key, data.ptr, data.len, out);
    if (bytes < 0 && bytes != LS_EINVAL) return fail(L, bytes);
    return bytes < 0 ? ls_push_nil(L) : ls_push_bytes(L, (char *)out, (size_t)bytes);
}

/* core.crypto_verify(key, data, signature) -> boolean */
static int core_crypto_verify(lua_State *L)
{
    const ls_signature_key *key = key_check(L);
    const ls_text data = ls_check_text(L, 2), signature = ls_check_text(L, 3);
    const int err = ls_signature_check(key, data.ptr, data.len, (const uint8_t *)signature.ptr, signature.len);
    if (err < 0 && err != LS_EINVAL) return fail(L, err);
    return ls_push_boolean(L, err == LS_OK);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

/* core.crypto_equal(a, b) -> boolean. The time depends on the lengths alone. */
static int core_crypto_equal(lua_State *L)
{
    const ls_text a = ls_check_text(L, 1), b = ls_check_text(L, 2);
    return ls_push_boolean(L, a.len == b.len && ls_secret_equal(a.ptr, b.ptr, a.len));
}

/* core.crypto_random(count) -> string */
static int core_crypto_random(lua_State *L)
{
    luaL_Buffer buffer;
    const size_t count = (size_t)luaL_checkinteger(L, 1);
    ls_random(luaL_buffinitsize(L, &buffer, count), count);
    luaL_pushresultsize(&buffer, count);
    return 1;
}

/* core.crypto_encode(encoding, bytes) -> text */
static int core_crypto_encode(lua_State *L)
{
    const enum encoding encoding = (enum encoding)luaL_checkinteger(L, 1);
    const ls_text bytes = ls_check_text(L, 2);
    return push_encoded(L, bytes.ptr, bytes.len, encoding);
}

/* core.crypto_decode(encoding, text) -> bytes; nil: the text is invalid */
static int core_crypto_decode(lua_State *L)
{
    luaL_Buffer buffer;
    const enum encoding encoding = (enum encoding)luaL_checkinteger(L, 1);
    const ls_text text = ls_check_text(L, 2);
    char *out = luaL_buffinitsize(L, &buffer, text.len + 2);
    const ptrdiff_t len = encoding != HEX ? ls_base64_read(text.ptr, text.len, encoding == BASE64URL, out)
                          : ls_hex_read(text.ptr, text.len, out) ? (ptrdiff_t)text.len / 2
                                                                 : -1;
    luaL_pushresultsize(&buffer, len < 0 ? 0 : (size_t)len);
    if (len < 0) lua_pushnil(L);
    return 1;
}

/* core.crypto_built() -> whether OpenSSL is there */
static int core_crypto_built(lua_State *L)
{
    ls_hasher *hash = NULL;
    const int err = ls_hasher_open(LS_DIGEST_SHA256, NULL, 0, &hash);
    ls_hasher_free(hash);
    if (err == LS_ENOMEM) return fail(L, err);
    return ls_push_boolean(L, err == LS_OK);
}

static const luaL_Reg hasher_methods[] = {
    {"hasher:update(data)", hasher_update}, {"hasher:final(encoding)", hasher_final}, {NULL, NULL}};
static const luaL_Reg hasher_meta[] = {{"__gc", hasher_drop}, {NULL, NULL}};
static const ls_object_type hasher_type = {.name = "hasher", .methods = hasher_methods, .meta = hasher_meta};
static const ls_object_type key_type = {.name = "key", .drop = key_drop};
static const ls_object_type call_type = {.name = "call", .drop = call_drop};

/* core.crypto_same(key: of 32 bytes) -> whether the other Lua states, which run the same file, have given the same
 * one. Always true after loading. */
static int core_crypto_same(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    unsigned index;
    const ls_text key = ls_check_text(L, 1);
    luaL_argcheck(L, key.len == SAME_BYTES, 1, "32 bytes expected");
    if (state->loading) {
        char *first = ls_define(L, LS_SLOT_crypto, SAME_BYTES, &index);
        if (state->index == 0) memcpy(first, key.ptr, SAME_BYTES);
        lua_pushboolean(L, memcmp(first, key.ptr, SAME_BYTES) == 0);
    } else {
        lua_pushboolean(L, true);
    }
    return 1;
}

static const luaL_Reg functions[] = {{"crypto_built", core_crypto_built},
                                     {"crypto_hash", core_crypto_hash},
                                     {"crypto_hasher", core_crypto_hasher},
                                     {"crypto_seal", core_crypto_seal},
                                     {"crypto_unseal", core_crypto_unseal},
                                     {"crypto_scrypt", core_crypto_scrypt},
                                     {"crypto_equal", core_crypto_equal},
                                     {"crypto_random", core_crypto_random},
                                     {"crypto_encode", core_crypto_encode},
                                     {"crypto_decode", core_crypto_decode},
                                     {"crypto_key", core_crypto_key},
                                     {"crypto_sign", core_crypto_sign},
                                     {"crypto_verify", core_crypto_verify},
                                     {"crypto_same", core_crypto_same},
                                     {NULL, NULL}};

const ls_module ls_crypto_module = {
    .name = "crypto", .functions = functions, .defines = "sessions with a secret", .definitions_max = SAME_MAX};
