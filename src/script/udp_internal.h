/* udp_internal.h - what the files behind ls.udp and ls.udp_connect share. */
#ifndef LS_SCRIPT_UDP_INTERNAL_H
#define LS_SCRIPT_UDP_INTERNAL_H

#include "net/udp.h"
#include "script/state.h"

enum { LS_UDP_ENTRIES_MAX = 64 };

typedef struct ls_site_udp_entry { /* one ls.udp call, shared by all states */
    ls_site_udp udp;
    ls_site *site;
    unsigned index;
    ls_udp *sockets[LS_UDP_SOCKETS_MAX]; /* the server's; set before the workers starts */
    unsigned socket_count;
    _Atomic bool warned; /* that a datagram was cut */
} ls_site_udp_entry;

typedef struct ls_udp_script { /* what a state keeps */
    int handler_refs[LS_UDP_ENTRIES_MAX];
    unsigned handler_count;
    int peers_ref;   /* a table of peers, each at the place of its address */
    void *peer_keys; /* the addresses at those places; NULL: no ls.udp yet */
    int sock_meta_ref, peer_meta_ref, client_meta_ref;
    ls_node clients; /* of ls.udp_connect, those included that wait for their last packet */
} ls_udp_script;

/* Options of the table at `index` (the core's names). Raises. */
void ls_udp_check_setup(lua_State *L, int index, ls_udp_setup *setup);

/* A string, number or buffer at `index`; its length. Raises on anything else. */
void ls_udp_check_data(lua_State *L, int index, size_t *len);
/* A batch of one with those bytes. LS_OK, LS_EMSGSIZE, LS_ENOMEM. */
int ls_udp_compose_value(lua_State *L, int index, const ls_sockaddr *to, ls_datagrams **out);

/* A port to send to at `index`. Raises. */
int ls_udp_check_port(lua_State *L, int index);
/* A numeric IPv4 or IPv6 address, or "localhost". */
int ls_udp_parse(const char *host, uint16_t port, ls_addr *out);
/* The same of the string at `index`; false: it is none. Raises when it is no string. */
bool ls_udp_check_host(lua_State *L, int index, uint16_t port, ls_addr *out);
/* nil, message, code for a host at `index` that is none; returns 3. */
int ls_udp_push_bad_host(lua_State *L, int index);

/* bind_udp_client.c */
void ls_udp_clients_define(lua_State *L, ls_udp_script *script);

#endif
