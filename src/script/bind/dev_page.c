/* dev_page.c - see dev_page.h.
 *
 * An exchange of dev mode has a transport of its own, which differs from that of HTTP/1.1 in `respond`. So a server
 * without dev mode runs none of this. Responses in parts are not whole texts, and remain as they are; so do those with
 * a validator, such as files: the browser could keep the page with the number of an old version, and would reload it
 * for ever. */
#include "script/bind/dev_page.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"
#include "proto/http_text.h"
#include "script/bind/http_task.h"
#include "script/bind/request.h"
#include "script/core/dev.h"

enum { SCRIPT_BYTES = 512, NONCE_BYTES_MAX = 256, SLICES_FEW = 8 };

static bool begins(const char *text, size_t len, const char *with)
{
    const size_t n = strlen(with);
    return len >= n && ls_text_same(text, n, with, n);
}

static size_t last_of(const char *text, size_t len, const char *tag)
{
    const size_t n = strlen(tag);
    for (size_t at = len; at-- > 0;)
        if (text[at] == '<' && begins(text + at, len - at, tag) && len - at >= n) return at;
    return SIZE_MAX;
}

size_t ls_dev_page_place(const char *text, size_t len, bool document)
{
    size_t at = last_of(text, len, "</body");
    if (at == SIZE_MAX) at = last_of(text, len, "</html");
    if (at != SIZE_MAX) return at;
    size_t from = 0;
    while (from < len && memchr(" \t\r\n", text[from], 4) != NULL) from++;
    if (document || begins(text + from, len - from, "<!doctype html") || begins(text + from, len - from, "<html"))
        return len;
    return SIZE_MAX;
}

const char *ls_dev_page_nonce(const char *policy, size_t len, size_t *nonce_len)
{
    static const char mark[] = "'nonce-";
    for (size_t at = 0; at + sizeof mark - 1 < len; at++) {
        if (!begins(policy + at, len - at, mark)) continue;
        const char *nonce = policy + at + sizeof mark - 1;
        const char *end = memchr(nonce, '\'', len - at - (sizeof mark - 1));
        if (end == NULL || end == nonce) return NULL;
        for (const char *c = nonce; c < end; c++)
            if (strchr("\"<>&", *c) != NULL) return NULL; /* no base64: it would end the attribute */
        *nonce_len = (size_t)(end - nonce);
        return nonce;
    }
    return NULL;
}

static bool is_html(const ls_exchange *x)
{
    size_t len;
    const char *type = x->has_type ? ls_exchange_find(x, "Content-Type", 12, &len) : x->type;
    if (type != NULL && !x->has_type) len = strlen(type);
    return type != NULL && begins(type, len, "text/html");
}

/* Browsers say what a response is for: a document, or something that a script of a page loads. true: a document. */
static bool is_document(const ls_exchange *x, bool *known)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "sec-fetch-dest", 14);
    *known = field != NULL;
    if (field == NULL) return false;
    const char *value = x->bytes + field->value.at;
    return ls_text_same(value, field->value.len, "document", 8) || ls_text_same(value, field->value.len, "iframe", 6);
}

static int script_of(const ls_exchange *x, const ls_dev *dev, char script[SCRIPT_BYTES])
{
    size_t policy_len, nonce_len = 0;
    const char *nonce = NULL;
    const char *policy = ls_exchange_find(x, "Content-Security-Policy", 23, &policy_len);
    if (policy != NULL) nonce = ls_dev_page_nonce(policy, policy_len, &nonce_len);
    if (nonce_len > NONCE_BYTES_MAX) nonce_len = 0;
    return snprintf(script, SCRIPT_BYTES, "<script src=\"/__dev/reload.js?%llu\"%s%.*s%s></script>",
                    (unsigned long long)ls_dev_version(dev), nonce_len > 0 ? " nonce=\"" : "", (int)nonce_len,
                    nonce_len > 0 ? nonce : "", nonce_len > 0 ? "\"" : "");
}

/* Respond with the script at offset `at` of slice `index`. Takes the references of the slices. */
static int respond_with(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *slices, unsigned count, unsigned index,
                        size_t at, ls_slice script)
{
    ls_slice few[SLICES_FEW], *all = count + 2 <= SLICES_FEW ? few : malloc((count + 2) * sizeof *all);
    if (all == NULL) return LS_ENOMEM;
    memcpy(all, slices, (index + 1) * sizeof *all);
    all[index].len = at;
    all[index + 1] = script;
    unsigned to = index + 2;
    if (at < slices[index].len) {
        all[to] = slices[index];
        all[to].ptr += at;
        all[to].len -= at;
        if (slices[index].block != NULL) (void)ls_block_hold(slices[index].block);
        to++;
    }
    memcpy(all + to, slices + index + 1, (count - index - 1) * sizeof *all);
    const int result = ls_http1_transport.respond(ctx, x, all, to + count - index - 1);
    if (all != few) free(all);
    return result;
}

static int dev_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    const ls_request *request = x->task;
    bool known = false;
    const bool document = is_document(x, &known);
    if (request == NULL || count == 0 || !is_html(x) || (known && !document) ||
        ls_exchange_has_field(x, "Content-Encoding", 16) || ls_exchange_has_field(x, "ETag", 4) ||
        ls_exchange_has_field(x, "Last-Modified", 13))
        return ls_http1_transport.respond(ctx, x, slices, count);
    for (unsigned n = 0; n < count; n++)
        if (ls_slice_is_file(&slices[n])) return ls_http1_transport.respond(ctx, x, slices, count);
    for (unsigned n = count; n-- > 0;) {
        const bool first = n == 0;
        const size_t at = ls_dev_page_place(slices[n].ptr, slices[n].len, first && document);
        if (at == SIZE_MAX) continue;
        char script[SCRIPT_BYTES];
        const int len = script_of(x, ls_state_runtime(request->state)->dev, script);
        const int result =
            respond_with(ctx, x, slices, count, at == slices[n].len ? count - 1 : n,
                         at == slices[n].len ? slices[count - 1].len : at, ls_slice_static(script, (size_t)len));
        if (result != LS_ENOMEM) return result;
        break;
    }
    return ls_http1_transport.respond(ctx, x, slices, count);
}

static void dev_start(const ls_http_handler *base, ls_thread_ctx *ctx, ls_exchange *x)
{
    const ls_site_handler *handler = (const ls_site_handler *)(const void *)base;
    if (x->transport == &ls_http1_transport) x->transport = &handler->dev_transport;
    ls_http_handler_start(base, ctx, x);
}

void ls_dev_page_handler(ls_site_handler *handler)
{
    handler->dev_transport = ls_http1_transport;
    handler->dev_transport.respond = dev_respond;
    handler->base.start = dev_start;
}
