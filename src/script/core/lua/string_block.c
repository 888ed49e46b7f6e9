/* string_block.c - see string_block.h.
 *
 * No dropped block is lost. The accesses named here are sequentially consistent, so they have one total order.
 *
 *     drop:  D1 push on the stack                  op:  O1 exchange posted for false
 *            D2 exchange posted for true                O2 take the stack
 *            post the op if it was false
 *
 * If D2 finds true, the O1 of that op is later than D2, so D1 < D2 < O1 < O2: O2 finds the block, unless it was taken
 * before. Only the drop that changed false to true posts the op, and O1 happens after the op has left the actor's
 * inbox: it is queued at most once at a time.
 *
 * A state closes when no block refers to a string, no thread is dropping one and no op is posted: a drop counts itself
 * before D1 and until the op is posted, so the last thread that touches the state is seen. */
#include "script/core/lua/string_block.h"

#include <assert.h>
#include <stdlib.h>

#include "script/core/state.h"

static void dropped(ls_external *external)
{
    ls_string_block *block = (ls_string_block *)(void *)external;
    ls_state *state = block->state;
    ls_strings *strings = &state->strings;
    ls_port *port = strings->port; /* NULL: the state frees the block when it closes, or uses it again */
    atomic_fetch_add(&strings->dropping, 1);
    ls_string_block *head = atomic_load_explicit(&strings->dropped, memory_order_relaxed);
    do block->next = head;
    while (!atomic_compare_exchange_weak(&strings->dropped, &head, block));
    if (port != NULL && !atomic_exchange(&strings->posted, true))
        ls_actor_post_later(&state->actor, port, &strings->op); /* often this thread is inside the actor */
    atomic_fetch_sub(&strings->dropping, 1);
}

/* Release the strings of the blocks on the stack. Allocates nothing. */
static void release_dropped(lua_State *L, ls_strings *strings)
{
    if (atomic_load_explicit(&strings->dropped, memory_order_relaxed) == NULL) return;
    ls_string_block *block = atomic_exchange(&strings->dropped, NULL);
    while (block != NULL) {
        ls_string_block *const next = block->next;
        strings->used--;
        if (strings->free_count < LS_STRINGS_FREE_MAX) {
            lua_pushboolean(L, 0); /* not nil: the key stays, so the next string needs no allocation */
            lua_rawseti(L, LUA_REGISTRYINDEX, block->ref);
            block->next = strings->free;
            strings->free = block;
            strings->free_count++;
        } else {
            luaL_unref(L, LUA_REGISTRYINDEX, block->ref);
            free(block);
        }
        block = next;
    }
}

static void release_posted(ls_thread_ctx *ctx, ls_op *op)
{
    ls_strings *strings = LS_CONTAINER(op, ls_strings, op);
    ls_state *state = LS_CONTAINER(strings, ls_state, strings);
    (void)atomic_exchange(&strings->posted, false);
    release_dropped(state->L, strings);
}

void ls_strings_open(ls_strings *strings)
{
    strings->op = (ls_op){.done = release_posted};
}

bool ls_strings_closed(const ls_strings *strings)
{
    return strings->used == 0 && atomic_load(&strings->dropping) == 0 && !atomic_load(&strings->posted);
}

static void free_list(ls_string_block *block)
{
    while (block != NULL) {
        ls_string_block *const next = block->next;
        free(block);
        block = next;
    }
}

void ls_strings_close(ls_strings *strings)
{
    ls_string_block *stack = atomic_exchange(&strings->dropped, NULL);
    for (const ls_string_block *block = stack; block != NULL; block = block->next) strings->used--;
    assert(strings->used == 0);
    free_list(stack);
    free_list(strings->free);
    strings->free = NULL;
    strings->free_count = 0;
}

bool ls_strings_reserve(lua_State *L, unsigned count)
{
    ls_state *state = ls_state_of(L);
    ls_strings *strings = &state->strings;
    bool allocated = false;
    release_dropped(L, strings);
    while (strings->free_count < count) {
        lua_pushboolean(L, 0);
        const int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* may run a finalizer that uses up a prepared block */
        ls_string_block *block = malloc(sizeof *block);
        if (block == NULL) {
            luaL_unref(L, LUA_REGISTRYINDEX, ref);
            luaL_error(L, "not enough memory");
            break;
        }
        block->state = state;
        block->ref = ref;
        block->next = strings->free;
        strings->free = block;
        strings->free_count++;
        allocated = true;
    }
    return allocated;
}

ls_slice ls_string_slice(lua_State *L, int index)
{
    ls_strings *strings = &ls_state_of(L)->strings;
    ls_string_block *block = strings->free;
    size_t len;
    assert(block != NULL && lua_type(L, index) == LUA_TSTRING);
    strings->free = block->next;
    strings->free_count--;
    strings->used++;
    lua_pushvalue(L, index);
    lua_rawseti(L, LUA_REGISTRYINDEX, block->ref);
    ls_external_init(&block->external, LS_BLOCK_EXTERNAL, dropped);
    const char *bytes = lua_tolstring(L, index, &len);
    return ls_slice_external(&block->external, bytes, len);
}
