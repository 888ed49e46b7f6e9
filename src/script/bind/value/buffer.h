/* buffer.h - the buffer object of ls.buffer: bytes in pool blocks, for Lua (buffer.c).
 *
 * A buffer is a list of slices. Sending a buffer or taking a piece of it shares the blocks and copies nothing.
 * The blocks count against the pool's limit, the array of slices against the memory limit of the Lua state.
 *
 * A loop such as sock:chunks() lends its buffers: the next round of the loop takes the buffer back and releases its
 * blocks, which the pool then hands out again while they are in the cache; without the loan they would wait for the
 * garbage collector. buffer:keep() ends the loan.
 *
 * Thread: the one that holds the state's actor. Functions that push or add may raise "not enough memory". */
#ifndef LS_SCRIPT_BUFFER_H
#define LS_SCRIPT_BUFFER_H

#include "script/core/state.h"

typedef struct ls_buffer {
    const void *tag;
    ls_slice *slices;
    unsigned count, room;
    size_t len;
    ls_block *tail; /* the block of the last slice, while only this buffer appends to it; else NULL */
    uint32_t tail_used;
    bool lent;                   /* to a loop, which takes the buffer back in its next round */
    bool expired;                /* taken back: any use raises */
    struct ls_buffer *late_next; /* of the buffers made while the state closes */
} ls_buffer;

/* The buffer at `index`, or NULL for any other value. Raises for an expired buffer. */
ls_buffer *ls_buffer_test(lua_State *L, int index);

/* The slices of the buffer at `index` and their number; NULL for any other value and for an expired buffer. Neither
 * allocates nor raises: it is the `slices` of ls_value_options. */
const ls_slice *ls_buffer_slices(lua_State *L, int index, unsigned *count);

/* Push an empty buffer. */
ls_buffer *ls_buffer_push(lua_State *L);

/* Append a slice. Takes the reference, also when it raises. */
void ls_buffer_add_slice(lua_State *L, ls_buffer *buffer, ls_slice slice);

/* Append a copy of the bytes. */
void ls_buffer_add_bytes(lua_State *L, ls_buffer *buffer, const char *bytes, size_t len);

/* Lend the buffer to a loop. */
void ls_buffer_lend(ls_buffer *buffer);

/* The loop begins its next round: when the value at `index` is a lent buffer, it expires and its blocks are
 * released. */
void ls_buffer_take_back(lua_State *L, int index);

/* A new buffer holds `bytes` more bytes of blocks, which Lua's collector does not see. Runs a collection when buffers
 * have received many bytes since the last one. */
void ls_buffer_account(lua_State *L, size_t bytes);

/* Post a garbage collection to each state of the generation whose buffers may be garbage: a young collection if the
 * state made no buffer since the last tick, a full one if the workers are idle or the last full one is some seconds
 * old. Returns true if it posted one. Thread: the watchdog. */
bool ls_buffers_on_tick(ls_generation *generation, bool idle);

/* Push the bytes of slices, `len` in total, as one string. */
void ls_slices_push_string(lua_State *L, const ls_slice *slices, unsigned count, size_t len);

#endif
