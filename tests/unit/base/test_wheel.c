/* test_wheel.c - the timing wheel, compared with a list that is searched. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/wheel.h"

enum { ENTRIES = 300 };

typedef struct model { /* the wheel, and what it should hold */
    ls_wheel wheel;
    ls_wheel_entry entries[ENTRIES];
    bool in[ENTRIES];
    uint32_t at_ms[ENTRIES];
    uint32_t now_ms, seed;
} model;

static uint32_t rnd(model *m)
{
    m->seed = m->seed * 1664525u + 1013904223u;
    return m->seed >> 4;
}

static void model_open(model *m, uint32_t now_ms, uint32_t seed)
{
    memset(m, 0, sizeof *m); /* zeroed entries are not in the wheel */
    m->now_ms = now_ms;
    m->seed = seed;
    ls_wheel_open(&m->wheel, now_ms);
}

static void add(model *m, int i, uint32_t at_ms)
{
    ls_wheel_add(&m->wheel, &m->entries[i], at_ms);
    m->in[i] = true;
    m->at_ms[i] = at_ms;
}

static bool is_due(const model *m, int i, uint32_t now_ms)
{
    return m->in[i] && (int32_t)(now_ms - m->at_ms[i]) >= 0;
}

/* ls_wheel_next is right: there is an entry exactly when the model has one, and its time is not late. */
static void check_next(model *m, uint32_t *next_ms, bool *has)
{
    int count = 0;
    *has = ls_wheel_next(&m->wheel, next_ms);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(ls_wheel_has(&m->entries[i]), m->in[i]);
        if (!m->in[i]) continue;
        count++;
        assert_true(*has);
        const uint32_t at_ms = (int32_t)(m->at_ms[i] - m->now_ms) > 0 ? m->at_ms[i] : m->now_ms;
        assert_true((int32_t)(at_ms - *next_ms) >= 0);
        assert_true((int32_t)(*next_ms - m->now_ms) >= 0); /* and not before the present */
    }
    assert_int_equal(*has, count > 0);
}

static void advance(model *m, uint32_t now_ms)
{
    ls_node due;
    ls_node_init(&due);
    ls_wheel_advance(&m->wheel, now_ms, &due);
    m->now_ms = now_ms;
    while (!ls_list_empty(&due)) {
        ls_wheel_entry *entry = LS_CONTAINER(due.next, ls_wheel_entry, node);
        const int i = (int)(entry - m->entries);
        ls_wheel_remove(entry);
        assert_true(is_due(m, i, now_ms));
        assert_int_equal(entry->at_ms, m->at_ms[i]);
        m->in[i] = false;
    }
    for (int i = 0; i < ENTRIES; i++) assert_false(is_due(m, i, now_ms));
}

/* A distance whose magnitude is random: each level of the wheel is used as often as the others. */
static uint32_t distance(model *m, unsigned bits_max)
{
    return rnd(m) & (((uint32_t)1 << (1 + rnd(m) % bits_max)) - 1);
}

TEST(random_entries_become_due_as_in_a_list)
{
    static const uint32_t starts[] = {0, 1, 63, 64, 4095, 0x3fffffff, 0x7fffffff, 0x80000000, 0xfffff000, 0xffffffff};
    static model m;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        model_open(&m, starts[s], (uint32_t)s + 7);
        for (int round = 0; round < 3000; round++) {
            const int i = (int)(rnd(&m) % ENTRIES);
            uint32_t next_ms;
            bool has;
            if (m.in[i] && rnd(&m) % 2) {
                ls_wheel_remove(&m.entries[i]);
                m.in[i] = false;
            } else if (!m.in[i]) {
                add(&m, i, rnd(&m) % 8 == 0 ? m.now_ms - distance(&m, 20) : m.now_ms + distance(&m, 30));
            }
            if (rnd(&m) % 4 != 0) continue;
            check_next(&m, &next_ms, &has);
            if (has && rnd(&m) % 2)
                advance(&m, next_ms);
            else
                advance(&m, m.now_ms + distance(&m, rnd(&m) % 16 == 0 ? 29 : 14));
        }
    }
}

/* Only the times that ls_wheel_next gives are used: every entry is due exactly at its time, in a few steps. */
TEST(the_steps_of_next_meet_every_deadline)
{
    static model m;
    for (int bits = 0; bits < 32; bits++) {
        for (int back = 0; back < 2; back++) {
            const uint32_t start = 0xfffffe00u + (uint32_t)bits * 37;
            const uint32_t ahead = ((uint32_t)1 << bits) - (uint32_t)back;
            if (ahead > INT32_MAX) continue;
            model_open(&m, start, 1);
            add(&m, 0, start + ahead);
            uint32_t next_ms;
            bool has;
            int steps = 0;
            while (check_next(&m, &next_ms, &has), has) {
                advance(&m, next_ms);
                steps++;
            }
            assert_int_equal(m.now_ms, start + ahead);
            assert_in_range(steps, 1, LS_WHEEL_LEVELS);
        }
    }
}

TEST(the_farthest_deadline_is_kept_and_not_early)
{
    static model m;
    for (uint32_t start = 0x3ffffff0; start != 0xfffffff0; start += 0x40000000) {
        model_open(&m, start, 1);
        add(&m, 0, start + INT32_MAX);
        add(&m, 1, start + INT32_MAX - 1);
        advance(&m, start + INT32_MAX - 2);
        assert_true(m.in[0] && m.in[1]);
        advance(&m, start + INT32_MAX - 1);
        assert_true(m.in[0] && !m.in[1]);
        advance(&m, start + INT32_MAX);
        assert_false(m.in[0]);
    }
}

TEST(a_past_deadline_is_due_at_the_next_advance)
{
    static model m;
    uint32_t next_ms;
    bool has;
    model_open(&m, 1000, 1);
    add(&m, 0, 400);
    add(&m, 1, 1000);
    check_next(&m, &next_ms, &has);
    assert_true(has && next_ms == 1000);
    advance(&m, 1000); /* the time does not move */
    assert_false(m.in[0] || m.in[1]);
}

TEST(an_empty_wheel_advances_by_any_distance)
{
    static model m;
    uint32_t next_ms;
    bool has;
    model_open(&m, 5, 1);
    add(&m, 0, 500000);
    ls_wheel_remove(&m.entries[0]);
    ls_wheel_remove(&m.entries[0]); /* no effect */
    m.in[0] = false;
    advance(&m, 0xc0000000u);
    check_next(&m, &next_ms, &has);
    assert_false(has);
    add(&m, 0, 0xc0000001u);
    check_next(&m, &next_ms, &has);
    assert_true(has && next_ms == 0xc0000001u);
    advance(&m, 0xc0000001u);
    assert_false(m.in[0]);
}

/* An entry that was handed out, but not handled, can be removed. */
TEST(an_entry_leaves_the_list_of_due_entries)
{
    static model m;
    ls_node due;
    model_open(&m, 0, 1);
    add(&m, 0, 10);
    add(&m, 1, 10);
    ls_node_init(&due);
    ls_wheel_advance(&m.wheel, 10, &due);
    assert_true(ls_wheel_has(&m.entries[0]) && ls_wheel_has(&m.entries[1]));
    ls_wheel_remove(&m.entries[0]);
    assert_ptr_equal(due.next, &m.entries[1].node);
    assert_ptr_equal(due.prev, &m.entries[1].node);
}
