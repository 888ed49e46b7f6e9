/* ws_deflate.c - see ws_deflate.h: the negotiation of permessage-deflate. */
#include "codec/ws/ws_deflate.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "codec/http_chars.h"

enum { WINDOW_BITS_MIN = 8, VALUE_BYTES_MAX = 2 }; /* RFC 7692 section 7.1.2: 8 to 15, without leading zeros */

static const char extension_name[] = "permessage-deflate";

/* ---- the grammar of Sec-WebSocket-Extensions (RFC 6455 section 9.1) ------------------------------------------- */

typedef struct scan {
    const char *at, *end;
} scan;

typedef struct token {
    const char *ptr;
    size_t len;
} token;

typedef struct param {
    token name;
    bool has_value;
    size_t len; /* of the value; a longer one is not complete in `value` */
    char value[VALUE_BYTES_MAX];
} param;

static void skip_blanks(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t')) s->at++;
}

static bool skip_char(scan *s, char wanted)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != wanted) return false;
    s->at++;
    return true;
}

static bool read_token(scan *s, token *out)
{
    skip_blanks(s);
    out->ptr = s->at;
    while (s->at < s->end && ls_char_is(*s->at, LS_CHAR_TOKEN)) s->at++;
    out->len = (size_t)(s->at - out->ptr);
    return out->len > 0;
}

static bool token_is(const token *t, const char *text)
{
    return t->len == strlen(text) && memcmp(t->ptr, text, t->len) == 0;
}

/* One character of a value. False: not one of a token, which also a quoted value must be. */
static bool value_add(param *p, char c)
{
    if (!ls_char_is(c, LS_CHAR_TOKEN)) return false;
    if (p->len < VALUE_BYTES_MAX) p->value[p->len] = c;
    p->len++;
    return true;
}

static bool read_quoted(scan *s, param *p)
{
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++) {
        if (*s->at == '\\' && ++s->at == s->end) return false;
        if (!value_add(p, *s->at)) return false;
    }
    return s->at < s->end && *s->at++ == '"' && p->len > 0;
}

/* The next ";" and its parameter: 1, 0: none, or LS_EPROTO. */
static int next_param(scan *s, param *out)
{
    token value;
    memset(out, 0, sizeof *out);
    if (!skip_char(s, ';')) return 0;
    if (!read_token(s, &out->name)) return LS_EPROTO;
    if (!skip_char(s, '=')) return 1;
    out->has_value = true;
    skip_blanks(s);
    if (s->at < s->end && *s->at == '"') return read_quoted(s, out) ? 1 : LS_EPROTO;
    if (!read_token(s, &value)) return LS_EPROTO;
    for (size_t i = 0; i < value.len; i++) (void)value_add(out, value.ptr[i]);
    return 1;
}

/* The name of the next element of the list; empty elements are skipped. 1, 0: the end, or LS_EPROTO. */
static int next_extension(scan *s, token *name)
{
    while (skip_char(s, ',')) {}
    if (s->at == s->end) return 0;
    return read_token(s, name) ? 1 : LS_EPROTO;
}

/* After the parameters: a comma or the end. */
static bool element_ends(scan *s)
{
    skip_blanks(s);
    return s->at == s->end || *s->at == ',';
}

/* ---- the parameters (RFC 7692 section 7.1) --------------------------------------------------------------------- */

enum { NOT_PRESENT = 0, NO_VALUE = 1 }; /* of client_max_window_bits; else 8 to 15 */

typedef struct element { /* of the list, with the name permessage-deflate */
    bool server_no_takeover, client_no_takeover;
    uint8_t server_bits, client_bits; /* NOT_PRESENT, NO_VALUE or the value */
    bool valid;                       /* no parameter is unknown, repeated or has an invalid value */
} element;

