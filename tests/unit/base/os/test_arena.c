/* test_arena.c - blocks on pages that can be packed. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/os/arena.h"

enum { BLOCKS = 300, ROUNDS = 20000 };

static struct {
    unsigned char *at;
    size_t len;
    unsigned char fill;
} blocks[BLOCKS];

static uint32_t next_random(void)
{
    static uint32_t state = 1;
    return (state = state * 1103515245 + 12345) >> 8;
}

static void check(unsigned n)
{
    assert_int_equal((uintptr_t)blocks[n].at % 16, 0);
    for (size_t i = 0; i < blocks[n].len; i++) assert_int_equal(blocks[n].at[i], blocks[n].fill);
}

static void resize(ls_arena *arena, unsigned n)
{
    const size_t before = blocks[n].len, len = next_random() % 50 == 0 ? next_random() % 20000 : next_random() % 700;
    unsigned char *at = ls_arena_resize(blocks[n].at, len, arena);
    assert_non_null(at);
    blocks[n].at = at;
    blocks[n].len = len < before ? len : before;
    check(n);
    blocks[n].len = len;
    blocks[n].fill = (unsigned char)next_random();
    memset(at, blocks[n].fill, len);
}

/* Blocks of all sizes, more than the pages hold, keep their bytes and addresses. */
TEST(blocks_keep_their_bytes)
{
    ls_arena arena = {NULL};
    memset(blocks, 0, sizeof blocks);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned n = next_random() % BLOCKS;
        if (round % 1000 == 0) {
            ls_arena_pack(&arena);
            ls_arena_pack(&arena);
            assert_true(round == 0 || arena.packed != NULL);
            ls_arena_unpack(&arena);
        }
        check(n);
        if (next_random() % 2 == 0) {
            resize(&arena, n);
        } else {
            ls_arena_give(blocks[n].at, &arena);
            blocks[n].at = NULL;
            blocks[n].len = 0;
        }
    }
    for (unsigned n = 0; n < BLOCKS; n++) {
        check(n);
        ls_arena_give(blocks[n].at, &arena);
    }
    ls_arena_close(&arena);
}

TEST(freed_blocks_are_used_again)
{
    ls_arena arena = {NULL};
    static const size_t sizes[] = {1, 8, 9, 504, 505, 5000, LS_ARENA_BYTES};
    for (unsigned n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        void *block = ls_arena_take(sizes[n], &arena);
        assert_non_null(block);
        memset(block, 'x', sizes[n]);
        ls_arena_give(block, &arena);
        if (sizes[n] < LS_ARENA_BYTES) assert_ptr_equal(ls_arena_take(sizes[n], &arena), block);
    }
    ls_arena_close(&arena);
}

/* The last block on the pages, and the first one beside them. */
TEST(blocks_beside_the_pages)
{
    ls_arena arena = {NULL};
    char *block, *beside[2];
    do block = ls_arena_take(1000, &arena);
    while ((size_t)(block - arena.pages) < LS_ARENA_BYTES - 2000);
    for (unsigned n = 0; n < 2; n++) {
        beside[n] = ls_arena_take(1000, &arena);
        memset(beside[n], 'x', 1000);
        ls_arena_pack(&arena);
        ls_arena_unpack(&arena);
        if ((size_t)(beside[n] - arena.pages) >= LS_ARENA_BYTES) ls_arena_give(beside[n], &arena);
    }
    ls_arena_pack(&arena);
    ls_arena_clear(&arena); /* packed or not: the pages are zeros, and serve again */
    assert_null(arena.packed);
    for (size_t n = 0; n < LS_ARENA_BYTES; n++) assert_int_equal(arena.pages[n], 0);
    assert_non_null(ls_arena_take(1, &arena));
    ls_arena_clear(&arena);
    ls_arena_close(&arena);
    assert_null(arena.pages);
}
