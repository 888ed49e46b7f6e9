/* string_block.h - blocks for long Lua strings: a slice of one is queued and sent from Lua's memory, without a copy.
 *
 * A string block is an external block (base/buf.h) that refers to its string from the registry of the state. The
 * string stays alive, and counts against the memory limit of the state, until the last slice of the block is dropped.
 *
 * Any thread may drop that slice, but only the thread inside the state may touch the registry. So the drop puts the
 * block on a stack. An operation that is posted to the state's actor releases the strings of all blocks on the stack;
 * the next ls_strings_reserve() does the same earlier.
 *
 * Making a reference may raise, or run a finalizer that changes what is about to be sent. Therefore a send has two
 * steps: ls_strings_reserve() prepares blocks, then ls_string_slice() uses them without an allocation. */
#ifndef LS_SCRIPT_STRING_BLOCK_H
#define LS_SCRIPT_STRING_BLOCK_H

#include <stdbool.h>

#include <lua.h>

#include "base/buf.h"
#include "port/port.h"

enum {
    LS_STRING_SHARED_MIN = 16384, /* bytes: sock:send and whole bodies copy shorter strings */
    LS_PART_SHARED_MIN = 65536,   /* bytes: res:write collects shorter strings into blocks */
    LS_STRINGS_FREE_MAX = 64      /* prepared blocks that a state keeps for further strings */
};

struct ls_state;

typedef struct ls_string_block {
    ls_external external; /* first */
    struct ls_state *state;
    int ref;                      /* in the registry: the string, or false while the block is free */
    struct ls_string_block *next; /* on the stack, or in the list of free blocks */
} ls_string_block;

typedef struct ls_strings {             /* of one state */
    _Atomic(ls_string_block *) dropped; /* the stack */
    _Atomic bool posted;                /* `op` is on its way and has not looked at the stack yet */
    _Atomic unsigned dropping;          /* threads that are dropping a block */
    ls_port *port;                      /* NULL while the site loads, and when the port is closed */
    ls_op op;                           /* releases the strings */
    ls_string_block *free;
    unsigned free_count;
    unsigned used; /* blocks that refer to a string, those on the stack included */
} ls_strings;

void ls_strings_open(ls_strings *strings);
/* Whether no slice of a string exists and no operation is on its way. */
bool ls_strings_closed(const ls_strings *strings);
/* Free all blocks. Every slice was dropped, and Lua is closed. */
void ls_strings_close(ls_strings *strings);

/* Prepare blocks for `count` strings. Returns true if that took an allocation: a finalizer may have run, so the caller
 * repeats its checks. Raises when out of memory. */
bool ls_strings_reserve(lua_State *L, unsigned count);

/* A slice of the string at `index`, with the one reference of a prepared block. Neither raises nor allocates. */
ls_slice ls_string_slice(lua_State *L, int index);

#endif
