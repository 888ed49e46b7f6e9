/* listener.h - one listener of a site: the ls.listen or ls.tcp call, as the server and all states see it. */
#ifndef LS_SCRIPT_LISTENER_H
#define LS_SCRIPT_LISTENER_H

#include "net/listener.h"
#include "net/network.h"
#include "net/tls.h"
#include "proto/exchange.h"
#include "proto/http_config.h"
#include "proto/httpsys.h"
#include "script/bind/modules.h"
#include "script/bind/tcp.h"
#include "script/core/state.h"

enum { LS_LISTENERS_MAX = 64 };

enum ls_site_kind { LS_SITE_HTTP, LS_SITE_TCP, LS_SITE_HTTPSYS };

typedef struct ls_site_listener {     /* one ls.listen or ls.tcp call */
    uint8_t kind;                     /* enum ls_site_kind */
    char host[112];                   /* "": loopback, IPv4 and IPv6; "*": all addresses; an address; "unix:/path" */
    uint16_t port;                    /* 0: any free port */
    ls_path_access access;            /* of a Unix path */
    char urls[LS_HTTPSYS_URLS_BYTES]; /* LS_SITE_HTTPSYS only, instead of host and port: see ls_httpsys_options */
    ls_http_config http;
    ls_tcp_config tcp;
    uint32_t backlog;          /* 0: that of the settings */
    const ls_tls_options *tls; /* NULL: plain */
    bool proxy_protocol;       /* the peers in `trusted` send PROXY headers */
    const ls_network *trusted;
    size_t trusted_count;
    uint32_t handshake_ms_max, handshakes_max; /* of PROXY header and TLS; 0: see ls_acceptor_options */
    char where[80];                            /* position of the call for messages: "site.lua:12" */
} ls_site_listener;

typedef struct ls_site_handler {
    ls_http_handler base; /* first */
    ls_generation *generation;
    unsigned index;                  /* of the listener */
    ls_http_transport dev_transport; /* dev mode only: see dev_page.h */
} ls_site_handler;

typedef struct ls_site_entry { /* a definition (core/generation.h); the server holds pointers into it */
    ls_site_listener listener;
    ls_site_handler handler;
    ls_tcp_server tcp;
    char *routes; /* one line for each route; NULL: none */
} ls_site_entry;

typedef struct ls_state_listener { /* registry references to functions */
    int dispatch_ref, failed_ref;
} ls_state_listener;

enum {
    LS_LISTENER_CONTROL = LS_LISTENERS_MAX
}; /* the index of the control socket, which is no listener of the site */

typedef struct ls_listeners { /* of a state */
    ls_state_listener at[LS_LISTENERS_MAX + 1];
    ls_tcp_config control; /* the limits of the control socket */
} ls_listeners;

static inline ls_listeners *ls_listeners_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_listener);
}

#endif
