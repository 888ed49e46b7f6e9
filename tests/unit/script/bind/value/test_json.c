/* test_json.c - cjson as luaserve compiles it: numbers read back exactly, the memory is that of the Lua state and is
 * freed on every path, and tests/unit/lua/test_json.lua. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include <float.h>
#include <locale.h>
#include <math.h>

#include <lauxlib.h>
#include <lualib.h>

#include "script/bind/value/json.h"
#include "script/core/lua/lua_modules.h"

enum { RANDOM = 100000, SUBNORMAL = 10000 };

/* ---- a Lua state that counts its memory --------------------------------------------------------------------- */

typedef struct fixture {
    lua_State *L; /* 1: encode, 2: decode */
    size_t live, live_max;
    size_t calls, fail_at; /* from the fail_at-th on every growing allocation fails; 0: none */
} fixture;

static void *counted(void *user, void *ptr, size_t old_size, size_t new_size)
{
    fixture *f = user;
    if (ptr == NULL) old_size = 0;
    if (new_size > old_size) {
        if (++f->calls >= f->fail_at && f->fail_at > 0) return NULL;
        if (f->live - old_size + new_size > f->live_max) return NULL;
    }
    f->live += new_size - old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

static int define(lua_State *L)
{
    luaL_openlibs(L);
    luaL_requiref(L, "cjson", ls_cjson_open, 1);
    ls_json_add_utf8(L);
    return 1;
}

static void fixture_open(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->live_max = SIZE_MAX;
    f->L = lua_newstate(counted, f);
    assert_non_null(f->L);
    lua_pushcfunction(f->L, define);
    assert_int_equal(lua_pcall(f->L, 0, 1, 0), LUA_OK);
    lua_getfield(f->L, 1, "encode");
    lua_getfield(f->L, 1, "decode");
    lua_remove(f->L, 1);
}

static void fixture_close(fixture *f)
{
    lua_close(f->L);
    assert_int_equal(f->live, 0);
}

/* Replace the value on top by function(value). */
static void apply(lua_State *L, int function)
{
    lua_pushvalue(L, function);
    lua_insert(L, -2);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static void check_integer(fixture *f, lua_Integer number)
{
    lua_State *L = f->L;
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)number);
    lua_pushinteger(L, number);
    apply(L, 1);
    assert_string_equal(lua_tostring(L, -1), text);
    apply(L, 2);
    assert_true(lua_isinteger(L, -1));
    assert_true(lua_tointeger(L, -1) == number);
    lua_pop(L, 1);
}

TEST_IN(fixture, f, integers_stay_integers)
{
    uint64_t seed = 88172645463325252u, power = 1;
    check_integer(f, LUA_MAXINTEGER);
    check_integer(f, LUA_MININTEGER);
    for (unsigned bit = 0; bit < 64; bit++)
        for (int add = -1; add <= 1; add++) {
            check_integer(f, (lua_Integer)(((uint64_t)1 << bit) + (uint64_t)add));
            check_integer(f, (lua_Integer)(0 - ((uint64_t)1 << bit) + (uint64_t)add));
        }
    for (unsigned n = 0; n < 20; n++, power *= 10)
        for (int add = -1; add <= 1; add++) {
            check_integer(f, (lua_Integer)(power + (uint64_t)add));
            check_integer(f, (lua_Integer)(0 - power + (uint64_t)add));
        }
    for (unsigned n = 0; n < RANDOM; n++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        check_integer(f, (lua_Integer)(seed >> n % 64));
    }
}

static unsigned digits_of(const char *text)
{
    unsigned count = 0, zeros = 0;
    bool begun = false;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text < '0' || *text > '9') continue;
        begun = begun || *text != '0';
        zeros = *text == '0' ? zeros + 1 : 0;
        count += begun;
    }
    return count > zeros ? count - zeros : 1;
}

/* The text reads back as the same float, is a float to any reader, and has the fewest digits that printf can give. */
static void check_float(fixture *f, double number)
{
    lua_State *L = f->L;
    char shorter[64], text[64];
    lua_pushnumber(L, number);
    apply(L, 1);
    (void)snprintf(text, sizeof text, "%s", lua_tostring(L, -1));
    assert_true(strlen(text) < 32 && strpbrk(text, ".e") != NULL && strspn(text, "0123456789.e+-") == strlen(text));
    assert_true(text[0] == '-' ? text[1] >= '0' && text[1] <= '9' : text[0] >= '0' && text[0] <= '9');
    const unsigned digits = digits_of(text);
    for (unsigned less = fabs(number) < DBL_MIN ? 1 : 14; less < digits; less++) {
        (void)snprintf(shorter, sizeof shorter, "%.*g", (int)less, number);
        if (strtod(shorter, NULL) == number) fail_msg("%s has %u digits, %s fewer", text, digits, shorter);
    }
    apply(L, 2);
    const double back = lua_tonumber(L, -1);
    assert_true(lua_type(L, -1) == LUA_TNUMBER && !lua_isinteger(L, -1));
    if (memcmp(&back, &number, sizeof back) != 0) fail_msg("%s is %a, not %a", text, back, number);
    apply(L, 1); /* encode(decode(text)) is the text again */
    assert_string_equal(lua_tostring(L, -1), text);
    lua_pop(L, 1);
}

