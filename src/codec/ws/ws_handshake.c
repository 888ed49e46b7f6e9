/* ws_handshake.c - see ws_handshake.h. */
#include "codec/ws/ws_handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/crypto/digest.h"
#include "base/crypto/random.h"
#include "base/err.h"
#include "codec/base64.h"
#include "codec/http_chars.h"
#include "codec/http_text.h"

enum { KEY_BYTES = 16 };

#define SAME(text, len, literal) ls_text_same(text, len, literal, sizeof(literal) - 1)

/* ---- the key (sections 4.1 and 4.2.2) --------------------------------------------------------------------------- */

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Whether it is base64 of 16 bytes. Bits of the last digit that say nothing may be set: RFC 6455 itself shows such a
 * key in section 4.1. */
static bool is_key(const char *key, size_t len)
{
    if (len != LS_WS_KEY_CHARS || key[22] != '=' || key[23] != '=') return false;
    for (size_t i = 0; i < 22; i++) {
        if (key[i] == '\0' || strchr(base64_digits, key[i]) == NULL) return false;
    }
    return true;
}

/* The value of Sec-WebSocket-Accept for a key of LS_WS_KEY_CHARS, with a NUL; or the error of ls_sha1. */
static int accept_write(const char *key, char out[LS_WS_ACCEPT_CHARS + 1])
{
    static const char suffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* section 1.3 */
    char text[LS_WS_KEY_CHARS + sizeof suffix - 1];
    uint8_t digest[LS_SHA1_BYTES];
    memcpy(text, key, LS_WS_KEY_CHARS);
    memcpy(text + LS_WS_KEY_CHARS, suffix, sizeof suffix - 1);
    const int err = ls_sha1(text, sizeof text, digest);
    if (err == LS_OK) out[ls_base64_write(digest, sizeof digest, false, out)] = '\0';
    return err;
}

void ls_ws_key(char out[LS_WS_KEY_CHARS + 1])
{
    uint8_t bytes[KEY_BYTES];
    ls_random(bytes, sizeof bytes);
    out[ls_base64_write(bytes, sizeof bytes, false, out)] = '\0';
}

/* ---- origins (RFC 6454) ----------------------------------------------------------------------------------------- */

typedef struct origin {
    const char *scheme, *host;
    size_t scheme_len, host_len;
    unsigned port; /* 0: unknown, the scheme has no default */
} origin;

/* Split "host[:port]"; an IPv6 address keeps its brackets. Without a port it is `port`. */
static bool authority_parse(const char *text, size_t len, unsigned port, origin *out)
{
    const char *const bracket = len > 0 && *text == '[' ? memchr(text, ']', len) : NULL;
    size_t host_len = bracket != NULL ? (size_t)(bracket + 1 - text) : 0;
    while (host_len < len && text[host_len] != ':' && (bracket == NULL || text[host_len - 1] != ']')) {
        if (!ls_char_is(text[host_len], LS_CHAR_HOST)) return false;
        host_len++;
    }
    if (host_len == 0) return false;
    if (host_len < len) {
        unsigned number = 0;
        if (text[host_len] != ':') return false;
        for (size_t i = host_len + 1; i < len; i++) {
            if (!ls_char_digit(text[i]) || (number = number * 10 + (unsigned)(text[i] - '0')) > 65535) return false;
        }
        if (host_len + 1 < len) port = number; /* "host:" is "host" (RFC 3986 section 3.2.3) */
    }
    out->host = text;
    out->host_len = host_len;
    out->port = port;
    return true;
}

static unsigned default_port(const char *scheme, size_t len)
{
    if (SAME(scheme, len, "http") || SAME(scheme, len, "ws")) return 80;
    return SAME(scheme, len, "https") || SAME(scheme, len, "wss") ? 443 : 0;
}

static bool origin_parse(const char *text, size_t len, origin *out)
{
    size_t scheme_len = 0;
    while (scheme_len < len && text[scheme_len] != ':') {
        const char c = text[scheme_len++];
        if (!ls_char_is(c, LS_CHAR_TOKEN)) return false;
    }
    if (scheme_len == 0 || len - scheme_len < 3 || memcmp(text + scheme_len, "://", 3) != 0) return false;
    out->scheme = text;
    out->scheme_len = scheme_len;
    return authority_parse(text + scheme_len + 3, len - scheme_len - 3, default_port(text, scheme_len), out);
}

