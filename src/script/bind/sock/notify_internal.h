/* notify_internal.h - what ls.notify (notify.c) and ls.socket (socket.c) share.
 *
 * Thread: the one that holds the state's actor, unless a comment names another time. */
#ifndef LS_SCRIPT_NOTIFY_INTERNAL_H
#define LS_SCRIPT_NOTIFY_INTERNAL_H

#include "port/fd.h"
#include "script/core/state.h"

/* ---- notify.c -------------------------------------------------------------------------------------------- */

/* `fd` is about to be closed: its registration ends, and a task of this state that waits for it wakes and gets nil,
 * "the descriptor was closed", "ENOENT". */
void ls_notify_unregister(lua_State *L, ls_fd fd);

/* ---- socket.c -------------------------------------------------------------------------------------------- */

/* Whether the value at `index` is a socket of ls.socket. If so, *fd receives its descriptor, LS_FD_NONE after
 * close(). */
bool ls_socket_test(lua_State *L, int index, ls_fd *fd);

#endif