static void check_bits(fixture *f, uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    if (isfinite(number)) check_float(f, number);
}

static void check_floats(fixture *f)
{
    static const double some[] = {
        /* clang-format off */
        0.0, -0.0, 1.0, 2.0, 10.0, 0.1, 0.3, 4.35, 1e14, 1e15, 1e16, 1e22, 1e23, 1e300, DBL_MAX, DBL_MIN,
        5e-324, 1.5e-5, 1e-6, 1e-7, 1 / 3.0, 99999999.5, 999999999999999.0, 9007199254740992.0,
        9007199254740993.0, 9223372036854775808.0, 123456.789, 0.000001, 0.0000015, 179.999999999999972,
        /* clang-format on */
    };
    for (unsigned n = 0; n < sizeof some / sizeof some[0]; n++) {
        check_float(f, some[n]);
        check_float(f, -some[n]);
    }
}

TEST_IN(fixture, f, floats_read_back_exactly)
{
    uint64_t seed = 2463534242u;
    check_floats(f);
    for (int power = -323; power <= 308; power++) {
        const double number = pow(10, power);
        check_float(f, number);
        check_float(f, nextafter(number, 0));
        check_float(f, nextafter(number, DBL_MAX));
    }
    for (int power = -1074; power <= 1023; power++) check_float(f, ldexp(1, power));
    for (unsigned n = 0; n < RANDOM; n++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        check_bits(f, seed);
        check_float(f, (double)(seed >> 44) / 1000); /* a few decimals, as most floats have */
    }
    for (unsigned n = 0; n < SUBNORMAL; n++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        check_bits(f, seed >> (12 + n % 52));
    }
}

static const char *decode(fixture *f, const char *text)
{
    lua_settop(f->L, 2);
    lua_pushstring(f->L, text);
    apply(f->L, 2);
    assert_int_equal(lua_type(f->L, -1), LUA_TNUMBER);
    return lua_isinteger(f->L, -1) ? "integer" : "float";
}

TEST_IN(fixture, f, number_texts)
{
    static const char *const integers[] = {"0", "7", "-7", "9223372036854775807", "-9223372036854775808"};
    static const char *const floats[] = {
        /* clang-format off */
        "9223372036854775808", "-9223372036854775809", "18446744073709551616", "100000000000000000000", "1.0",
        "1e0", "1E+2", "-0.0", "0.1e1", "3.14159265358979323846264338327950288",
        "123456789012345678901234567890e-20", "0.00000000000000000000000000000000000000001",
        "9007199254740993.0", "1e-400", "2.2250738585072011e-308",
        /* clang-format on */
    };
    static const char *const bad[] = {"-",   "+1",  "01",   "-01", "00",  "1.",  "1.e1", ".5",  "-.5", "1e",   "1e+",
                                      "0x1", "inf", "-inf", "NaN", "1_0", "1,5", "1 2",  "- 1", "--1", "1e1.5"};
    lua_State *L = f->L;
    lua_getupvalue(L, 1, 1);
    lua_pop(L, 1);
    assert_int_equal(luaL_dostring(L, "cjson.decode_invalid_numbers(false)"), LUA_OK);
    for (unsigned n = 0; n < sizeof integers / sizeof integers[0]; n++)
        assert_string_equal(decode(f, integers[n]), "integer");
    for (unsigned n = 0; n < sizeof floats / sizeof floats[0]; n++) {
        assert_string_equal(decode(f, floats[n]), "float");
        assert_true(lua_tonumber(L, -1) == strtod(floats[n], NULL));
    }
    for (unsigned n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        lua_pushvalue(L, 2);
        lua_pushstring(L, bad[n]);
        if (lua_pcall(L, 1, 1, 0) == LUA_OK) fail_msg("%s is a number", bad[n]);
    }
}