static bool same_place(const origin *a, const origin *b)
{
    return a->port == b->port && ls_text_same(a->host, a->host_len, b->host, b->host_len);
}

bool ls_ws_origin_valid(const char *text, size_t len)
{
    origin parsed;
    return SAME(text, len, "null") || origin_parse(text, len, &parsed);
}

/* Whether the list contains the origin. "null" is equal to "null" only. */
static bool is_listed(const ls_ws_names *origins, const char *text, size_t len)
{
    origin asked, allowed;
    const bool valid = origin_parse(text, len, &asked);
    for (unsigned i = 0; i < origins->count; i++) {
        const char *const name = origins->names[i];
        const size_t name_len = strlen(name);
        if (ls_text_same(text, len, name, name_len)) return true;
        if (valid && origin_parse(name, name_len, &allowed) && same_place(&asked, &allowed) &&
            ls_text_same(asked.scheme, asked.scheme_len, allowed.scheme, allowed.scheme_len))
            return true;
    }
    return false;
}

static bool is_same_origin(bool secure, const char *host, const char *text, size_t len)
{
    origin asked, own;
    if (!origin_parse(text, len, &asked)) return false;
    const bool https = SAME(asked.scheme, asked.scheme_len, "https");
    if (!https && (secure || !SAME(asked.scheme, asked.scheme_len, "http"))) return false;
    return authority_parse(host, strlen(host), https ? 443 : 80, &own) && same_place(&asked, &own);
}

/* ---- the server ------------------------------------------------------------------------------------------------- */

static int refuse(ls_ws_handshake *out, int status, const char *why)
{
    out->why = why;
    return status;
}

static int refuse_upgrade(ls_ws_handshake *out, const char *why)
{
    /* RFC 9110 sections 7.8 and 15.5.22, RFC 6455 section 4.4 */
    out->fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    return refuse(out, 426, why);
}

/* The only field with this name; NULL: no field, or more than one: *repeated. */
static const ls_http_field *field_single(const ls_http_head *head, const char *bytes, const char *name, bool *repeated)
{
    uint32_t at = 0;
    const size_t len = strlen(name);
    const ls_http_field *const field = ls_http_head_next(head, bytes, name, len, &at);
    *repeated = field != NULL && ls_http_head_next(head, bytes, name, len, &at) != NULL;
    return *repeated ? NULL : field;
}

/* The index of the name, or -1; subprotocols are compared with case. */
static int name_index(const ls_ws_names *names, const char *text, size_t len)
{
    for (unsigned i = 0; i < names->count; i++) {
        if (strlen(names->names[i]) == len && memcmp(names->names[i], text, len) == 0) return (int)i;
    }
    return -1;
}

/* Choose the subprotocol. False: an element of the list is no token. */
static bool choose_protocol(const ls_http_head *head, const char *bytes, const ls_ws_names *supported,
                            ls_ws_handshake *out)
{
    const ls_http_field *field;
    for (uint32_t n = 0; (field = ls_http_head_next(head, bytes, "sec-websocket-protocol", 22, &n)) != NULL;) {
        const char *at = bytes + field->value.at, *const end = at + field->value.len, *from, *to;
        while (ls_list_next(&at, end, &from, &to)) {
            const size_t len = (size_t)(to - from);
            if (len == 0) continue; /* RFC 9110 section 5.6.1.2 */
            if (!ls_is_token(from, len)) return false;
            if (out->protocol == NULL && name_index(supported, from, len) >= 0) {
                out->protocol = from;
                out->protocol_len = len;
            }
        }
    }
    return true;
}

static int check_origin(const ls_http_head *head, const char *bytes, bool secure, const char *host,
                        const ls_ws_policy *policy, ls_ws_handshake *out)
{
    bool repeated;
    const ls_http_field *const field = field_single(head, bytes, "origin", &repeated);
    if (repeated) return refuse(out, 400, "more than one Origin");
    if (field == NULL || policy->any_origin) return 101;
    const char *const text = bytes + field->value.at;
    if (policy->origins.count > 0)
        return is_listed(&policy->origins, text, field->value.len)
                   ? 101
                   : refuse(out, 403, "the Origin is not in the list of allowed origins");
    return is_same_origin(secure, host, text, field->value.len)
               ? 101
               : refuse(out, 403, "the Origin is not that of this server; the option origins allows further ones");
}

