/* test_module.c - the calls of modules, their data, and their definitions. */
/* sanitizers: asan; no thread starts */
#include "script/core/generation.h"
#include "script/core/state.h"
#include "support.h"

enum { SLOT_A, SLOT_B, SLOTS };

static char calls[400];

static void called(const char *what)
{
    const size_t len = strlen(calls);
    (void)snprintf(calls + len, sizeof calls - len, "%s ", what);
}

typedef struct a_data {
    uint64_t numbers[3];
    bool defined;
} a_data;

static void a_prepare(lua_State *L, ls_state *state)
{
    called(lua_getglobal(L, "print") == LUA_TNIL ? "a.prepare" : "a.prepare after the libraries");
    lua_pop(L, 1);
}

static void a_define(lua_State *L, ls_state *state)
{
    a_data *data = ls_state_data(state, SLOT_A);
    assert_int_equal(data->numbers[2], 0);
    data->defined = true;
    called(lua_getglobal(L, "print") == LUA_TFUNCTION ? "a.define" : "a.define before the libraries");
    lua_pop(L, 1);
}

static void b_define(lua_State *L, ls_state *state)
{
    const a_data *a = ls_state_data(state, SLOT_A);
    assert_true(a->defined);
    assert_int_equal((uintptr_t)a % _Alignof(max_align_t), 0);
    assert_int_equal((uintptr_t)ls_state_data(state, SLOT_B) % _Alignof(max_align_t), 0);
    called("b.define");
}

static void b_raise(lua_State *L, ls_state *state)
{
    luaL_error(L, "planned");
}

static void a_abandon(ls_state *state)
{
    assert_non_null(state->L);
    called("a.abandon");
}

static void a_free(ls_state *state)
{
    called("a.free");
}

static int b_answer(lua_State *L)
{
    unsigned index;
    int *entry = ls_define(L, SLOT_B, sizeof *entry, &index);
    *entry += 1;
    lua_pushinteger(L, index);
    return 1;
}

static const luaL_Reg b_functions[] = {{"answer", b_answer}, {NULL, NULL}};
static const ls_module module_a = {.name = "a",
                                   .bytes = sizeof(a_data),
                                   .prepare = a_prepare,
                                   .define = a_define,
                                   .abandon = a_abandon,
                                   .free = a_free};
static const ls_module module_b = {
    .name = "b", .bytes = 1, .functions = b_functions, .define = b_define, .defines = "answers", .definitions_max = 3};
static const ls_module module_raises = {.name = "raises", .define = b_raise};

static const char *site_text;

static int run_text(lua_State *L)
{
    char *message = lua_touserdata(L, 1);
    if (luaL_dostring(L, site_text) != LUA_OK) (void)snprintf(message, 200, "%s", lua_tostring(L, -1));
    return 0;
}

static int load(ls_generation *generation, ls_state *state, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    assert_true(message_bytes >= 200);
    message[0] = '\0';
    assert_int_equal(ls_state_protected(state, ctx, run_text, message), LUA_OK);
    return message[0] == '\0' ? LS_OK : LS_ESCRIPT;
}

typedef struct place {
    ls_runtime *runtime;
    ls_generation generation;
    char message[400];
} place;

static int open_place(place *p, const ls_module *second, const char *text, unsigned states)
{
    static const ls_module *modules[SLOTS];
    memset((void *)p, 0, sizeof *p);
    calls[0] = '\0';
    modules[SLOT_A] = &module_a;
    modules[SLOT_B] = second;
    site_text = text;
    p->generation.load = load;
    assert_int_equal(ls_runtime_open(NULL, modules, SLOTS, &p->runtime), LS_OK);
    assert_int_equal(ls_generation_init(&p->generation, p->runtime, "site.lua"), LS_OK);
    assert_int_equal(ls_generation_room(&p->generation, states), LS_OK);
    return ls_generation_add_state(&p->generation, &p->generation.load_ctx, p->message, sizeof p->message);
}

static int add(place *p)
{
    return ls_generation_add_state(&p->generation, &p->generation.load_ctx, p->message, sizeof p->message);
}

