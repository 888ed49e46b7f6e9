/* redis_reader.h - received bytes of a Redis server (RESP2) to Lua values, with the reader of hiredis.
 *
 * Values are made while bytes arrive. Between two calls the arrays that are not complete are in a table of the caller,
 * by their level: at [-1], [-2] and so on.
 *
 * Thread: one at a time; ls_redis_reader_next: that of the Lua state. */
#ifndef LS_SCRIPT_REDIS_READER_H
#define LS_SCRIPT_REDIS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

enum { LS_REDIS_LEVELS_MAX = 8 }; /* of arrays in arrays */

typedef struct ls_redis_reader ls_redis_reader;

/* "hiredis 1.2.0"; NULL: not built in. Static text. */
const char *ls_redis_reader_library(void);

/* A reply of more bytes than reply_bytes_max is refused. NULL: out of memory. */
ls_redis_reader *ls_redis_reader_open(void);
void ls_redis_reader_close(ls_redis_reader *reader); /* NULL: does nothing */

/* Copy received bytes. LS_OK or LS_ENOMEM. */
int ls_redis_reader_feed(ls_redis_reader *reader, const char *bytes, size_t len);

/* Push the next reply: a string, an integer, nil or a table, in which nil is false and an error is { err = text }.
 * `partial`: index of the table of the caller. *is_error: the reply is the text of an error. LS_DONE; LS_PENDING: it
 * is not complete, and nothing was pushed; LS_EPROTO; LS_EMSGSIZE: it has more than bytes_max bytes. Raises when Lua
 * is out of memory. After an error and a raise no call but close may follow. */
int ls_redis_reader_next(lua_State *L, ls_redis_reader *reader, int partial, uint64_t bytes_max, bool *is_error);
/* No reply has begun. */
bool ls_redis_reader_is_empty(const ls_redis_reader *reader);
/* What is wrong, of LS_EPROTO; may be "". */
const char *ls_redis_reader_why(const ls_redis_reader *reader);

#endif
