/* test_marshal.c - copies of Lua values: every type, the limits, the path of a value without a copy, lack of
 * memory. */
/* sanitizers: asan; no thread starts */
#include "script/memory_fixture.h"

#include <lauxlib.h>
#include <lualib.h>

#include "script/bind/value/json.h"
#include "script/store/copy.h"
#include "script/store/marshal.h"

static lua_State *open_state(void)
{
    static const char helpers[] =
        "function same(a, b)\n"
        "  if type(a) ~= 'table' then return a == b and math.type(a) == math.type(b) end\n"
        "  if type(b) ~= 'table' then return false end\n"
        "  for k, v in pairs(a) do if not same(v, b[k]) then return false end end\n"
        "  for k in pairs(b) do if a[k] == nil then return false end end\n"
        "  return true\n"
        "end\n"
        "function nested(levels) local t = {} for _ = 2, levels do t = { t } end return t end\n";
    lua_State *L = luaL_newstate();
    assert_non_null(L);
    luaL_openlibs(L);
    luaL_requiref(L, "cjson", ls_cjson_open, 1);
    ls_copy_define(L);
    assert_int_equal(luaL_dostring(L, helpers), LUA_OK);
    lua_settop(L, 0);
    return L;
}

/* Push the value of the Lua expression. */
static void evaluate(lua_State *L, const char *expression)
{
    char chunk[1024];
    (void)snprintf(chunk, sizeof chunk, "return %s", expression);
    if (luaL_loadstring(L, chunk) != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

static ls_value *pack(lua_State *L, const char *expression)
{
    char message[LS_VALUE_MESSAGE_BYTES] = "";
    ls_value *value = NULL;
    evaluate(L, expression);
    const int err = ls_value_pack(L, -1, NULL, &value, message, sizeof message);
    if (err != LS_OK) fail_msg("%s: %s", expression, message);
    lua_pop(L, 1);
    return value;
}

static void assert_true_in_lua(lua_State *L, const char *chunk, int arguments)
{
    const int first = lua_gettop(L) - arguments + 1;
    if (luaL_loadstring(L, chunk) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
    lua_insert(L, first);
    if (lua_pcall(L, arguments, 1, 0) != LUA_OK) fail_msg("%s: %s", chunk, lua_tostring(L, -1));
    if (!lua_toboolean(L, -1)) fail_msg("not true: %s", chunk);
    lua_pop(L, 1);
}

TEST(every_value_comes_back)
{
    static const char *const expressions[] = {
        /* clang-format off */
        "nil", "true", "false", "0", "-1", "63", "64", "-64", "-65", "math.maxinteger", "math.mininteger",
        "0.0", "1.5", "-1/0", "1e300", "''", "'text'", "'nul\\0 inside'", "('x'):rep(127)", "('x'):rep(128)",
        "('x'):rep(70000)", "{}", "{1, 2, 3}", "{1, nil, 3}", "{a = 1, b = {c = {}}}",
        "{[1.5] = 'x', [true] = false, [-3] = 'y', [false] = 0}",
        "{[1] = 'a', [2] = 'b', [4] = 'd', x = {1, 2, {3}}}", "{[2^53] = 'float key'}", "nested(100)",
        "cjson.null", "{cjson.null, x = cjson.null}",
        "cjson.decode('{\"a\":[],\"b\":{},\"c\":[null,1.5,\"x\"]}')",
        /* clang-format on */
    };
    lua_State *L = open_state();
    for (size_t n = 0; n < sizeof expressions / sizeof *expressions; n++) {
        ls_value *value = pack(L, expressions[n]);
        evaluate(L, expressions[n]);
        ls_value_push(L, value);
        assert_int_equal(ls_value_type(value), lua_type(L, -1));
        assert_true_in_lua(L, "return same(...)", 2);
        evaluate(L, expressions[n]);
        ls_value_push_copy(L, value);
        assert_true_in_lua(L, "return same(...)", 2);
        ls_value_give(L, ls_value_hold(value), false);
        evaluate(L, expressions[n]);
        assert_true_in_lua(L, "return same(...)", 2);
        ls_value_drop(value);
        assert_int_equal(lua_gettop(L), 0);
    }
    lua_close(L);
}

TEST(not_a_number_comes_back)
{
    lua_State *L = open_state();
    ls_value *value = pack(L, "0/0");
    ls_value_give(L, value, false);
    assert_true_in_lua(L, "local x = ... return x ~= x", 1);
    lua_close(L);
}

TEST(the_mark_of_arrays_is_kept)
{
    lua_State *L = open_state();
    ls_value *value = pack(L, "cjson.decode('{\"a\":[],\"b\":{}}')");
    ls_value_push(L, value);
    assert_true_in_lua(L, "local t = ... return cjson.encode(t.a) == '[]' and cjson.encode(t.b) == '{}'", 1);
    ls_value_give(L, value, true);
    assert_true_in_lua(L, "local t = ... return cjson.encode(t.a) == '[]' and cjson.encode(t.b) == '{}'", 1);
    lua_close(L);
}

TEST(a_string_made_in_c)
{
    lua_State *L = open_state();
    ls_value *value = ls_value_string("a\0b", 3);
    assert_int_equal(ls_value_type(value), LUA_TSTRING);
    ls_value_give(L, value, false);
    assert_true_in_lua(L, "return ... == 'a\\0b'", 1);
    lua_close(L);
}

TEST(the_path_of_a_value_without_a_copy)
{
    static const struct {
        const char *expression, *message;
        int err;
    } cases[] = {
        {"print", "value is a function, which cannot be shared", LS_EINVAL},
        {"{items = {1, 2, {fn = print}}}", "value.items[3].fn is a function, which cannot be shared", LS_EINVAL},
        {"{['two words'] = io.stdout}", "value[\"two words\"] is a userdata, which cannot be shared", LS_EINVAL},
        {"{['a\\27\"'] = print}", "value[\"a\\x1b\"\"] is a function, which cannot be shared", LS_EINVAL},
        {"{[1.5] = coroutine.create(print)}", "value[1.5] is a thread, which cannot be shared", LS_EINVAL},
        {"{[true] = {[false] = print}}", "value[true][false] is a function, which cannot be shared", LS_EINVAL},
        {"{[('k'):rep(50)] = print}",
         "value[\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...\"] is a function, which cannot be shared", LS_EINVAL},
        {"{x = {[print] = 1}}", "a key of value.x is a function, which cannot be shared", LS_EINVAL},
        {"{x = {[{}] = 1}}", "a key of value.x is a table, which cannot be shared", LS_EINVAL},
        {"(function() local t = {} t.self = t return t end)()", "value.self refers to value: a cycle", LS_EINVAL},
        {"(function() local t = {a = {{}}} t.a[1].up = t.a return t end)()",
         "value.a[1].up refers to value.a: a cycle", LS_EINVAL},
        {"{user = setmetatable({}, {__index = {}})}", "value.user has a metatable; only plain tables can be shared",
         LS_EINVAL},
        {"nested(101)", "value has more than 100 levels of tables", LS_ELIMIT},
    };
    lua_State *L = open_state();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char message[LS_VALUE_MESSAGE_BYTES] = "";
        ls_value *value = NULL;
        evaluate(L, cases[n].expression);
        assert_int_equal(ls_value_pack(L, 1, NULL, &value, message, sizeof message), cases[n].err);
        assert_string_equal(message, cases[n].message);
        assert_null(value);
        assert_int_equal(lua_gettop(L), 1);
        for (size_t room = 0; room < 20; room++) { /* a short buffer receives the beginning */
            char *exact = test_copy_exact("", 0);
            exact = realloc(exact, room > 0 ? room : 1);
            assert_int_equal(ls_value_pack(L, 1, NULL, &value, exact, room), cases[n].err);
            if (room > 0) assert_int_equal(strncmp(exact, cases[n].message, room - 1), 0);
            free(exact);
        }
        lua_settop(L, 0);
    }
    lua_close(L);
}

TEST(the_name_of_the_value)
{
    const ls_value_options options = {.name = "message"};
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_value *value = NULL;
    lua_State *L = open_state();
    evaluate(L, "{f = print}");
    assert_int_equal(ls_value_pack(L, -1, &options, &value, message, sizeof message), LS_EINVAL);
    assert_string_equal(message, "message.f is a function, which cannot be shared");
    lua_close(L);
}

TEST(the_limit_of_bytes)
{
    static const char *const expressions[] = {"'short'", "('x'):rep(5000)", "{1, 2, {x = ('y'):rep(600)}}", "1.5",
                                              "{}"};
    lua_State *L = open_state();
    for (size_t n = 0; n < sizeof expressions / sizeof *expressions; n++) {
        char message[LS_VALUE_MESSAGE_BYTES], wanted[LS_VALUE_MESSAGE_BYTES];
        ls_value *value = pack(L, expressions[n]);
        ls_value_options options = {.bytes_max = ls_value_bytes(value)};
        ls_value_drop(value);
        evaluate(L, expressions[n]);
        assert_int_equal(ls_value_pack(L, 1, &options, &value, message, sizeof message), LS_OK);
        assert_int_equal(ls_value_bytes(value), options.bytes_max);
        ls_value_drop(value);
        options.bytes_max--;
        assert_int_equal(ls_value_pack(L, 1, &options, &value, message, sizeof message), LS_EMSGSIZE);
        (void)snprintf(wanted, sizeof wanted, "value needs more than %zu bytes", options.bytes_max);
        assert_string_equal(message, wanted);
        lua_settop(L, 0);
    }
    lua_close(L);
}

static const ls_slice *test_slices(lua_State *L, int index, unsigned *count)
{
    static const ls_slice slices[] = {{NULL, "one ", 4}, {NULL, "two", 3}};
    if (lua_touserdata(L, index) == NULL) return NULL;
    *count = 2;
    return slices;
}

TEST(a_buffer_becomes_a_string)
{
    const ls_value_options options = {.slices = test_slices};
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_value *value = NULL;
    lua_State *L = open_state();
    evaluate(L, "{io.stdout}");
    assert_int_equal(ls_value_pack(L, 1, &options, &value, message, sizeof message), LS_OK);
    ls_value_give(L, value, false);
    assert_true_in_lua(L, "local t = ... return t[1] == 'one two'", 1);
    lua_close(L);
}

TEST(a_copy_refuses_writes)
{
    static const char chunk[] =
        "local t = ...\n"
        "local function refused(fn, ...)\n"
        "  local ok, err = pcall(fn, ...)\n"
        "  return not ok and err:find('read-only copy', 1, true) and err:find('todos[key] = t', 1, true)\n"
        "end\n"
        "return refused(function() t.title = 'coffee' end) and refused(function() t.new = 1 end)\n"
        "  and refused(function() t.items[1] = 2 end) and refused(table.insert, t.items, 1)\n"
        "  and refused(rawset, t, 'admin', true) and refused(rawset, t.items, 1, 2) and t.admin == nil\n"
        "  and refused(table.remove, t.items) and refused(table.sort, t.items)\n"
        "  and t.title == 'tea' and t.new == nil and t.items[1] == 3\n"
        "  and getmetatable(t) == false and not pcall(setmetatable, t, nil)\n";
    lua_State *L = open_state();
    ls_value_give(L, pack(L, "{title = 'tea', items = {3, 1, 2}}"), true);
    assert_true_in_lua(L, chunk, 1);
    lua_close(L);
}

TEST(a_copy_is_read_as_a_table)
{
    static const char chunk[] =
        "local t = ...\n"
        "local sum, names, first = 0, {}, next(t.items)\n"
        "for i, v in ipairs(t.items) do sum = sum + i * v end\n"
        "for k, v in pairs(t) do names[#names + 1] = k end\n"
        "table.sort(names)\n"
        "local raw = {}\n"
        "for k, v in next, t.items do raw[k] = v end\n"
        "return type(t) == 'table' and #t.items == 3 and sum == 3 * 1 + 1 * 2 + 2 * 3 and first == 1\n"
        "  and table.concat(names, ',') == 'items,title' and table.concat(t.items, '-') == '3-1-2'\n"
        "  and table.unpack(t.items) == 3 and select('#', table.unpack(t.items)) == 3 and same(raw, {3, 1, 2})\n"
        "  and next({}) == nil and next({5}, 1) == nil and #table.move(t.items, 1, 3, 1, {}) == 3\n"
        "  and cjson.encode(t.items) == '[3,1,2]' and same(cjson.decode(cjson.encode(t)), {title = 'tea', items = {3, "
        "1, 2}})\n";
    lua_State *L = open_state();
    ls_value_give(L, pack(L, "{title = 'tea', items = {3, 1, 2}}"), true);
    lua_pushvalue(L, 1);
    assert_true_in_lua(L, chunk, 1);

    ls_value *again = NULL; /* a copy can be stored again */
    char message[LS_VALUE_MESSAGE_BYTES];
    assert_int_equal(ls_value_pack(L, 1, NULL, &again, message, sizeof message), LS_OK);
    ls_value_give(L, again, false);
    assert_true_in_lua(L, "local a, b = ... b.new = 1; b.items[4] = 9; return a.title == b.title and a.new == nil", 2);
    lua_close(L);
}

/* With n allocations before the first failure, for all n until all succeed: the error is reported, and the sanitizer
 * finds no leak. */
TEST(out_of_memory_is_reported)
{
    char message[LS_VALUE_MESSAGE_BYTES];
    int failures = 0;
    lua_State *L = open_state();
    evaluate(L, "{('x'):rep(3000), {a = ('y'):rep(9000), b = {1, 2, 3}}}");
    for (int allowed = 0;; allowed++) {
        ls_value *value = NULL;
        test_allocations_left = allowed;
        const int err = ls_value_pack(L, 1, NULL, &value, message, sizeof message);
        test_allocations_left = -1;
        if (err == LS_OK) {
            ls_value_drop(value);
            break;
        }
        assert_int_equal(err, LS_ENOMEM);
        assert_string_equal(message, "not enough memory");
        assert_null(value);
        failures++;
    }
    assert_true(failures >= 3); /* two rooms and the value */
    test_allocations_left = 0;
    assert_null(ls_value_string("x", 1));
    test_allocations_left = -1;
    lua_close(L);
}

static int give_call(lua_State *L)
{
    ls_value_give(L, ls_value_hold(lua_touserdata(L, 1)), lua_toboolean(L, 2) != 0);
    return 1;
}

/* The reference is dropped also when Lua has no memory for the value. */
TEST(out_of_memory_in_lua)
{
    lua_State *L = open_state();
    ls_value *value = pack(L, "{('x'):rep(100), {a = ('y'):rep(90), b = {1, 2, 3}}}");
    unsigned failures = 0;
    for (int read_only = 0; read_only < 2; read_only++) {
        for (int allowed = 0;; allowed++) {
            lua_settop(L, 0);
            lua_pushcfunction(L, give_call);
            lua_pushlightuserdata(L, value);
            lua_pushboolean(L, read_only);
            test_allocations_left = allowed;
            const int status = lua_pcall(L, 2, 1, 0);
            test_allocations_left = -1;
            if (status == LUA_OK) break;
            assert_int_equal(status, LUA_ERRMEM);
            failures++;
        }
        assert_int_equal(lua_type(L, 1), LUA_TTABLE);
    }
    assert_true(failures > 10);
    lua_settop(L, 0);
    ls_value_give(L, value, false); /* the last reference */
    lua_close(L);
}

/* A file may be damaged: each proper prefix of a code is refused, and a code with one changed byte is refused, or
 * makes a value. */
TEST(the_code_of_a_value_is_checked)
{
    static const char *const expressions[] = {
        /* clang-format off */
        "'text'", "1 << 62", "-1", "0.5", "true", "{}", "{ 1, 2.5, 'x', a = { b = { false } } }",
        "{ [true] = 1, [7.5] = 2, x = nested(20) }", "nested(100)",
        /* clang-format on */
    };
    lua_State *L = open_state();
    for (unsigned n = 0; n < sizeof expressions / sizeof *expressions; n++) {
        ls_value *value = pack(L, expressions[n]);
        size_t len;
        const char *code = ls_value_code(value, &len);
        for (size_t part = 0; part <= len; part++) {
            char *copy = test_copy_exact(code, part);
            ls_value *again = ls_value_of_code(copy, part);
            assert_int_equal(again != NULL, part == len);
            if (again != NULL) {
                ls_value_push(L, again);
                evaluate(L, expressions[n]);
                assert_true_in_lua(L, "return same(...)", 2);
            }
            ls_value_drop(again);
            free(copy);
        }
        for (size_t at = 0; at < len; at++) {
            char *copy = test_copy_exact(code, len);
            for (int byte = 0; byte < 256; byte++) {
                copy[at] = (char)byte;
                ls_value *other = ls_value_of_code(copy, len);
                if (other != NULL) ls_value_push(L, other);
                ls_value_drop(other);
                lua_settop(L, 0);
            }
            free(copy);
        }
        ls_value_drop(value);
    }
    lua_close(L);
}
