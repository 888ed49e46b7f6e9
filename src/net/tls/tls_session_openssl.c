/* tls_session_openssl.c - one connection: its handshake, and the filter between queue and socket.
 *
 * OpenSSL reads and writes through a BIO that belongs to us: a read takes bytes from the slice that was fed, a write
 * appends to the blocks of `out`. Neither waits, and nothing is stored between them. While there is no `out`, in a
 * read, OpenSSL writes alerts and answers to KeyUpdates (RFC 8446 section 4.6.3), one for each. They are the filter's
 * `answer`, as are tickets when a request is there already: the stream sends them at once or in front of the next
 * bytes, because records are numbered. A read takes no more input while ANSWER_MAX bytes of answers are not sent.
 *
 *     feed -> in -> BIO -> OpenSSL -> read          write -> record -> OpenSSL -> BIO -> out
 *
 * Records: slices in memory of at least one record are encrypted from where they lie; shorter ones and files are
 * gathered on the stack, so that the head and the body of a response leave in one record. The receiver can decrypt a
 * record only as a whole. On a new or idle connection the first flight is ten segments (RFC 6928), so that a record of
 * 16 KiB takes two round trips before its first byte can be used. Therefore a burst that does not fit into that flight
 * begins with three records of one segment. A burst begins with the session, and with the first write after a read of
 * data, when the write before it took everything that was queued: this is the next response after a request. */
#include <assert.h>
#include <string.h>

#include <openssl/x509v3.h>

#include "base/err.h"
#include "net/tls/tls_internal_openssl.h"
#include "port/file/shared_file.h"
#include "port/port.h"

enum {
    RECORD_MAX = 16384,    /* plaintext bytes, RFC 8446 section 5.1 */
    RECORD_OVERHEAD = 160, /* header, IV, MAC and padding of any cipher, and a KeyUpdate in front */
    END_BYTES = 128,       /* left free in `out` by a write: a close_notify may follow */
    SEGMENT = 1300,        /* plaintext of one TCP segment, with room for a tunnel */
    FLIGHT = 10 * SEGMENT, /* a burst of at most this size leaves in one record */
    BURST_BYTES = 3 * SEGMENT,
    ANSWER_MAX = 16384,
    HEAD_BYTES = 5,         /* of a record */
    FIRST_SMALL_MAX = 2048, /* bytes of an incomplete first record, see ls_tls_is_small */
    NAME_MAX_BYTES = 253    /* RFC 1035 section 2.3.4, as text */
};

static ls_tls_conn *conn_of(ls_filter *f)
{
    return (ls_tls_conn *)(void *)f;
}

static void drop_input(ls_tls_conn *s)
{
    ls_slice_drop(&s->in);
    if (s->first == NULL || s->ssl == NULL) return; /* it is still gathered */
    OPENSSL_free(s->first);
    s->first = NULL;
}

/* ---- output ------------------------------------------------------------------------------------------------- */

static size_t room_of(const ls_slice *slice)
{
    return slice->block->cap - slice->len;
}

static bool add_block(ls_filter_out *out, size_t size)
{
    if (out->count == LS_FILTER_OUT_MAX) return false;
    ls_block *block = ls_block_get(out->pool, size);
    if (block == NULL) return false;
    out->slices[out->count++] = (ls_slice){block, block->data, 0};
    return true;
}

/* Get blocks for `wanted` bytes. Returns the room that there is, perhaps less. */
static size_t reserve(ls_filter_out *out, unsigned at, size_t wanted)
{
    size_t room = 0;
    for (unsigned i = at; i < out->count; i++) room += room_of(&out->slices[i]);
    while (room < wanted) {
        const bool large = wanted - room > 2 * LS_BLOCK_SMALL;
        if (!(large && add_block(out, LS_BLOCK_LARGE)) && !add_block(out, LS_BLOCK_SMALL)) break;
        room += out->slices[out->count - 1].block->cap;
    }
    return room;
}

static void drop_answer(ls_filter *f)
{
    OPENSSL_free(f->answer);
    f->answer = NULL;
    f->answer_len = 0;
}

static bool hold(ls_tls_conn *s, const char *bytes, size_t len)
{
    ls_filter *f = &s->filter;
    if (s->write_ended) return true; /* nothing may follow a close_notify */
    char *grown = OPENSSL_realloc(f->answer, f->answer_len + len);
    if (grown == NULL) {
        s->no_memory = true;
        return false;
    }
    memcpy(grown + f->answer_len, bytes, len);
    f->answer = grown;
    f->answer_len += (uint32_t)len;
    return true;
}

