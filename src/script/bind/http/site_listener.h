/* site_listener.h - one listener of a site: the ls.listen or ls.tcp call, as the server and all states see it. */
#ifndef LS_SCRIPT_LISTENER_H
#define LS_SCRIPT_LISTENER_H

#include "http/exchange.h"
#include "http/http_config.h"
#include "http/httpsys/httpsys.h"
#include "http/record.h"
#include "net/listener.h"
#include "net/network.h"
#include "net/tls/tls.h"
#include "script/bind/modules.h"
#include "script/bind/sock/listeners.h"
#include "script/bind/sock/tcp_server.h"
#include "script/core/state.h"

enum ls_site_kind { LS_SITE_HTTP, LS_SITE_TCP, LS_SITE_HTTPSYS };

typedef struct ls_site_listener {     /* one ls.listen or ls.tcp call */
    uint8_t kind;                     /* enum ls_site_kind */
    char host[112];                   /* "": loopback, IPv4 and IPv6; "*": all addresses; an address; "unix:/path" */
    uint16_t port;                    /* 0: any free port */
    ls_path_access access;            /* of a Unix path */
    char urls[LS_HTTPSYS_URLS_BYTES]; /* LS_SITE_HTTPSYS only, instead of host and port: see ls_httpsys_options */
    ls_http_config http;
    uint32_t time_ms_max; /* of a handler that waits; 0: no limit */
    uint32_t slow_ms;     /* of a request; 0: none is slow */
    ls_tcp_config tcp;
    uint32_t backlog;          /* 0: that of the settings */
    const ls_tls_options *tls; /* NULL: plain */
    bool tunnels;              /* the apps have WebSockets, or a proxy */
    bool proxy_protocol;       /* the peers in `trusted` send PROXY headers */
    const ls_network *trusted;
    size_t trusted_count;
    const ls_network *allow, *deny; /* see ls_acceptor_service_options */
    size_t allow_count, deny_count;
    uint32_t per_ip_max;
    uint32_t handshake_ms_max, handshakes_max; /* of PROXY header and TLS; 0: see ls_acceptor_options */
    char where[80];                            /* position of the call for messages: "site.lua:12" */
} ls_site_listener;

typedef struct ls_site_handler {
    ls_http_handler base; /* first */
    ls_generation *generation;
    unsigned index;       /* of the listener */
    uint32_t time_ms_max, slow_ms; /* those of the listener */
} ls_site_handler;

static inline uint32_t ls_slow_ms_of(const ls_http_handler *handler)
{
    return ((const ls_site_handler *)(const void *)handler)->slow_ms;
}

typedef struct ls_site_entry { /* a definition (core/generation.h); the server holds pointers into it */
    ls_site_listener listener;
    ls_site_handler handler;
    ls_tcp_server tcp;
} ls_site_entry;

/* The routes and recorders of the server. */
ls_records *ls_records_of(const ls_runtime *runtime);

/* While the site loads: give the records of listener `index` of this generation (LS_RECORDS_ALL: of all of ls.listen,
 * also of later ones) to the sink, which stays until the server is closed. In the first state; in others it has no
 * effect. LS_OK; LS_ELIMIT: it has LS_RECORD_SINKS_MAX; LS_ENOMEM. */
enum { LS_RECORDS_ALL = -1 };
int ls_records_add(ls_state *state, int index, ls_record_sink *sink);

#endif