static bool read_bits(const param *p, uint8_t *out)
{
    unsigned bits;
    if (p->len == 1)
        bits = (unsigned)(p->value[0] - '0');
    else if (p->len == 2 && p->value[0] == '1' && ls_char_digit(p->value[1]))
        bits = 10 + (unsigned)(p->value[1] - '0');
    else
        return false;
    if (bits < WINDOW_BITS_MIN || bits > LS_WS_DEFLATE_BITS_MAX) return false;
    *out = (uint8_t)bits;
    return true;
}

static bool flag_apply(const param *p, bool *flag)
{
    if (*flag || p->has_value) return false;
    *flag = true;
    return true;
}

static bool param_apply(element *e, const param *p)
{
    if (token_is(&p->name, "server_no_context_takeover")) return flag_apply(p, &e->server_no_takeover);
    if (token_is(&p->name, "client_no_context_takeover")) return flag_apply(p, &e->client_no_takeover);
    if (token_is(&p->name, "server_max_window_bits"))
        return e->server_bits == NOT_PRESENT && read_bits(p, &e->server_bits);
    if (!token_is(&p->name, "client_max_window_bits") || e->client_bits != NOT_PRESENT) return false;
    if (p->has_value) return read_bits(p, &e->client_bits);
    e->client_bits = NO_VALUE;
    return true;
}

