/* tls_fixture.h - for tests of TLS: certificates made in a scratch directory, and two sessions back to back in
 * memory. */
#ifndef LS_TESTS_TLS_FIXTURE_H
#define LS_TESTS_TLS_FIXTURE_H

#include "support.h"

#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/buf.h"
#include "net/tls/tls.h"
#include "port/port.h"

enum { TLS_POOL_BYTES = 64 << 20, TLS_WHY = 512 };

/* ---- files ---- */

typedef struct tls_dir {
    char path[sizeof TEST_SCRATCH_PATH];
    char names[64][96];
    unsigned count;
} tls_dir;

static inline tls_dir *tls_dir_open(void)
{
    tls_dir *d = calloc(1, sizeof *d);
    assert_non_null(d);
    memcpy(d->path, TEST_SCRATCH_PATH, sizeof d->path);
    assert_non_null(mkdtemp(d->path));
    return d;
}

/* The path of a file in the directory, which tls_dir_close removes; valid until then. */
static inline const char *tls_path(tls_dir *d, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    for (unsigned i = 0; i < d->count; i++)
        if (strcmp(d->names[i], path) == 0) return d->names[i];
    assert_true(d->count < 64);
    return memcpy(d->names[d->count++], path, sizeof path);
}

static inline void tls_dir_close(tls_dir *d)
{
    for (unsigned i = 0; i < d->count; i++) (void)remove(d->names[i]);
    assert_int_equal(rmdir(d->path), 0);
    free(d);
}

static inline const char *tls_write(tls_dir *d, const char *name, const void *bytes, size_t len)
{
    const char *path = tls_path(d, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* ---- certificates ---- */

typedef struct tls_made {
    X509 *cert;
    EVP_PKEY *key;
} tls_made;

typedef struct tls_wish {
    const char *cn, *san; /* san as in openssl.cnf: "DNS:a.example,IP:127.0.0.1"; NULL: none */
    bool ca, rsa;
    int from_days, days; /* from now; days 0: 30 */
} tls_wish;

static inline void tls_extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* issuer NULL: signed by itself */
static inline tls_made tls_make(tls_wish wish, const tls_made *issuer)
{
    static long serial = 1;
    tls_made made = {X509_new(), wish.rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256")};
    assert_true(made.cert != NULL && made.key != NULL);
    X509_set_version(made.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.cert), (long)wish.from_days * 86400 - 60);
    X509_gmtime_adj(X509_getm_notAfter(made.cert), (long)(wish.days != 0 ? wish.days : 30) * 86400);
    X509_NAME *name = X509_get_subject_name(made.cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)wish.cn, -1, -1, 0);
    X509_set_issuer_name(made.cert, issuer != NULL ? X509_get_subject_name(issuer->cert) : name);
    X509_set_pubkey(made.cert, made.key);
    tls_extend(made.cert, NID_basic_constraints, wish.ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (wish.san != NULL) tls_extend(made.cert, NID_subject_alt_name, wish.san);
    assert_true(X509_sign(made.cert, issuer != NULL ? issuer->key : made.key, EVP_sha256()) > 0);
    return made;
}

static inline void tls_made_free(tls_made *made)
{
    X509_free(made->cert);
    EVP_PKEY_free(made->key);
}

/* Write the certificate, then `more` (the rest of a chain) if it is not NULL. */
static inline const char *tls_write_cert(tls_dir *d, const char *name, const tls_made *made, const tls_made *more)
{
    FILE *file = fopen(tls_path(d, name), "wb");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, made->cert), 1);
    if (more != NULL) assert_int_equal(PEM_write_X509(file, more->cert), 1);
    assert_int_equal(fclose(file), 0);
    return tls_path(d, name);
}

static inline const char *tls_write_key(tls_dir *d, const char *name, const tls_made *made, const char *password)
{
    FILE *file = fopen(tls_path(d, name), "wb");
    assert_non_null(file);
    assert_int_equal(PEM_write_PKCS8PrivateKey(file, made->key, password != NULL ? EVP_aes_256_cbc() : NULL, password,
                                               password != NULL ? (int)strlen(password) : 0, NULL, NULL),
                     1);
    assert_int_equal(fclose(file), 0);
    return tls_path(d, name);
}

