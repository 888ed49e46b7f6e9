/* notify_internal.h - what ls.notify and ls.socket share. */
#ifndef LS_SCRIPT_NOTIFY_INTERNAL_H
#define LS_SCRIPT_NOTIFY_INTERNAL_H

#include "port/fd.h"
#include "script/state.h"

typedef struct ls_notify_script { /* what a state keeps */
    ls_node live, dead;
    int meta_ref, methods_ref, socket_meta_ref;
    unsigned sockets, sockets_look; /* open ones that objects hold; collect garbage when there are so many */
} ls_notify_script;

/* Which object of which state has which descriptor; one for the site. */
typedef struct ls_notify_table ls_notify_table;
int ls_notify_table_open(ls_notify_table **out);
void ls_notify_table_close(ls_notify_table *table);

/* The descriptor is about to be closed: who waits for it hears so. */
void ls_notify_forget(lua_State *L, ls_fd fd);

/* bind_socket.c. Is the value at `index` a socket of ls.socket? *fd is LS_FD_NONE when it was closed. */
bool ls_socket_test(lua_State *L, int index, ls_fd *fd);
void ls_socket_define(lua_State *L, ls_notify_script *script);

/* A socket, of ls.socket or ls.udp_connect, is about to be opened, or was closed. Objects are small and their descriptors
 * dear: when many are open, those that are garbage are collected first. */
void ls_sockets_opening(lua_State *L);
void ls_sockets_closed(ls_state *state);

#endif