/* The next element: 1, 0: the end, or LS_EPROTO. *ours: it is permessage-deflate. */
static int next_element(scan *s, element *out, bool *ours)
{
    token name;
    param p;
    int found = next_extension(s, &name);
    if (found <= 0) return found;
    *ours = token_is(&name, extension_name);
    *out = (element){.valid = true};
    while ((found = next_param(s, &p)) > 0) {
        if (*ours && out->valid) out->valid = param_apply(out, &p);
    }
    if (found < 0) return found;
    return element_ends(s) ? 1 : LS_EPROTO;
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static uint8_t bits_or_most(uint8_t bits)
{
    return bits <= NO_VALUE ? LS_WS_DEFLATE_BITS_MAX : bits;
}

/* ---- both sides ------------------------------------------------------------------------------------------------ */

/* The extension with its parameters; bits 0: not written, NO_VALUE: without a value. */
static size_t write_element(bool server_no_takeover, bool client_no_takeover, uint8_t server_bits, uint8_t client_bits,
                            char text[LS_WS_DEFLATE_TEXT_MAX])
{
    char server[40] = "", client[40] = "";
    if (server_bits != NOT_PRESENT) (void)snprintf(server, sizeof server, "; server_max_window_bits=%u", server_bits);
    if (client_bits == NO_VALUE) (void)snprintf(client, sizeof client, "; client_max_window_bits");
    if (client_bits > NO_VALUE) (void)snprintf(client, sizeof client, "; client_max_window_bits=%u", client_bits);
    return (size_t)snprintf(text, LS_WS_DEFLATE_TEXT_MAX, "%s%s%s%s%s", extension_name,
                            server_no_takeover ? "; server_no_context_takeover" : "",
                            client_no_takeover ? "; client_no_context_takeover" : "", server, client);
}

static size_t answer(const element *offer, const ls_ws_deflate_options *options, ls_ws_deflate_params *out, char *text)
{
    out->server_takeover = options->takeover && !offer->server_no_takeover;
    out->client_takeover = options->takeover && !offer->client_no_takeover;
    out->server_bits = smaller(options->server_bits, bits_or_most(offer->server_bits));
    out->client_bits = offer->client_bits == NOT_PRESENT /* the client does not know the parameter */
                           ? LS_WS_DEFLATE_BITS_MAX
                           : smaller(options->client_bits, bits_or_most(offer->client_bits));
    const bool says_server = offer->server_bits != NOT_PRESENT || out->server_bits < LS_WS_DEFLATE_BITS_MAX;
    const bool says_client = out->client_bits < LS_WS_DEFLATE_BITS_MAX;
    return write_element(!out->server_takeover, !out->client_takeover, says_server ? out->server_bits : NOT_PRESENT,
                         says_client ? out->client_bits : NOT_PRESENT, text);
}

int ls_ws_deflate_accept(const char *offers, size_t offers_len, const ls_ws_deflate_options *options,
                         ls_ws_deflate_params *out, char text[LS_WS_DEFLATE_TEXT_MAX], size_t *len)
{
    scan s = {offers, offers + offers_len};
    element offer, chosen = {.valid = false};
    bool ours;
    int found;
    while ((found = next_element(&s, &offer, &ours)) > 0) {
        if (!ours || !offer.valid || chosen.valid) continue;
        if (offer.server_bits != NOT_PRESENT && offer.server_bits < LS_WS_DEFLATE_BITS_MIN) continue;
        chosen = offer;
    }
    if (found < 0) return found; /* also after an acceptable offer */
    if (!chosen.valid) return LS_ENOENT;
    *len = answer(&chosen, options, out, text);
    return LS_OK;
}

size_t ls_ws_deflate_offer(const ls_ws_deflate_options *options, char text[LS_WS_DEFLATE_TEXT_MAX])
{
    const bool server = options->server_bits < LS_WS_DEFLATE_BITS_MAX;
    const bool client = options->client_bits < LS_WS_DEFLATE_BITS_MAX;
    return write_element(!options->takeover, !options->takeover, server ? options->server_bits : NOT_PRESENT,
                         client ? options->client_bits : NO_VALUE, text);
}

int ls_ws_deflate_check(const char *response, size_t len, const ls_ws_deflate_options *options,
                        ls_ws_deflate_params *out, const char **why)
{
    scan s = {response, response + len};
    element got, next;
    bool ours = false;
    int found = next_element(&s, &got, &ours);
    if (found == 0) return LS_ENOENT;
    if (found > 0 && ours) found = next_element(&s, &next, &ours) == 0 ? 1 : LS_EPROTO; /* one only */
    *why = NULL;
    if (found < 0 || !ours)
        *why = "the server chose an extension that was not offered, or wrote an invalid list of extensions";
    else if (!got.valid || got.client_bits == NO_VALUE)
        *why = "the server answered permessage-deflate with an invalid parameter";
    else if (!options->takeover && !got.server_no_takeover)
        *why = "the server ignored server_no_context_takeover in the offer of permessage-deflate";
    else if (bits_or_most(got.server_bits) > options->server_bits)
        *why = "the server ignored server_max_window_bits in the offer of permessage-deflate";
    else if (bits_or_most(got.client_bits) > options->client_bits && got.client_bits != NOT_PRESENT)
        *why = "the server answered permessage-deflate with a larger client_max_window_bits than was offered";
    if (*why != NULL) return LS_EPROTO;
    out->server_takeover = !got.server_no_takeover;
    out->client_takeover = options->takeover && !got.client_no_takeover;
    out->server_bits = bits_or_most(got.server_bits);
    out->client_bits = smaller(options->client_bits, bits_or_most(got.client_bits));
    return LS_OK;
}

int ls_ws_deflate_negotiate(ls_ws_deflate_store *store, const char *offers, size_t offers_len,
                            const ls_ws_deflate_options *options, ls_ws_deflate *out,
                            char text[LS_WS_DEFLATE_TEXT_MAX], size_t *len)
{
    ls_ws_deflate_options wanted = *options;
    ls_ws_deflate_params params;
    int err = ls_ws_deflate_accept(offers, offers_len, &wanted, &params, text, len);
    if (err < 0) return err;
    if (store == NULL) return LS_ENOENT;
    err = ls_ws_deflate_begin(store, &params, wanted.bytes_min, false, out);
    if (err != LS_ELIMIT) return err;
    wanted.takeover = false;
    err = ls_ws_deflate_accept(offers, offers_len, &wanted, &params, text, len);
    return err < 0 ? err : ls_ws_deflate_begin(store, &params, wanted.bytes_min, false, out);
}