int ls_ws_handshake_check(const ls_http_head *head, const char *bytes, bool secure, const char *host,
                          const ls_ws_policy *policy, ls_ws_handshake *out)
{
    bool repeated;
    *out = (ls_ws_handshake){.why = "", .fields = ""};
    if (head->method != LS_HTTP_GET) {
        out->fields = "Allow: GET\r\n";
        return refuse(out, 405, "a WebSocket handshake is a GET request");
    }
    if (head->version < 11) return refuse(out, 400, "a WebSocket handshake needs HTTP/1.1");
    if (!ls_http_head_lists(head, bytes, "upgrade", 7, "websocket", 9))
        return refuse_upgrade(out, "this address serves WebSocket: the field \"Upgrade: websocket\" is missing");
    if (!head->upgrade) return refuse(out, 400, "the field \"Connection: upgrade\" is missing");
    if (head->has_body) return refuse(out, 400, "a WebSocket handshake has no body");

    const ls_http_field *field = field_single(head, bytes, "sec-websocket-version", &repeated);
    if (repeated) return refuse(out, 400, "more than one Sec-WebSocket-Version");
    if (field == NULL) return refuse_upgrade(out, "Sec-WebSocket-Version is missing; the version is 13");
    if (field->value.len != 2 || memcmp(bytes + field->value.at, "13", 2) != 0)
        return refuse_upgrade(out, "unsupported Sec-WebSocket-Version; the version is 13");

    field = field_single(head, bytes, "sec-websocket-key", &repeated);
    if (repeated) return refuse(out, 400, "more than one Sec-WebSocket-Key");
    if (field == NULL) return refuse(out, 400, "Sec-WebSocket-Key is missing");
    if (!is_key(bytes + field->value.at, field->value.len))
        return refuse(out, 400, "Sec-WebSocket-Key is not the base64 of 16 bytes");
    if (!choose_protocol(head, bytes, &policy->protocols, out))
        return refuse(out, 400, "Sec-WebSocket-Protocol is not a list of tokens");

    const int status = check_origin(head, bytes, secure, host, policy, out);
    if (status == 101 && accept_write(bytes + field->value.at, out->accept) < 0)
        return refuse(out, 501, "this luaserve has no SHA-1, which WebSocket needs: it was built without OpenSSL");
    return status;
}

/* ---- the client ------------------------------------------------------------------------------------------------- */

typedef struct writer {
    char *out;
    size_t room, len;
} writer;

static void put(writer *w, const char *text)
{
    const size_t len = strlen(text);
    if (w->len < w->room) memcpy(w->out + w->len, text, len < w->room - w->len ? len : w->room - w->len);
    w->len += len;
}

size_t ls_ws_request_write(const ls_ws_request *r, char *out, size_t room)
{
    writer w = {out, room, 0};
    put(&w, "GET ");
    put(&w, r->target);
    put(&w, " HTTP/1.1\r\nHost: ");
    put(&w, r->host);
    put(&w, "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ");
    put(&w, r->key);
    for (unsigned i = 0; i < r->protocols.count; i++) {
        put(&w, i == 0 ? "\r\nSec-WebSocket-Protocol: " : ", ");
        put(&w, r->protocols.names[i]);
    }
    if (r->deflate != NULL) {
        char offer[LS_WS_DEFLATE_TEXT_MAX + 1];
        offer[ls_ws_deflate_offer(r->deflate, offer)] = '\0';
        put(&w, "\r\nSec-WebSocket-Extensions: ");
        put(&w, offer);
    }
    put(&w, "\r\n");
    if (r->fields != NULL) put(&w, r->fields);
    put(&w, "\r\n");
    if (room > 0) out[w.len < room ? w.len : room - 1] = '\0';
    return w.len;
}

/* The fields of the response that the handshake concerns; a name is NULL: no such field. */
typedef struct answer {
    ls_pair accept, protocol, extensions;
    bool upgrade, connection;
} answer;

