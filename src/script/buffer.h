/* buffer.h - ls.buffer: bytes in pool blocks, for Lua. Shared by reference: sending one, or cutting a piece out of
 * it, copies nothing. Its blocks count against the pool's limit, not against Lua's memory. */
#ifndef LS_SCRIPT_BUFFER_H
#define LS_SCRIPT_BUFFER_H

#include "script/state.h"

typedef struct ls_buffer {
    const void *tag;
    ls_slice *slices;
    unsigned count, room;
    size_t len;
    ls_block *tail; /* the block that only this buffer appends to, or NULL: it lies in the last slice */
    uint32_t tail_used;
    bool lent; /* to a loop: taken back in its next round */
    bool over; /* taken back: using it raises */
} ls_buffer;

void ls_buffer_define(lua_State *L, ls_state *state);

/* The buffer at `index`, or NULL when it is none. */
ls_buffer *ls_buffer_test(lua_State *L, int index);

/* A lent buffer gives its blocks back when the loop that it was lent to goes on: then they are used again while they are
 * warm, instead of waiting for the garbage collector. buffer:keep() ends the loan. */
void ls_buffer_lend(ls_buffer *buffer);
void ls_buffer_take_back(lua_State *L, int index);

/* So many bytes of blocks are held by a new buffer, of which Lua's collector knows nothing: collects when much is. */
void ls_buffer_account(lua_State *L, size_t bytes);

/* Collect what buffers of an idle state still hold; `all`: also those that have lived through collections. The calling
 * thread is inside the state, and no task runs. */
void ls_buffers_collect(ls_state *state, ls_thread_ctx *ctx, bool all);

/* Push an empty one. Raises. */
ls_buffer *ls_buffer_push(lua_State *L);

/* Add a slice (takes its reference, also when it raises). */
void ls_buffer_add_slice(lua_State *L, ls_buffer *buffer, ls_slice slice);
/* Copy bytes to its end. Raises. */
void ls_buffer_add_bytes(lua_State *L, ls_buffer *buffer, const char *bytes, size_t len);

/* core.buffer */
int ls_buffer_new(lua_State *L);

/* Push the bytes of slices as one string. */
void ls_slices_push_string(lua_State *L, const ls_slice *slices, unsigned count, size_t len);

#endif