static void close_place(place *p)
{
    for (unsigned n = 0; n < p->generation.state_count; n++)
        if (p->generation.states[n] != NULL) ls_state_free(p->generation.states[n]);
    ls_generation_finish(&p->generation);
    ls_runtime_close(p->runtime);
}

TEST(calls_come_in_the_order_of_the_registry)
{
    place p;
    assert_int_equal(open_place(&p, &module_b, "assert(require('luaserve.core').answer)", 1), LS_OK);
    assert_string_equal(calls, "a.prepare a.define b.define ");
    close_place(&p);
    assert_string_equal(calls, "a.prepare a.define b.define a.abandon a.free ");
}

TEST(a_define_that_raises_leaves_nothing_open)
{
    place p;
    assert_int_equal(open_place(&p, &module_raises, "", 1), LS_ENOMEM);
    assert_string_equal(calls, "a.prepare a.define a.free ");
    close_place(&p);
}

TEST(definitions_are_those_of_the_first_state)
{
    place p;
    static const char two[] = "local core = require 'luaserve.core' assert(core.answer() == 0 and core.answer() == 1)";
    assert_int_equal(open_place(&p, &module_b, two, 3), LS_OK);
    assert_int_equal(add(&p), LS_OK);
    assert_int_equal(ls_definition_count(&p.generation, SLOT_B), 2);
    assert_int_equal(*(int *)ls_definition_get(&p.generation, SLOT_B, 1), 2);
    site_text = "require('luaserve.core').answer()";
    assert_int_equal(add(&p), LS_ESCRIPT);
    assert_string_equal(p.message, "site.lua defines 2 answers in one Lua state and 1 in another: all states must "
                                   "define the same");
    assert_int_equal(add(&p), LS_ELIMIT);
    close_place(&p);
}

TEST(a_state_cannot_define_more_than_the_first)
{
    place p;
    assert_int_equal(open_place(&p, &module_b, "", 2), LS_OK);
    site_text = "require('luaserve.core').answer()";
    assert_int_equal(add(&p), LS_ESCRIPT);
    assert_non_null(strstr(p.message, "one Lua state defines more answers than another"));
    close_place(&p);
}

TEST(definitions_have_a_limit)
{
    place p;
    assert_int_equal(open_place(&p, &module_b, "for _ = 1, 3 do require('luaserve.core').answer() end", 1), LS_OK);
    close_place(&p);
    assert_int_equal(open_place(&p, &module_b, "for _ = 1, 4 do require('luaserve.core').answer() end", 1),
                     LS_ESCRIPT);
    assert_non_null(strstr(p.message, "more than 3 answers"));
    close_place(&p);
}

static int common_open(void *own)
{
    assert_int_equal(*(int *)own, 0);
    *(int *)own = 7;
    called("open");
    return LS_OK;
}

static int common_fail(void *own)
{
    return LS_ENOENT;
}

static void common_close(void *own)
{
    assert_int_equal(*(int *)own, 7);
    called("close");
}

static void common_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    each(to, "seven", *(int *)ls_runtime_own(runtime, SLOT_A));
}

static void find_seven(void *to, const char *name, double value)
{
    if (strcmp(name, "seven") == 0) *(double *)to = value;
}

TEST(a_module_has_data_of_the_server)
{
    static const ls_module_common seven = {.bytes = sizeof(int),
                                           .open = common_open,
                                           .close = common_close,
                                           .stats = common_stats},
                                  fails = {.open = common_fail};
    static const ls_module first = {.name = "first", .common = &seven}, second = {.name = "second"},
                           third = {.name = "third", .common = &fails};
    const ls_module *modules[SLOTS] = {&first, &second};
    ls_runtime *runtime;
    double value = 0;
    calls[0] = '\0';
    assert_int_equal(ls_runtime_open(NULL, modules, SLOTS, &runtime), LS_OK);
    ls_runtime_stats(runtime, find_seven, &value);
    assert_int_equal((int)value, 7);
    ls_runtime_close(runtime);
    modules[SLOT_B] = &third;
    assert_int_equal(ls_runtime_open(NULL, modules, SLOTS, &runtime), LS_ENOENT);
    assert_string_equal(calls, "open close open close ");
}
