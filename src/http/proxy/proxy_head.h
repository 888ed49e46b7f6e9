/* proxy_head.h - the heads of a reverse proxy (RFC 9110 section 7.6): the request of a client as a request to an
 * upstream server, and the head of its response as the response of the exchange.
 *
 * Fields of the connection are not passed on: Connection and those that it names, Keep-Alive, Proxy-Connection, TE,
 * Transfer-Encoding, Upgrade (which follows again if both sides may change the protocol), Trailer, Proxy-Authenticate
 * and Proxy-Authorization. The request gets Via and
 *
 *     X-Forwarded-For     the address of the client, after the list that a trusted client has sent
 *     X-Forwarded-Proto   http or https, and
 *     X-Forwarded-Host    the Host of the request, unless a trusted client has sent the field
 *
 * Forwarded (RFC 7239) is never passed on. What luaserve believes of that of a trusted client is in the three others, in
 * place of what they say. What other clients say about themselves in these fields, in others that begin with
 * X-Forwarded- and in X-Real-IP is dropped. A name with "_" in place of "-" counts as the same where a field is dropped
 * or replaced: servers that follow CGI read both under one name. Thread: inside x->actor. */
#ifndef LS_HTTP_PROXY_HEAD_H
#define LS_HTTP_PROXY_HEAD_H

#include "base/text.h"
#include "codec/http1/http1_parse_response.h"
#include "http/exchange.h"

/* What a trusted client with Forwarded says about its own client. A text whose ptr is NULL: nothing. */
typedef struct ls_proxy_told {
    bool any;
    ls_text ip, scheme, host;
} ls_proxy_told;

/* Which fields of a client the server gets. */
typedef struct ls_proxy_filter {
    ls_text drops; /* the names of fields that are left out, between commas; len 0: none */
    bool trusted;  /* the client is a proxy of the site: see above */
    bool decoded;  /* the body has lost its content coding: so does the request */
    ls_proxy_told told;
} ls_proxy_filter;

/* Whether the server gets a field or a trailer of that name as the client sends it. */
bool ls_proxy_passes(const ls_exchange *x, const ls_proxy_filter *filter, const char *name, size_t len);

/* Whether the names are equal, or one begins with another, without regard to case, and with "_" as "-". */
bool ls_proxy_same_name(const char *a, size_t a_len, const char *b, size_t b_len);
bool ls_proxy_name_begins(const char *name, size_t len, const char *with, size_t with_len);

/* What the site changes of the request. A text whose ptr is NULL: none. */
typedef struct ls_proxy_change {
    ls_text host;    /* of the field Host; none: that of the client */
    ls_text prefix;  /* is put before the path, without a slash at its end */
    ls_text target;  /* replaces path, query and prefix */
    ls_text lines;   /* valid fields "Name: value\r\n"..., which are added */
    unsigned strip;  /* number of segments that the path loses at its begin */
    uint64_t length; /* of a body that was received already, for has_length */
    bool has_length;
} ls_proxy_change;

/* Whether the path has no segment "." or "..", also percent-encoded, which could leave the prefix. */
bool ls_proxy_path_stays(const ls_exchange *x, const ls_proxy_change *change);

/* The field Upgrade of the request if it is passed on, else NULL. It is not for protocols that carry HTTP (h2c, TLS of
 * RFC 2817): the requests within them would pass by the routes and the middleware. */
const ls_http_field *ls_proxy_upgrade(const ls_exchange *x);

/* Queue the head of the request on `up`. *chunked receives whether the body follows in the chunked coding. LS_OK;
 * LS_ELIMIT: the head is longer than LS_BLOCK_LARGE; LS_ENOMEM. */
int ls_proxy_put_request(ls_thread_ctx *ctx, const ls_exchange *x, ls_stream *up, const ls_proxy_filter *filter,
                         const ls_proxy_change *change, bool *chunked);

/* Where the site has the server. */
typedef struct ls_proxy_place {
    ls_text url;    /* "http://host:port/prefix", as the server may say it in Location */
    unsigned strip; /* see ls_proxy_change */
} ls_proxy_place;

/* Set status, fields and length of the response from the final head bytes[0..head->bytes). A field that the exchange
 * has already replaces those of its name, but Set-Cookie and Vary, to which they are added. A Location below the URL of
 * the place becomes its path in the site, as by proxy_redirect of nginx. *events is set for an event stream. LS_OK,
 * LS_ELIMIT or LS_ENOMEM. */
int ls_proxy_take_response(ls_thread_ctx *ctx, ls_exchange *x, const char *bytes, const ls_http_response *head,
                           const ls_proxy_place *place, bool *events);

/* Whether a field of that name concerns one connection only, whatever Connection says. */
bool ls_proxy_is_hop(const char *name, size_t len);

/* Whether the first `own` bytes of the fields of the response have a field of that name: what was there before stays,
 * in place of a field of the server, but Set-Cookie and Vary, to which those are added. */
bool ls_proxy_is_own(const ls_exchange *x, uint32_t own, const char *name, size_t len);

/* The value of the first field of that name in a head; false: it has no such field. */
bool ls_proxy_response_field(const char *bytes, const ls_http_response *head, const char *name, ls_text *value);

#endif