/* Both files, named NAME.pem and NAME.key. */
static inline ls_tls_cert tls_files(tls_dir *d, const char *name, tls_wish wish, const tls_made *issuer)
{
    char cert[64], key[64];
    snprintf(cert, sizeof cert, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    tls_made made = tls_make(wish, issuer);
    ls_tls_cert files = {.cert = tls_write_cert(d, cert, &made, NULL), .key = tls_write_key(d, key, &made, NULL)};
    tls_made_free(&made);
    return files;
}

/* ---- memory ---- */

typedef struct tls_pools {
    ls_pools *pools;
    ls_pool *pool;
} tls_pools;

static inline tls_pools tls_pools_open(size_t bytes)
{
    tls_pools p;
    assert_int_equal(ls_pools_open(bytes, &p.pools), LS_OK);
    assert_int_equal(ls_pool_open(p.pools, &p.pool), LS_OK);
    ls_pool_enter(p.pool);
    return p;
}

static inline ls_pools_stats tls_stats(const tls_pools *p)
{
    ls_pools_stats stats;
    ls_pools_stat(p->pools, &stats);
    return stats;
}

static inline void tls_pools_close(tls_pools *p)
{
    assert_int_equal(tls_stats(p).blocks_live, 0);
    ls_pool_close(p->pool);
    ls_pools_close(p->pools);
}

/* A slice of exactly these bytes, so that a sanitizer sees a read past its end. */
typedef struct tls_exact {
    ls_external external;
    char *bytes;
} tls_exact;

static inline void tls_exact_release(ls_external *external)
{
    tls_exact *exact = (tls_exact *)(void *)external;
    free(exact->bytes);
    free(exact);
}

static inline ls_slice tls_slice(const void *bytes, size_t len)
{
    tls_exact *exact = malloc(sizeof *exact);
    assert_non_null(exact);
    ls_external_init(&exact->external, LS_BLOCK_EXTERNAL, tls_exact_release);
    exact->bytes = test_copy_exact(bytes, len);
    return ls_slice_external(&exact->external, exact->bytes, len);
}

/* ---- one side of a connection ---- */

typedef struct tls_side {
    ls_filter *f;
    ls_pool *pool;
    int handshake;   /* LS_EAGAIN, LS_DONE, or the error */
    int64_t reading; /* the last result of read that was not data: LS_EAGAIN, 0, or the error */
    char *wire;      /* written, not yet delivered */
    size_t wire_len;
    char *plain; /* decrypted */
    size_t plain_len;
    bool busy;         /* answers of reads wait for the next write, as beside a send */
    size_t answer_max; /* the most bytes that waited for it at a time */
} tls_side;

static inline void tls_take_out(tls_side *s, ls_filter_out *out)
{
    assert_true(out->count <= LS_FILTER_OUT_MAX);
    for (unsigned i = 0; i < out->count; i++) {
        assert_true(out->slices[i].len > 0);
        s->wire = realloc(s->wire, s->wire_len + out->slices[i].len);
        assert_non_null(s->wire);
        memcpy(s->wire + s->wire_len, out->slices[i].ptr, out->slices[i].len);
        s->wire_len += out->slices[i].len;
    }
    ls_slices_drop(out->slices, out->count);
    out->count = 0;
}

static inline tls_side tls_side_open(ls_tls *tls, const char *server_name, ls_pool *pool)
{
    tls_side s = {.pool = pool, .handshake = LS_EAGAIN, .reading = LS_EAGAIN};
    assert_int_equal(ls_tls_session(tls, server_name, &s.f), LS_OK);
    return s;
}

static inline void tls_side_close(tls_side *s)
{
    s->f->type->free(s->f);
    free(s->wire);
    free(s->plain);
}

/* Read as a stream does, which sends at once what a read answers. */
static inline int64_t tls_read(tls_side *s, char *to, size_t len)
{
    int64_t n;
    do {
        const uint32_t before = s->f->answer_len;
        n = s->f->type->read(s->f, to, len);
        if (s->f->answer_len > s->answer_max) s->answer_max = s->f->answer_len;
        if (s->busy || s->f->answer_len <= before) continue;
        s->wire = realloc(s->wire, s->wire_len + s->f->answer_len);
        assert_non_null(s->wire);
        memcpy(s->wire + s->wire_len, s->f->answer, s->f->answer_len);
        s->wire_len += s->f->answer_len;
        s->f->answer_len = 0;
    } while (n == LS_EAGAIN && s->f->type->has_input(s->f));
    return n;
}

/* Continue: the handshake, or reading. */
static inline void tls_step(tls_side *s)
{
    if (s->handshake == LS_EAGAIN) {
        ls_filter_out out = {.pool = s->pool};
        s->handshake = ls_tls_handshake(s->f, &out);
        tls_take_out(s, &out);
    }
    if (s->handshake != LS_DONE) return;
    do {
        char room[5000];
        s->reading = tls_read(s, room, sizeof room);
        if (s->reading <= 0) return;
        s->plain = realloc(s->plain, s->plain_len + (size_t)s->reading);
        assert_non_null(s->plain);
        memcpy(s->plain + s->plain_len, room, (size_t)s->reading);
        s->plain_len += (size_t)s->reading;
    } while (true);
}

static inline void tls_feed(tls_side *to, const void *bytes, size_t len)
{
    to->f->type->feed(to->f, tls_slice(bytes, len));
    tls_step(to);
}

static inline void tls_feed_end(tls_side *to)
{
    to->f->type->feed_end(to->f);
    tls_step(to);
}

/* Deliver what `from` wrote in pieces of at most `piece` bytes. */
static inline void tls_deliver(tls_side *from, tls_side *to, size_t piece)
{
    for (size_t at = 0; at < from->wire_len; at += piece)
        tls_feed(to, from->wire + at, from->wire_len - at < piece ? from->wire_len - at : piece);
    from->wire_len = 0;
}

/* Let both run until neither has anything to send. */
static inline void tls_run(tls_side *client, tls_side *server, size_t piece)
{
    tls_step(client);
    tls_step(server);
    while (client->wire_len > 0 || server->wire_len > 0) {
        tls_deliver(client, server, piece);
        tls_deliver(server, client, piece);
    }
}

/* Write all of the slices. Returns the number of calls of write. */
static inline unsigned tls_write_all(tls_side *s, ls_slice *slices, unsigned count)
{
    unsigned calls = 0;
    while (ls_slices_bytes(slices, count) > 0) {
        ls_filter_out out = {.pool = s->pool};
        const int64_t n = s->f->type->write(s->f, slices, count, &out);
        assert_true(n > 0);
        tls_take_out(s, &out);
        calls++;
        size_t left = (size_t)n;
        for (unsigned i = 0; i < count; i++) {
            const size_t part = left < slices[i].len ? left : slices[i].len;
            slices[i].ptr += part; /* of a file: the offset */
            slices[i].len -= part;
            left -= part;
        }
        assert_int_equal(left, 0);
    }
    return calls;
}

static inline void tls_send(tls_side *s, const void *bytes, size_t len)
{
    ls_slice slice = ls_slice_static(bytes, len);
    (void)tls_write_all(s, &slice, 1);
}

static inline int tls_end(tls_side *s)
{
    ls_filter_out out = {.pool = s->pool};
    const int err = s->f->type->end(s->f, &out);
    tls_take_out(s, &out);
    return err;
}

/* The plaintext lengths of the records in s->wire, as TLS 1.3 with a 16-byte tag has them; returns their number. */
static inline unsigned tls_records(const tls_side *s, size_t *lens, unsigned max)
{
    unsigned count = 0;
    for (size_t at = 0; at < s->wire_len;) {
        const unsigned char *record = (const unsigned char *)s->wire + at;
        assert_true(s->wire_len - at >= 5);
        const size_t len = (size_t)record[3] << 8 | record[4];
        assert_int_equal(record[0], 23);
        assert_true(len >= 17 && len <= 16384 + 17 && len <= s->wire_len - at - 5);
        if (count < max) lens[count] = len - 17;
        count++;
        at += 5 + len;
    }
    return count;
}

#endif
