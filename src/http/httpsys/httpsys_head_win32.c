/* httpsys_head_win32.c - see httpsys_head_win32.h.
 *
 * http.sys has parsed and checked the head; this file converts it to an ls_http_head, which checks it again. The
 * numbers of methods and fields are HTTP_VERB and HTTP_HEADER_ID of http.h. */
#include "http/httpsys/httpsys_head_win32.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "codec/http_head_check.h"
#include "codec/http_text.h"

typedef struct name {
    const char *text;
    uint8_t len;
} name;

#define NAME(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

/* Indexed by HTTP_HEADER_ID: 0 to 19 are common to requests and responses. */
static const name general[] = {
    NAME("Cache-Control"),
    NAME("Connection"),
    NAME("Date"),
    NAME("Keep-Alive"),
    NAME("Pragma"),
    NAME("Trailer"),
    NAME("Transfer-Encoding"),
    NAME("Upgrade"),
    NAME("Via"),
    NAME("Warning"),
    NAME("Allow"),
    NAME("Content-Length"),
    NAME("Content-Type"),
    NAME("Content-Encoding"),
    NAME("Content-Language"),
    NAME("Content-Location"),
    NAME("Content-MD5"),
    NAME("Content-Range"),
    NAME("Expires"),
    NAME("Last-Modified"),
};
static const name of_requests[] = {
    NAME("Accept"),
    NAME("Accept-Charset"),
    NAME("Accept-Encoding"),
    NAME("Accept-Language"),
    NAME("Authorization"),
    NAME("Cookie"),
    NAME("Expect"),
    NAME("From"),
    NAME("Host"),
    NAME("If-Match"),
    NAME("If-Modified-Since"),
    NAME("If-None-Match"),
    NAME("If-Range"),
    NAME("If-Unmodified-Since"),
    NAME("Max-Forwards"),
    NAME("Proxy-Authorization"),
    NAME("Referer"),
    NAME("Range"),
    NAME("TE"),
    NAME("Translate"),
    NAME("User-Agent"),
};
static const name of_responses[] = {
    NAME("Accept-Ranges"), NAME("Age"),    NAME("ETag"),       NAME("Location"), NAME("Proxy-Authenticate"),
    NAME("Retry-After"),   NAME("Server"), NAME("Set-Cookie"), NAME("Vary"),     NAME("WWW-Authenticate"),
};
#define GENERAL (sizeof general / sizeof general[0])
_Static_assert(GENERAL == HttpHeaderAcceptRanges && GENERAL == HttpHeaderAccept, "the table matches http.h");
_Static_assert(GENERAL + sizeof of_requests / sizeof of_requests[0] == HttpHeaderRequestMaximum,
               "the table matches http.h");
_Static_assert(GENERAL + sizeof of_responses / sizeof of_responses[0] == HttpHeaderResponseMaximum,
               "the table matches http.h");

/* Indexed by HTTP_VERB. */
static const name verbs[] = {
    NAME(""),         NAME(""),          NAME(""),      NAME("OPTIONS"), NAME("GET"),    NAME("HEAD"),   NAME("POST"),
    NAME("PUT"),      NAME("DELETE"),    NAME("TRACE"), NAME("CONNECT"), NAME("TRACK"),  NAME("MOVE"),   NAME("COPY"),
    NAME("PROPFIND"), NAME("PROPPATCH"), NAME("MKCOL"), NAME("LOCK"),    NAME("UNLOCK"), NAME("SEARCH"),
};
_Static_assert(sizeof verbs / sizeof verbs[0] == HttpVerbMaximum, "the table matches http.h");

/* The base address of spans, and the free memory for names. */
typedef struct places {
    const char *base;
    char *names;
} places;

static ls_span span_of(const places *at, const char *text, size_t len)
{
    return len == 0 ? (ls_span){0, 0} : (ls_span){(uint32_t)(text - at->base), (uint32_t)len};
}

static ls_span name_of(places *at, const name *given)
{
    char *const to = at->names;
    memcpy(to, given->text, given->len);
    at->names += given->len;
    return span_of(at, to, given->len);
}

