/* sock_object.h - what the files of the `sock` object share: sock.c, sock_receive.c, sock_send.c, sock_starttls.c.
 * ls.tcp (listener.c) and ls.connect (connect.c) read their limits with ls_tcp_options.
 *
 * Thread: the one that holds the state's actor. The methods are documented above their definitions. */
#ifndef LS_SCRIPT_BIND_SOCK_H
#define LS_SCRIPT_BIND_SOCK_H

#include "script/bind/bind_aux.h"
#include "script/bind/option.h"
#include "script/bind/sock/tcp.h"
#include "script/bind/value/buffer.h"

enum { LS_TCP_KEEPALIVE_S = 60 };

/* ---- sock.c ---------------------------------------------------------------------------------------------- */

extern const ls_object_type ls_sock_type;

/* The sock at index 1; its `tcp` is NULL after the sock was closed. Raises for any other value. */
ls_tcp_object *ls_tcp_check(lua_State *L);

extern const ls_option ls_tcp_options[]; /* of an ls_tcp_config */

/* ---- sock_receive.c -------------------------------------------------------------------------------------- */

int ls_sock_receive(lua_State *L);
int ls_sock_receiveany(lua_State *L);
int ls_sock_receiveuntil(lua_State *L);
int ls_sock_lines(lua_State *L);
int ls_sock_chunks(lua_State *L);

/* ---- sock_send.c ----------------------------------------------------------------------------------------- */

/* Queue bytes, fewer than LS_STRING_SHARED_MIN; a string, for which ls_strings_reserve() has made a block if it is
 * that long; a buffer. They neither raise nor allocate in Lua. LS_OK, LS_ENOMEM. */
int ls_sock_queue_copy(ls_tcp *tcp, const char *bytes, size_t len);
int ls_sock_queue_string(lua_State *L, ls_tcp *tcp, int index);
int ls_sock_queue_buffer(ls_tcp *tcp, const ls_buffer *buffer);

int ls_sock_send(lua_State *L);
int ls_sock_flush(lua_State *L);
int ls_sock_shutdown_lua(lua_State *L);

/* ---- sock_topic.c ------------------------------------------------------------------------------------------ */

int ls_sock_subscribe(lua_State *L);
int ls_sock_unsubscribe(lua_State *L);

/* ---- sock_starttls.c ------------------------------------------------------------------------------------- */

int ls_sock_starttls(lua_State *L);

#endif
