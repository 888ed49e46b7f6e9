/* udp_object_internal.h - what ls.udp (udp.c) and ls.udp_connect (udp_client.c) share; ls.socket (socket.c)
 * uses the address functions.
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_UDP_INTERNAL_H
#define LS_SCRIPT_UDP_INTERNAL_H

#include "script/bind/modules.h"
#include "script/bind/sock/udp_object.h"
#include "script/core/state.h"

enum { LS_UDP_ENTRIES_MAX = 64 };

typedef struct ls_site_udp_entry { /* one ls.udp call, a definition (core/generation.h) */
    ls_site_udp udp;
    ls_generation *generation;
    unsigned index;
    ls_udp *sockets[LS_UDP_SOCKETS_MAX]; /* the server's; set before the workers start */
    unsigned socket_count;
    _Atomic bool warned; /* a truncated datagram was logged */
} ls_site_udp_entry;

typedef struct ls_udp_script { /* of one state */
    int handler_refs[LS_UDP_ENTRIES_MAX];
    int peers_ref;   /* array of cached peers, indexed by the hash of the address */
    void *peer_keys; /* the addresses of the cached peers; NULL before the first ls.udp */
    int peer_meta_ref;
} ls_udp_script;

static inline ls_udp_script *ls_udp_script_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_udp);
}

/* ---- udp.c ----------------------------------------------------------------------------------------------- */

/* Read the options in the table at `index` (option.h). Raises. */
void ls_udp_check_setup(lua_State *L, int index, ls_udp_setup *setup);

/* The length of the string, number or buffer at `index`. Raises for any other value. */
size_t ls_udp_check_data(lua_State *L, int index);

/* Make a batch of one datagram from the value at `index`, which ls_udp_check_data accepted. LS_OK, LS_EMSGSIZE,
 * LS_ENOMEM. */
int ls_udp_compose_value(lua_State *L, int index, const ls_sockaddr *to, ls_datagrams **out);

/* The destination port at `index`, from 1 to 65535. Raises. */
int ls_udp_check_port(lua_State *L, int index);

/* Parse the numeric IPv4 or IPv6 address, or "localhost", at `index`; false for an invalid address. Raises unless it is
 * a string. */
bool ls_udp_check_host(lua_State *L, int index, uint16_t port, ls_addr *out);

/* Push nil, message, code for the invalid address at `index`; returns 3. */
int ls_udp_push_bad_host(lua_State *L, int index);

#endif