/* Keep a field that must be there once; false: again. */
static bool keep_single(ls_pair *to, const ls_pair *field)
{
    if (to->name != NULL) return false;
    *to = *field;
    return true;
}

static const char *answer_read(const char *bytes, const ls_http_response *head, answer *out)
{
    ls_pair field;
    for (size_t at = 0; ls_http1_response_field(bytes, head, &at, &field);) {
        if (SAME(field.name, field.name_len, "upgrade")) {
            if (!SAME(field.value, field.value_len, "websocket")) return "Upgrade is not \"websocket\"";
            out->upgrade = true;
        } else if (SAME(field.name, field.name_len, "connection")) {
            out->connection |= ls_list_has(field.value, field.value_len, "upgrade", 7);
        } else if (SAME(field.name, field.name_len, "sec-websocket-accept")) {
            if (!keep_single(&out->accept, &field)) return "more than one Sec-WebSocket-Accept";
        } else if (SAME(field.name, field.name_len, "sec-websocket-protocol")) {
            if (!keep_single(&out->protocol, &field)) return "more than one Sec-WebSocket-Protocol";
        } else if (SAME(field.name, field.name_len, "sec-websocket-extensions")) {
            if (!keep_single(&out->extensions, &field)) return "more than one Sec-WebSocket-Extensions";
        }
    }
    if (!out->upgrade) return "the field \"Upgrade: websocket\" is missing";
    if (!out->connection) return "the field \"Connection: upgrade\" is missing";
    return NULL;
}

/* Negotiate what a response 101 has chosen. LS_OK; LS_EPROTO: *why receives what is wrong; or the error of ls_sha1. */
static int answer_check(const answer *a, const ls_ws_request *request, ls_ws_response *out, const char **why)
{
    char accept[LS_WS_ACCEPT_CHARS + 1];
    const bool chosen = a->protocol.name != NULL;
    int err = accept_write(request->key, accept);
    if (err < 0) return err;
    *out = (ls_ws_response){
        .protocol = chosen ? name_index(&request->protocols, a->protocol.value, a->protocol.value_len) : -1};
    if (a->accept.name == NULL)
        *why = "Sec-WebSocket-Accept is missing";
    else if (a->accept.value_len != LS_WS_ACCEPT_CHARS || memcmp(a->accept.value, accept, LS_WS_ACCEPT_CHARS) != 0)
        *why = "Sec-WebSocket-Accept does not match the key";
    else if (chosen && out->protocol < 0)
        *why = "the server chose a subprotocol that the request did not offer";
    else if (a->extensions.name != NULL && request->deflate == NULL)
        *why = "the server chose an extension that the request did not offer";
    if (*why != NULL) return LS_EPROTO;
    if (a->extensions.name == NULL) return LS_OK;
    err = ls_ws_deflate_check(a->extensions.value, a->extensions.value_len, request->deflate, &out->deflate, why);
    out->deflated = err == LS_OK;
    return err == LS_ENOENT ? LS_OK : err;
}

/* Another status than 101: "the server answered 403 Forbidden", with the printable beginning of the phrase. */
static void refusal_write(const ls_http_response *head, const char *bytes, char why[LS_WS_WHY_BYTES])
{
    const char *phrase = bytes + sizeof "HTTP/1.1 200" - 1;
    int len = 0;
    if (*phrase == ' ') phrase++;
    while (len < LS_WS_PHRASE_BYTES_MAX && phrase[len] >= ' ' && phrase[len] < 0x7f) len++; /* at most to the CR */
    (void)snprintf(why, LS_WS_WHY_BYTES, "the server answered %u%s%.*s", head->status, len > 0 ? " " : "", len,
                   phrase);
}

int ls_ws_response_check(const ls_http_response *head, const char *bytes, const ls_ws_request *request,
                         ls_ws_response *out, char why[LS_WS_WHY_BYTES])
{
    answer a = {.upgrade = false};
    if (head->status != 101) {
        refusal_write(head, bytes, why);
        return LS_EREFUSED;
    }
    const char *wrong = answer_read(bytes, head, &a);
    const int err = wrong != NULL ? LS_EPROTO : answer_check(&a, request, out, &wrong);
    (void)snprintf(why, LS_WS_WHY_BYTES, "%s", wrong != NULL ? wrong : "");
    return err;
}
