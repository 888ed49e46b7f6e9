/* bind_sock.h - between the files of the `sock` object. */
#ifndef LS_SCRIPT_BIND_SOCK_H
#define LS_SCRIPT_BIND_SOCK_H

#include "script/tcp.h"

enum { LS_TCP_KEEPALIVE_S = 60 };

/* Create the metatable of sock. */
void ls_tcp_define(lua_State *L, ls_state *state);

/* The sock that is the first argument. Raises for another thing. */
ls_tcp_object *ls_tcp_check(lua_State *L);

/* bind_sock_receive.c */
int ls_sock_receive(lua_State *L);
int ls_sock_receiveany(lua_State *L);
int ls_sock_receiveuntil(lua_State *L);
int ls_sock_lines(lua_State *L);
int ls_sock_chunks(lua_State *L);

/* bind_sock_send.c */
int ls_sock_send(lua_State *L);
int ls_sock_flush(lua_State *L);
int ls_sock_shutdown_lua(lua_State *L);

#endif
