/* test_delivery.c - the heads of fan-out messages, and the account of deliveries. */
/* sanitizers: asan; no thread starts */
#include "stress/protocols/delivery.h"

#include "support.h"

TEST(heads_are_read_as_written)
{
    static const ls_delivery_head heads[] = {
        {.run = 0},
        {.run = 0xdeadbeef, .publisher = 65535, .number = 1, .sent_ns = 123456789012345, .late_ns = 5},
        {.run = UINT32_MAX,
         .publisher = UINT16_MAX,
         .number = LS_DELIVERY_NUMBER_MAX,
         .sent_ns = (UINT64_C(1) << 56) - 1,
         .late_ns = (UINT64_C(1) << 40) - 1},
    };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char text[LS_DELIVERY_HEAD_BYTES];
        ls_delivery_head got;
        ls_delivery_write(&heads[i], text);
        for (size_t k = 0; k < sizeof text; k++) assert_true(text[k] > ' ' && text[k] < 0x7f);
        assert_true(ls_delivery_read(text, sizeof text, &got));
        assert_int_equal(got.run, heads[i].run);
        assert_int_equal(got.publisher, heads[i].publisher);
        assert_true(got.number == heads[i].number && got.sent_ns == heads[i].sent_ns &&
                    got.late_ns == heads[i].late_ns);
    }
}

/* A wait beyond 40 bits is cut. */
TEST(the_longest_wait_is_cut)
{
    char text[LS_DELIVERY_HEAD_BYTES];
    ls_delivery_head got;
    ls_delivery_write(&(ls_delivery_head){.late_ns = UINT64_C(1) << 40}, text);
    assert_true(ls_delivery_read(text, sizeof text, &got));
    assert_true(got.late_ns == (UINT64_C(1) << 40) - 1);
}

TEST(other_messages_are_no_heads)
{
    char text[LS_DELIVERY_HEAD_BYTES];
    ls_delivery_head got;
    ls_delivery_write(&(ls_delivery_head){.number = 7}, text);
    for (size_t len = 0; len < sizeof text; len++) {
        char *cut = test_copy_exact(text, len);
        assert_false(ls_delivery_read(cut, len, &got));
        free(cut);
    }
    for (size_t i = 0; i < sizeof text; i++) {
        static const char wrong[] = {'/', ':', '@', 'A', '`', 'g', '\0', (char)0xff};
        for (size_t k = 0; k < sizeof wrong; k++) {
            const char right = text[i];
            text[i] = wrong[k];
            assert_false(ls_delivery_read(text, sizeof text, &got));
            text[i] = right;
        }
    }
    assert_true(ls_delivery_read(text, sizeof text, &got));
}

/* Numbers in the order in which they arrive, and the kind of each. */
static void take(const char *kinds, const uint64_t *numbers)
{
    ls_delivery_track track = {0};
    for (size_t i = 0; kinds[i] != '\0'; i++) {
        static const char names[] = {
            [LS_DELIVERY_IN_ORDER] = '>', [LS_DELIVERY_REORDERED] = 'r', [LS_DELIVERY_DUPLICATED] = 'd'};
        assert_int_equal(names[ls_delivery_take(&track, numbers[i])], kinds[i]);
    }
}

TEST(numbers_are_classified)
{
    take(">>>", (uint64_t[]){1, 2, 3});
    take(">>d", (uint64_t[]){1, 2, 2});
    take(">>dd", (uint64_t[]){1, 2, 1, 1});
    take(">>rd>", (uint64_t[]){1, 3, 2, 2, 4}); /* 2 arrives behind 3, and again */
    take(">rrr", (uint64_t[]){4, 1, 3, 2});
    take(">>", (uint64_t[]){1, LS_DELIVERY_NUMBER_MAX});
    /* At the window and one past it: 63 behind the newest one is new, 64 behind counts as duplicated. */
    take(">>r", (uint64_t[]){1, 66, 3});
    take(">>d", (uint64_t[]){1, 66, 2});
    take(">>d", (uint64_t[]){1, 64, 1}); /* 63 behind and seen */
    take(">>r", (uint64_t[]){2, 64, 1});
    take(">>>d", (uint64_t[]){1, 64, 65, 2 - 1});
}
