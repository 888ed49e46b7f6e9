/* tls_fake.h - an implementation of tls.h for tests, without cryptography. Its records are lines: the client's "hello"
 * is answered with "welcome", then "finish NAME" with "ticket", where NAME is what ALPN chose ("-": nothing); after it
 * the case of all letters is inverted. Any other line fails. Included once. */
#ifndef TESTS_UNIT_NET_TLS_FAKE_H
#define TESTS_UNIT_NET_TLS_FAKE_H

#include <ctype.h>
#include <stdatomic.h>

#include "net/tls/tls.h"
#include "support.h"

struct ls_tls {
    int refs, reloads;
    int reload_err;
};

typedef struct session {
    ls_filter filter; /* first */
    ls_slice input;   /* fed, not consumed */
    char line[64];
    size_t line_len;
    char alpn[16];
    const char *why;
    bool ended, begun; /* begun: the first line is whole */
} session;

static _Atomic int sessions_live;

static void session_feed(ls_filter *f, ls_slice bytes)
{
    session *s = (session *)f;
    assert_int_equal(s->input.len, 0);
    ls_slice_drop(&s->input);
    s->input = bytes;
}

static void session_feed_end(ls_filter *f)
{
    ((session *)f)->ended = true;
}

static void invert(char *to, const char *from, size_t len)
{
    for (size_t i = 0; i < len; i++) to[i] = (char)(isalpha((unsigned char)from[i]) ? from[i] ^ 0x20 : from[i]);
}

static int64_t session_read(ls_filter *f, char *to, size_t len)
{
    session *s = (session *)f;
    const size_t run = s->input.len < len ? s->input.len : len;
    if (run == 0) return s->ended ? LS_ETRUNCATED : LS_EAGAIN;
    invert(to, s->input.ptr, run);
    s->input.ptr += run;
    s->input.len -= run;
    return (int64_t)run;
}

static bool session_has_input(const ls_filter *f)
{
    return ((const session *)f)->input.len > 0;
}

static void emit(ls_filter_out *out, const char *text, size_t len)
{
    ls_block *block = ls_block_get(out->pool, LS_BLOCK_SMALL);
    assert_non_null(block);
    assert_true(len <= block->cap);
    memcpy(block->data, text, len);
    out->slices[out->count++] = (ls_slice){block, block->data, len};
}

static int64_t session_write(ls_filter *f, const ls_slice *slices, unsigned count, ls_filter_out *out)
{
    char bytes[256];
    const size_t len = slices[0].len < sizeof bytes ? slices[0].len : sizeof bytes;
    assert_true(count > 0);
    invert(bytes, slices[0].ptr, len);
    emit(out, bytes, len);
    return (int64_t)len;
}

static int session_end(ls_filter *f, ls_filter_out *out)
{
    return LS_OK;
}

static void session_free(ls_filter *f)
{
    session *s = (session *)f;
    ls_slice_drop(&s->input);
    free(s);
    atomic_fetch_sub(&sessions_live, 1);
}

static const ls_filter_type session_type = {.feed = session_feed,
                                            .feed_end = session_feed_end,
                                            .read = session_read,
                                            .has_input = session_has_input,
                                            .write = session_write,
                                            .end = session_end,
                                            .why = ls_tls_why,
                                            .free = session_free};

ls_tls *ls_tls_hold(ls_tls *tls)
{
    tls->refs++;
    return tls;
}

void ls_tls_drop(ls_tls *tls)
{
    tls->refs--;
}

int ls_tls_reload(ls_tls *tls, bool force, char *why, size_t why_bytes)
{
    assert_false(force);
    const int err = tls->reload_err; /* once, as long as the file does not change */
    tls->reloads++;
    if (err < 0) snprintf(why, why_bytes, "cert.pem: no certificate in it");
    tls->reload_err = LS_OK;
    return err;
}

int ls_tls_session(ls_tls *tls, const char *server_name, ls_filter **out)
{
    session *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_true(tls->refs > 0);
    assert_null(server_name);
    s->filter.type = &session_type;
    atomic_fetch_add(&sessions_live, 1);
    *out = &s->filter;
    return LS_OK;
}

int ls_tls_handshake(ls_filter *f, ls_filter_out *out)
{
    session *s = (session *)f;
    while (s->input.len > 0) {
        const char c = *s->input.ptr++;
        s->input.len--;
        if (c != '\n') {
            assert_true(s->line_len + 1 < sizeof s->line);
            s->line[s->line_len++] = c;
            s->line[s->line_len] = '\0';
            continue;
        }
        s->line_len = 0;
        s->begun = true;
        if (strcmp(s->line, "hello") == 0) {
            emit(out, "welcome\n", 8);
        } else if (sscanf(s->line, "finish %15s", s->alpn) == 1) {
            emit(out, "ticket\n", 7);
            return LS_DONE;
        } else {
            s->why = "unexpected record";
            emit(out, "alert\n", 6);
            return LS_EPROTO;
        }
    }
    ls_slice_drop(&s->input);
    return LS_EAGAIN;
}

bool ls_tls_is_small(const ls_filter *f)
{
    return !((const session *)f)->begun;
}

const char *ls_tls_why(const ls_filter *f)
{
    return ((const session *)f)->why;
}

void ls_tls_peer_of(const ls_filter *f, ls_tls_peer *out)
{
    const session *s = (const session *)f;
    *out = (ls_tls_peer){.alpn = strcmp(s->alpn, "-") == 0 ? NULL : s->alpn};
}

#endif
