/* udp_sockets.h - the UDP sockets of a server: opens, starts, drains and closes the sockets of a site's ls.udp calls. */
#ifndef LS_SERVER_UDP_SOCKETS_H
#define LS_SERVER_UDP_SOCKETS_H

#include "script/site/site.h"

typedef struct ls_udp_sockets { /* all zero: no sockets */
    ls_udp **at;
    unsigned count;
} ls_udp_sockets;

/* LS_OK, or an error with the reason in `message`; sockets that are open by then stay open until ls_udp_sockets_close. */
int ls_udp_sockets_open(ls_udp_sockets *sockets, ls_site *site, ls_port *port, char *message, size_t message_bytes);
void ls_udp_sockets_start(ls_udp_sockets *sockets, ls_thread_ctx *ctx); /* starts to receive, and logs each address */
void ls_udp_sockets_stop(ls_udp_sockets *sockets, ls_thread_ctx *ctx);  /* stops receiving */
bool ls_udp_sockets_idle(const ls_udp_sockets *sockets);
void ls_udp_sockets_close(ls_udp_sockets *sockets, ls_thread_ctx *ctx);
void ls_udp_sockets_free(ls_udp_sockets *sockets); /* after port and site are closed */
void ls_udp_sockets_stat(const ls_udp_sockets *sockets, ls_site_stat_fn *each, void *to);
void ls_udp_sockets_describe(const ls_site *site); /* prints to stdout, for --check */

#endif
