/* etag.c - the core of luaserve.etag (lua/luaserve/etag.lua): the entity tag of a body, and what the conditions of the
 * request say about it. */
#include "base/clock.h"
#include "base/hash.h"
#include "codec/base64.h"
#include "codec/http_condition.h"
#include "script/bind/http/request.h"
#include "script/core/lua/push.h"

/* core.etag(req, body, type) -> the strong tag of the bytes with this media type, 304 | 412 | nil. It has 128 bits,
 * the same on each server and after each start. */
static int core_etag(lua_State *L)
{
    enum { HEX_BYTES = 16 };
    static const uint64_t seeds[2][2] = {{0x6c75617365727665, 0x65746167}, {0x65746167, 0x6c75617365727665}};
    const ls_request *r = ls_request_check_req(L, 1);
    const ls_text body = ls_check_text(L, 2), type = ls_check_text(L, 3);
    const uint64_t of_type = ls_hash(seeds[0], type.ptr, type.len);
    uint8_t bytes[HEX_BYTES];
    char tag[2 * HEX_BYTES + 2];
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t seed[2] = {seeds[half][0] ^ of_type, seeds[half][1]};
        const uint64_t hash = ls_hash(seed, body.ptr, body.len);
        for (unsigned n = 0; n < 8; n++) bytes[8 * half + n] = (uint8_t)(hash >> 8 * n);
    }
    tag[0] = tag[sizeof tag - 1] = '"';
    ls_hex_write(bytes, sizeof bytes, tag + 1);
    lua_pushlstring(L, tag, sizeof tag);

    const ls_validators v = {.etag = tag, .etag_len = sizeof tag};
    ls_conditions conditions;
    ls_conditions_of(&r->x->head, r->x->bytes, &conditions);
    if (!conditions.any) return 1;
    switch (ls_condition_evaluate(&conditions, &v, ls_clock_wall_s())) {
    case LS_CONDITION_NOT_MODIFIED: lua_pushinteger(L, 304); return 2;
    case LS_CONDITION_FAILED: lua_pushinteger(L, 412); return 2;
    default: return 1;
    }
}

static const luaL_Reg functions[] = {{"etag", core_etag}, {NULL, NULL}};

const ls_module ls_etag_module = {.name = "etag", .functions = functions};
