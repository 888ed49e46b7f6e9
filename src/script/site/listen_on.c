/* listen_on.c - moves the listeners of a site to another address: ls_server_options.listen_on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/sock/addr.h"
#include "script/bind/http/site_listener.h"
#include "script/bind/modules.h"
#include "script/bind/sock/udp_object_internal.h"
#include "script/site/site_internal.h"

int ls_site_listen_on(ls_site *site, const char *text, char *message, size_t message_bytes)
{
    ls_site_listener at = {0}; /* host and port */
    const char *colon = strrchr(text, ':');
    const bool brackets = colon != NULL && text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    const char *host = text + brackets;
    const size_t len = colon != NULL ? (size_t)(colon - host) - brackets : 0;
    ls_addr parsed;
    const size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    const unsigned long port = digits > 0 ? strtoul(colon + 1, NULL, 10) : 0;
    if (len > 0 && len < sizeof at.host) memcpy(at.host, host, len);
    if (digits == 0 || colon[1 + digits] != '\0' || port > UINT16_MAX || at.host[0] == '\0' ||
        ls_addr_parse(at.host, (uint16_t)port, &parsed) < 0 || parsed.family == LS_ADDR_UNIX) {
        (void)snprintf(message, message_bytes, "listen_on: invalid address \"%s\": give one such as \"127.0.0.1:0\"",
                       text);
        return LS_EINVAL;
    }
    for (unsigned n = 0; n < ls_site_listener_count(site); n++) {
        ls_site_entry *entry = ls_definition_get(&site->generation, LS_SLOT_listener, n);
        ls_site_listener *listener = &entry->listener;
        if (listener->kind == LS_SITE_HTTPSYS) continue;
        memcpy(listener->host, at.host, sizeof at.host);
        listener->port = (uint16_t)port;
        listener->access = (ls_path_access){0};
    }
    for (unsigned n = 0; n < ls_site_udp_count(site); n++) {
        ls_site_udp_entry *entry = ls_definition_get(&site->generation, LS_SLOT_udp, n);
        ls_site_udp *udp = &entry->udp;
        (void)snprintf(udp->host, sizeof udp->host, "%s", at.host);
        udp->port = (uint16_t)port;
    }
    return LS_OK;
}