static int send_error(int status, const char *text, const char **why)
{
    *why = text;
    return -status;
}

int ls_httpsys_read_head(const HTTP_REQUEST *request, char *names, const ls_http_limits *limits, ls_http_head *out,
                         bool *keep_alive, const char **why)
{
    places at = {(const char *)request, names};
    const HTTP_KNOWN_HEADER *known = request->Headers.KnownHeaders;
    uint32_t count = 0;
    enum { LINE = sizeof "  HTTP/1.1\r\n" - 1, FIELD = sizeof ": \r\n" - 1 };
    size_t bytes = request->RawUrlLength + LINE + 2;

    out->method_name = request->Verb == HttpVerbUnknown
                           ? span_of(&at, request->pUnknownVerb, request->UnknownVerbLength)
                       : request->Verb < HttpVerbMaximum ? name_of(&at, &verbs[request->Verb])
                                                         : (ls_span){0, 0};
    out->target = span_of(&at, request->pRawUrl, request->RawUrlLength);
    bytes += out->method_name.len;
    out->version = request->Version.MajorVersion > 1 || request->Version.MinorVersion > 0 ? 11 : 10;
    if (request->RawUrlLength > limits->target_bytes_max) return send_error(414, "request target too long", why);

    for (unsigned id = 0; id < HttpHeaderRequestMaximum; id++) {
        if (known[id].pRawValue == NULL) continue;
        if (count == limits->fields_max) return send_error(431, "too many fields", why);
        const name *field = id < GENERAL ? &general[id] : &of_requests[id - GENERAL];
        bytes += (size_t)field->len + known[id].RawValueLength + FIELD;
        out->fields[count++] =
            (ls_http_field){name_of(&at, field), span_of(&at, known[id].pRawValue, known[id].RawValueLength)};
    }
    for (unsigned i = 0; i < request->Headers.UnknownHeaderCount; i++) {
        const HTTP_UNKNOWN_HEADER *field = &request->Headers.pUnknownHeaders[i];
        if (count == limits->fields_max) return send_error(431, "too many fields", why);
        bytes += (size_t)field->NameLength + field->RawValueLength + FIELD;
        out->fields[count++] = (ls_http_field){span_of(&at, field->pName, field->NameLength),
                                               span_of(&at, field->pRawValue, field->RawValueLength)};
    }
    if (bytes > limits->head_bytes_max) return send_error(431, "request head too large", why);
    out->field_count = count;
    ls_http_terms terms;
    const int result = ls_http_head_complete(out, at.base, &terms, why);
    if (result == 0) *keep_alive = terms.keep_alive;
    return result;
}

/* ---- responses ---------------------------------------------------------------------------------------------- */

static int number_of(const char *text, size_t len)
{
    for (unsigned i = 0; i < HttpHeaderResponseMaximum; i++) {
        const name *one = i < GENERAL ? &general[i] : &of_responses[i - GENERAL];
        if (ls_text_same(text, len, one->text, one->len)) return (int)i;
    }
    return -1;
}

unsigned ls_httpsys_fields(const ls_exchange *x, HTTP_RESPONSE_HEADERS *to, HTTP_UNKNOWN_HEADER *unknown)
{
    /* All fields lie in one block, so the USHORT of a length does not truncate. */
    static_assert(LS_BLOCK_LARGE - (sizeof "X: \r\n" - 1) <= USHRT_MAX, "the length of a value");
    ls_pair field;
    unsigned count = 0;
    for (size_t at = 0; ls_exchange_next_field(x, &at, &field);) {
        const int id = number_of(field.name, field.name_len);
        if (id >= 0 && to->KnownHeaders[id].pRawValue == NULL)
            to->KnownHeaders[id] = (HTTP_KNOWN_HEADER){(USHORT)field.value_len, field.value};
        else
            unknown[count++] =
                (HTTP_UNKNOWN_HEADER){(USHORT)field.name_len, (USHORT)field.value_len, field.name, field.value};
    }
    to->UnknownHeaderCount = (USHORT)count;
    to->pUnknownHeaders = count > 0 ? unknown : NULL;
    return count;
}