static bool put(ls_tls_conn *s, const char *bytes, size_t len)
{
    ls_filter_out *out = s->out;
    if (out == NULL) return hold(s, bytes, len);
    while (len > 0) {
        if (s->out_at == out->count && reserve(out, s->out_at, len) == 0) {
            s->no_memory = true;
            return false;
        }
        ls_slice *to = &out->slices[s->out_at];
        const size_t room = room_of(to), n = len < room ? len : room;
        memcpy(to->block->data + to->len, bytes, n);
        to->len += n;
        bytes += n;
        len -= n;
        if (n == room) s->out_at++;
    }
    return true;
}

/* Make `out` the destination; answers come first. It may hold bytes of an earlier call. */
static bool begin_out(ls_tls_conn *s, ls_filter_out *out)
{
    s->out = out;
    s->out_at = (uint8_t)(out->count > 0 ? out->count - 1 : 0);
    if (out->count > 0 && room_of(&out->slices[s->out_at]) == 0) s->out_at++;
    if (s->filter.answer == NULL) return true;
    const bool ok = put(s, s->filter.answer, s->filter.answer_len);
    drop_answer(&s->filter);
    return ok;
}

static void end_out(ls_tls_conn *s)
{
    ls_filter_out *out = s->out;
    while (out->count > 0 && out->slices[out->count - 1].len == 0) ls_slice_drop(&out->slices[--out->count]);
    s->out = NULL;
}

/* ---- the BIO ------------------------------------------------------------------------------------------------ */