/* A locale with a decimal comma has no influence. */
TEST(the_locale_has_no_influence)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "German_Germany.1252"};
    fixture f;
    unsigned n = 0;
    while (n < sizeof names / sizeof names[0] && setlocale(LC_NUMERIC, names[n]) == NULL) n++;
    if (n == sizeof names / sizeof names[0]) skip();
    assert_string_equal(localeconv()->decimal_point, ",");
    fixture_open(&f);
    check_integer(&f, 1234567);
    lua_State *L = f.L;
    assert_int_equal(luaL_dostring(L, "for _, x in ipairs { 0.5, 1/3, 1e300, 1.25e-300, 5e-324, math.pi, 2.0^60 } do\n"
                                      "  local text = cjson.encode(x)\n"
                                      "  assert(not text:find(',', 1, true), text)\n"
                                      "  assert(cjson.decode(text) == x, text)\n"
                                      "end\n"
                                      "local long = '0.' .. ('3'):rep(100000)\n"
                                      "assert(cjson.decode(long) == 1/3)\n"),
                     LUA_OK);
    fixture_close(&f);
    (void)setlocale(LC_NUMERIC, "C");
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static void run(lua_State *L, const char *code)
{
    if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

/* Memory runs out at each allocation of an encoding and a decoding: the error is "not enough memory", and nothing
 * leaks. */
TEST_IN(fixture, f, every_allocation_may_fail)
{
    static const char code[] = "local part = { 'a\\n', 1.5, {}, cjson.decode '[]', true }\n"
                               "local value = {}\n"
                               "for i = 1, 40 do value[i] = part end\n"
                               "value[41] = ('x\\n'):rep(30000)\n"
                               "return function()\n"
                               "  local text = cjson.encode(value)\n"
                               "  assert(#cjson.decode(text)[41] == 60000)\n"
                               "end";
    unsigned failures = 0;
    lua_State *L = f->L;
    run(L, code);
    for (;;) {
        (void)lua_gc(L, LUA_GCCOLLECT);
        lua_pushvalue(L, -1);
        f->calls = 0;
        f->fail_at = failures + 1;
        const int status = lua_pcall(L, 0, 0, 0);
        f->fail_at = 0;
        if (status == LUA_OK) break;
        failures++;
        assert_int_equal(status, LUA_ERRMEM);
        assert_string_equal(lua_tostring(L, -1), "not enough memory");
        lua_pop(L, 1);
    }
    assert_true(failures > 50);
}

/* The buffers count as memory of the state. A large one is freed at once, also after an error. */
TEST_IN(fixture, f, no_large_buffer_is_kept)
{
    static const char *const codes[] = {
        "cjson.encode(text)",
        "cjson.decode(escaped)",
        "assert(not pcall(cjson.encode, { text, print }))",
        "local deep = {} for i = 1, 1001 do deep = { deep } end assert(not pcall(cjson.encode, { text, deep }))",
        "assert(not pcall(cjson.decode, '[' .. escaped .. ' 1]'))",
        "assert(not pcall(cjson.decode, escaped:sub(1, -2)))",
    };
    lua_State *L = f->L;
    run(L, "text = ('x'):rep(1000):rep(4000) escaped = '\"' .. ('\\\\n'):rep(1000):rep(2000) .. '\"'");
    for (unsigned n = 0; n < sizeof codes / sizeof codes[0]; n++) {
        (void)lua_gc(L, LUA_GCCOLLECT);
        const size_t before = f->live;
        run(L, codes[n]);
        lua_settop(L, 2);
        (void)lua_gc(L, LUA_GCCOLLECT);
        assert_in_range(f->live, 0, before + 2 * 65536 + 100000);
    }
    f->live_max = f->live + 3000000;
    assert_int_equal(luaL_loadstring(L, "cjson.encode(text)"), LUA_OK);
    assert_int_equal(lua_pcall(L, 0, 0, 0), LUA_ERRMEM);
    assert_string_equal(lua_tostring(L, -1), "not enough memory");
    run(L, "assert(cjson.encode { 1 } == '[1]')");
}

/* When memory is short, the encoder collects garbage, and a finalizer may encode meanwhile. */
TEST_IN(fixture, f, a_finalizer_may_encode)
{
    lua_State *L = f->L;
    run(L, "collectgarbage 'stop'\n"
           "local value = {}\n"
           "for i = 1, 20000 do value[i] = 'text ' .. i end\n"
           "expected = cjson.encode(value)\n"
           "runs = 0\n"
           "garbage = ('x'):rep(1000):rep(1000)\n"
           "setmetatable({}, { __gc = function() runs = runs + 1\n"
           "  assert(cjson.encode { 'inner' } == '[\"inner\"]') end })\n"
           "again = function() return cjson.encode(value) end\n"
           "garbage = nil\n");
    f->live_max = f->live + 100000; /* less than the buffer needs */
    run(L, "local text = again() assert(runs == 1) assert(text == expected)");
}

/* ---- the module luaserve.json ---------------------------------------------------------------------------------- */

TEST_IN(fixture, f, the_lua_tests_pass)
{
    ls_lua_modules_preload(f->L, "luaserve");
    run(f->L, "package.path = '" TEST_TREE "/tests/unit/lua/?.lua'\n"
              "package.loaded['luaserve.core'] = require 'fake_core'\n"
              "for name, test in pairs(require 'test_json') do\n"
              "  local ok, message = xpcall(test, debug.traceback)\n"
              "  if not ok then error(name .. ': ' .. tostring(message), 0) end\n"
              "end\n");
}