static int bio_read(BIO *bio, char *to, size_t len, size_t *got)
{
    ls_tls_conn *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (s->in.len == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    *got = len < s->in.len ? len : s->in.len;
    memcpy(to, s->in.ptr, *got);
    s->in.ptr += *got;
    s->in.len -= *got;
    if (s->in.len == 0) drop_input(s);
    return 1;
}

static int bio_write(BIO *bio, const char *bytes, size_t len, size_t *written)
{
    ls_tls_conn *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (s->out == NULL && s->filter.answer_len >= ANSWER_MAX) {
        BIO_set_retry_write(bio);
        return 0;
    }
    if (!put(s, bytes, len)) return 0;
    *written = len;
    return 1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *ls_tls_bio_make(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "luaserve");
    if (method == NULL) return NULL;
    if (BIO_meth_set_read_ex(method, bio_read) == 1 && BIO_meth_set_write_ex(method, bio_write) == 1 &&
        BIO_meth_set_ctrl(method, bio_ctrl) == 1 && BIO_meth_set_create(method, bio_create) == 1)
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- the handshake ------------------------------------------------------------------------------------------ */

/* The queue of errors belongs to the thread; another library may have left something in it, which SSL_get_error would
 * take for an error of this session. */
static void clear_errors(void)
{
    if (ERR_peek_error() != 0) ERR_clear_error();
}

static int fail_with(ls_tls_conn *s, int err, const char *why)
{
    s->failed = err;
    s->why = OPENSSL_strdup(why);
    drop_input(s);
    return err;
}

/* With the certificates that are current now. */
static int open_ssl(ls_tls_conn *s)
{
    ls_tls *tls = s->tls;
    char why[256];
    if (tls->config.supply != NULL && ls_tls_supply_version(tls->config.supply) != atomic_load(&tls->supply_seen))
        (void)ls_tls_reload(tls, false, why, sizeof why); /* what is supplied was checked; files that fail stay */
    ls_mutex_lock(&tls->lock);
    s->gen = tls->gen;
    atomic_fetch_add_explicit(&s->gen->refs, 1, memory_order_relaxed);
    ls_mutex_unlock(&tls->lock);
    clear_errors();
    s->ssl = SSL_new(s->gen->sites[0].ctx);
    BIO *bio = s->ssl != NULL ? BIO_new(tls->bio) : NULL;
    if (bio == NULL) {
        ERR_clear_error();
        return LS_ENOMEM;
    }
    BIO_set_data(bio, s);
    SSL_set_bio(s->ssl, bio, bio);
    if (s->server)
        SSL_set_accept_state(s->ssl);
    else
        SSL_set_connect_state(s->ssl);
    return LS_OK;
}

/* The length of the first record with its head, as far as it is known; `len` if OpenSSL refuses it or has no use for
 * more. A ClientHello may be that of SSL 2 (RFC 5246 appendix E.2). */
static size_t first_record_bytes(const char *bytes, size_t len)
{
    const unsigned char *head = (const unsigned char *)bytes;
    if (len < HEAD_BYTES) return HEAD_BYTES;
    size_t whole = len;
    if (head[0] & 0x80) /* no type of TLS has it; head[1] may be any length */
        whole = 2 + ((size_t)(head[0] & 0x7f) << 8 | head[1]);
    else if (head[1] == 3)
        whole = HEAD_BYTES + ((size_t)head[3] << 8 | head[4]);
    return whole <= HEAD_BYTES + RECORD_MAX ? whole : len;
}

/* A server waits for the first record without OpenSSL, which takes 40 KiB from the first byte on, and without the
 * block of the pool that the bytes were received into. LS_OK: `in` begins with the whole record; LS_EAGAIN;
 * LS_ENOMEM. */
static int gather_first_record(ls_tls_conn *s)
{
    if (s->in.len == 0) return LS_EAGAIN;
    if (s->first == NULL && s->in.len >= first_record_bytes(s->in.ptr, s->in.len)) return LS_OK;
    char *grown = OPENSSL_realloc(s->first, s->first_len + s->in.len);
    if (grown == NULL) return LS_ENOMEM;
    memcpy(grown + s->first_len, s->in.ptr, s->in.len);
    s->first = grown;
    s->first_len += (uint32_t)s->in.len;
    drop_input(s);
    if (s->first_len < first_record_bytes(s->first, s->first_len)) return LS_EAGAIN;
    s->in = ls_slice_static(s->first, s->first_len);
    return LS_OK;
}

/* Every record of a handshake begins with 22 (handshake) or 21 (alert). */
static int check_first_byte(ls_tls_conn *s)
{
    if (s->begun || s->in.len == 0) return LS_OK;
    const unsigned char first = (unsigned char)s->in.ptr[0];
    s->begun = true;
    s->not_tls = first != 22 && first != 21;
    if (!s->server && s->not_tls) return fail_with(s, LS_EPROTO, "the server does not speak TLS");
    return LS_OK;
}

/* OpenSSL keeps both keys of the key exchange until the session is freed, although nothing uses them any more. Giving
 * them a type wipes and frees what they hold: recorded traffic cannot be decrypted by a later look into the memory,
 * and an idle connection is smaller. */
static void erase_exchanged_keys(SSL *ssl)
{
    EVP_PKEY *keys[2] = {NULL, NULL};
    (void)SSL_get_tmp_key(ssl, &keys[0]);
    (void)SSL_get_peer_tmp_key(ssl, &keys[1]);
    for (int i = 0; i < 2; i++) {
        if (keys[i] != NULL) (void)EVP_PKEY_set_type(keys[i], EVP_PKEY_X25519);
        EVP_PKEY_free(keys[i]);
    }
    clear_errors();
}

/* The tickets of TLS 1.3 follow the handshake of a server. With a request after it they leave in front of the
 * response, in one send; else at once, as a client with Nagle's algorithm sends its request only when they acknowledge
 * the handshake. */
static void hold_tickets(ls_tls_conn *s, ls_filter_out *out)
{
    if (!s->server || s->in.len == 0 || out->count != 1 || SSL_version(s->ssl) != TLS1_3_VERSION) return;
    if (hold(s, out->slices[0].ptr, out->slices[0].len)) ls_slice_drop(&out->slices[--out->count]);
    s->no_memory = false; /* they leave now */
}

/* OpenSSL closes without an alert when the first record of a client has no type or version of TLS: unexpected_message
 * (RFC 8446 section 5.1), protocol_version (section 6.2). */
static void put_alert(ls_tls_conn *s, ls_filter_out *out)
{
    enum { UNEXPECTED_MESSAGE = 10, PROTOCOL_VERSION = 70 };
    const char alert[] = {21, 3, 3, 0, 2, 2 /* fatal */, s->not_tls ? UNEXPECTED_MESSAGE : PROTOCOL_VERSION};
    if (!s->server || out->count > 0 || SSL_get_state(s->ssl) != TLS_ST_BEFORE) return;
    if (begin_out(s, out)) (void)put(s, alert, sizeof alert); /* not without memory */
    end_out(s);
}

static const char closed_early[] = "the connection was closed during the handshake";

int ls_tls_handshake(ls_filter *session, ls_filter_out *out)
{
    ls_tls_conn *s = conn_of(session);
    if (s->complete) return LS_DONE;
    if (s->failed < 0) return s->failed;
    if (s->ssl == NULL) {
        int err = gather_first_record(s);
        if (err == LS_EAGAIN && s->ended) return fail_with(s, LS_ETRUNCATED, closed_early);
        if (err == LS_EAGAIN) return LS_EAGAIN;
        if (err == LS_OK) err = open_ssl(s);
        if (err < 0) return fail_with(s, err, ls_err_text(err));
    }
    if (check_first_byte(s) < 0) return s->failed;
    clear_errors();
    bool ok = begin_out(s, out);
    const int result = ok ? SSL_do_handshake(s->ssl) : -1;
    end_out(s);
    if (result == 1 && s->proves) return fail_with(s, LS_EPROTO, "an authority has checked the name (acme-tls/1)");
    if (result == 1) {
        s->complete = true;
        erase_exchanged_keys(s->ssl);
        hold_tickets(s, out);
        return LS_DONE;
    }
    if (ok && SSL_get_error(s->ssl, result) == SSL_ERROR_WANT_READ) {
        if (!s->ended) return LS_EAGAIN;
        return fail_with(s, LS_ETRUNCATED, closed_early);
    }
    s->failed = ls_tls_explain(s);
    drop_input(s);
    if (s->failed == LS_EPROTO) put_alert(s, out);
    return s->failed;
}

bool ls_tls_is_small(const ls_filter *session)
{
    const ls_tls_conn *s = (const ls_tls_conn *)(const void *)session;
    return s->ssl == NULL && s->first_len <= FIRST_SMALL_MAX;
}

const char *ls_tls_why(const ls_filter *session)
{
    const ls_tls_conn *s = (const ls_tls_conn *)(const void *)session;
    if (s->why != NULL) return s->why;
    return s->failed < 0 ? ls_err_text(s->failed) : "";
}

bool ls_tls_resumed(const ls_filter *session)
{
    return SSL_session_reused(((const ls_tls_conn *)(const void *)session)->ssl) == 1;
}

/* ---- the filter --------------------------------------------------------------------------------------------- */

static void session_feed(ls_filter *f, ls_slice bytes)
{
    ls_tls_conn *s = conn_of(f);
    assert(s->in.len == 0);
    if (bytes.len == 0 || s->failed < 0 || s->closed)
        ls_slice_drop(&bytes); /* nothing reads it any more */
    else
        s->in = bytes;
}

static void session_feed_end(ls_filter *f)
{
    conn_of(f)->ended = true;
}

static bool session_has_input(const ls_filter *f)
{
    const ls_tls_conn *s = (const ls_tls_conn *)(const void *)f;
    return s->in.len > 0 || s->owes_result || (s->complete && s->failed == 0 && SSL_pending(s->ssl) > 0);
}

/* The session ends for its reader. */
static void end_reading(ls_tls_conn *s, int failed)
{
    s->failed = failed;
    s->closed = failed == 0;
    s->owes_result = true;
    drop_input(s);
}

static int64_t session_read(ls_filter *f, char *to, size_t len)
{
    ls_tls_conn *s = conn_of(f);
    const bool full = f->answer_len >= ANSWER_MAX;
    size_t done = 0, n;
    assert(s->complete);
    if (f->answer_len == 0 && f->answer != NULL) drop_answer(f); /* it was sent */
    clear_errors();
    while (done < len && s->failed == 0 && !s->closed && (s->in.len > 0 || SSL_pending(s->ssl) > 0)) {
        if (SSL_read_ex(s->ssl, to + done, len - done, &n) == 1) {
            done += n;
            continue;
        }
        const int reason = SSL_get_error(s->ssl, 0);
        if (reason == SSL_ERROR_WANT_READ) break; /* all input is consumed */
        if (reason == SSL_ERROR_WANT_WRITE && !full) break;
        if (reason == SSL_ERROR_WANT_WRITE && s->why == NULL)
            s->why = OPENSSL_strdup("the peer does not receive the answers to its KeyUpdates");
        end_reading(s, reason == SSL_ERROR_ZERO_RETURN ? 0 : ls_tls_explain(s));
    }
    if (done > 0) {
        if (s->drained) s->burst = 0;
        return (int64_t)done;
    }
    s->owes_result = false;
    if (s->failed < 0) return s->failed;
    if (s->closed) return 0;
    return s->ended ? LS_ETRUNCATED : LS_EAGAIN;
}

typedef struct cursor {
    const ls_slice *slice, *end;
    size_t from;                /* in *slice */
    const ls_shared_file *file; /* the last one read */
} cursor;

/* Read from a file range into `to`. A file that was changed since it was opened may have other bytes than the length
 * and the ETag of the response announce. */
static int64_t read_file(cursor *c, char *to, size_t len)
{
    const ls_shared_file *file = ls_shared_file_of(c->slice);
    if (c->file != NULL && c->file != file && !ls_shared_file_unchanged(c->file)) return LS_ECHANGED;
    c->file = file;
    const int64_t n = ls_shared_file_read(file, to, len, ls_slice_offset(c->slice) + c->from);
    return n == 0 ? LS_ECHANGED : n; /* 0: it ends before the range */
}

/* The next bytes for one record, at most `len`, at *bytes: in a slice or gathered in `scratch`. An error when the
 * first byte cannot be read. */
static int64_t next_bytes(cursor *c, size_t len, char *scratch, const char **bytes)
{
    size_t done = 0;
    *bytes = scratch;
    while (done < len) {
        while (c->from == c->slice->len) {
            c->slice++;
            c->from = 0;
            assert(c->slice < c->end);
        }
        size_t part = c->slice->len - c->from;
        if (part > len - done) part = len - done;
        if (ls_slice_is_file(c->slice)) {
            const int64_t n = read_file(c, scratch + done, part);
            if (n < 0 && done == 0) return n;
            if (n < 0) break; /* the next call reports it */
            part = (size_t)n;
        } else if (done == 0 && part == len) {
            *bytes = c->slice->ptr + c->from;
        } else {
            memcpy(scratch + done, c->slice->ptr + c->from, part);
        }
        c->from += part;
        done += part;
    }
    return (int64_t)done;
}

static size_t record_bytes(const ls_tls_conn *s, size_t offered, size_t left)
{
    const size_t max = s->burst >= BURST_BYTES || s->burst + offered <= FLIGHT ? RECORD_MAX : SEGMENT;
    return left < max ? left : max;
}

/* Encrypt records until everything is taken or `out` is full. Returns the bytes taken, or an error when it took
 * none. */
static int64_t write_records(ls_tls_conn *s, const ls_slice *slices, unsigned count)
{
    char scratch[RECORD_MAX];
    const size_t offered = ls_slices_bytes(slices, count);
    size_t taken = 0, written;
    cursor c = {slices, slices + count, 0, NULL};
    while (taken < offered) {
        const char *bytes;
        const size_t left = offered - taken;
        const size_t need = left + (left / RECORD_MAX + BURST_BYTES / SEGMENT + 1) * RECORD_OVERHEAD + END_BYTES;
        const size_t room = reserve(s->out, s->out_at, need);
        if (room <= RECORD_OVERHEAD + END_BYTES) {
            if (taken == 0) return LS_ENOMEM;
            break;
        }
        size_t len = record_bytes(s, offered, left);
        if (room < len + RECORD_OVERHEAD + END_BYTES) {
            if (taken > 0) break; /* a whole record next time */
            len = room - RECORD_OVERHEAD - END_BYTES;
        }
        const int64_t n = next_bytes(&c, len, scratch, &bytes);
        if (n < 0 && taken == 0) return n;
        if (n < 0) break;
        if (SSL_write_ex(s->ssl, bytes, (size_t)n, &written) != 1) return ls_tls_explain(s);
        taken += (size_t)n;
        s->burst = s->burst + (size_t)n < BURST_BYTES ? (uint16_t)(s->burst + n) : BURST_BYTES;
    }
    if (c.file != NULL && !ls_shared_file_unchanged(c.file)) return LS_ECHANGED;
    s->drained = taken == offered;
    return (int64_t)taken;
}

/* Whether a file after other bytes has changed, such as the head of its response: no record is encrypted yet, so
 * another response can take their place. */
static bool has_changed_file(const ls_slice *slices, unsigned count)
{
    unsigned i = 1;
    while (i < count && !ls_slice_is_file(&slices[i])) i++;
    return i < count && !ls_shared_file_unchanged(ls_shared_file_of(&slices[i]));
}

static int64_t session_write(ls_filter *f, const ls_slice *slices, unsigned count, ls_filter_out *out)
{
    ls_tls_conn *s = conn_of(f);
    if (s->write_ended || !s->complete) return LS_EPROTO;
    if (has_changed_file(slices, count)) return LS_ECHANGED;
    const int64_t taken = begin_out(s, out) ? write_records(s, slices, count) : LS_ENOMEM;
    end_out(s);
    if (taken < 0) { /* records may be lost: the peer could not verify those that follow */
        s->write_ended = true;
        ls_slices_drop(out->slices, out->count);
        out->count = 0;
    } else {
        ls_pool_encrypted(out->pool, (size_t)taken);
    }
    return taken;
}

static int session_end(ls_filter *f, ls_filter_out *out)
{
    ls_tls_conn *s = conn_of(f);
    if (s->write_ended) return LS_OK;
    s->write_ended = true;
    clear_errors();
    bool ok = begin_out(s, out);
    if (ok && s->complete && s->failed == 0) ok = SSL_shutdown(s->ssl) >= 0;
    end_out(s);
    ERR_clear_error();
    return ok ? LS_OK : s->no_memory ? LS_ENOMEM : LS_EPROTO;
}

static void session_free(ls_filter *f)
{
    ls_tls_conn *s = conn_of(f);
    SSL_free(s->ssl);
    drop_input(s);
    OPENSSL_free(s->first);
    drop_answer(f);
    OPENSSL_free(s->name);
    OPENSSL_free(s->why);
    if (s->gen != NULL) ls_tls_gen_drop(s->gen);
    ls_tls_drop(s->tls);
    OPENSSL_free(s);
}

static const ls_filter_type filter_type = {.feed = session_feed,
                                           .feed_end = session_feed_end,
                                           .read = session_read,
                                           .why = ls_tls_why,
                                           .has_input = session_has_input,
                                           .write = session_write,
                                           .end = session_end,
                                           .free = session_free};

/* ---- a new session ------------------------------------------------------------------------------------------ */

/* The name or address that the certificate must have; a name is also sent (SNI), an address never (RFC 6066). */
static int set_server_name(ls_tls_conn *s, const char *server_name)
{
    size_t len = strlen(server_name);
    if (len > 0 && server_name[len - 1] == '.') len--; /* "example.org." */
    if (len == 0 || len > NAME_MAX_BYTES) return LS_EINVAL;
    if ((s->name = OPENSSL_strndup(server_name, len)) == NULL) return LS_ENOMEM;
    char *zone = strchr(s->name, ':') != NULL ? strchr(s->name, '%') : NULL; /* "fe80::1%eth0" */
    if (zone != NULL) *zone = '\0';
    X509_VERIFY_PARAM *param = SSL_get0_param(s->ssl);
    int ok = 1;
    if (X509_VERIFY_PARAM_set1_ip_asc(param, s->name) != 1) {
        X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        ok = X509_VERIFY_PARAM_set1_host(param, s->name, 0) == 1 && SSL_set_tlsext_host_name(s->ssl, s->name) == 1;
    }
    ERR_clear_error();
    if (!ok) return LS_EINVAL;
    if (!s->tls->config.no_resumption) ls_tls_cache_use(s->tls, s->ssl, s->name);
    return LS_OK;
}

int ls_tls_session(ls_tls *tls, const char *server_name, ls_filter **out)
{
    const bool server = tls->config.server;
    if (!server && server_name == NULL && !tls->config.insecure) return LS_EINVAL;
    ls_tls_conn *s = OPENSSL_zalloc(sizeof *s);
    if (s == NULL) return LS_ENOMEM;
    s->filter.type = &filter_type;
    s->server = server;
    s->tls = ls_tls_hold(tls);
    int err = server ? LS_OK : open_ssl(s); /* a server opens it with the first record */
    if (err == LS_OK && !server && server_name != NULL) err = set_server_name(s, server_name);
    if (err == LS_OK)
        *out = &s->filter;
    else
        session_free(&s->filter);
    return err;
}
