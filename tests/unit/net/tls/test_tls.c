/* test_tls.c - sessions of TLS, a client and a server back to back in memory: the handshake with input cut at every
 * byte, records and their sizes, files, the orderly end and the truncated one, forged and garbage input. */
/* sanitizers: asan; no thread starts */
#define _GNU_SOURCE /* mkdtemp */
#include "net/tls/tls_fixture.h"

#include "net/tls/tls_internal_openssl.h"
#include "port/file/shared_file.h"

enum { WHOLE = 1 << 20, RECORD = 16384 };

typedef struct fixture {
    tls_dir *dir;
    tls_pools pools;
    ls_tls *server_tls, *client_tls;
    tls_side client, server;
} fixture;

static ls_tls *open_tls(ls_tls_options options)
{
    char why[TLS_WHY];
    ls_tls *tls = NULL;
    if (ls_tls_open(&options, &tls, why, sizeof why) < 0) fail_msg("%s", why);
    assert_string_equal(why, "");
    return tls;
}

static fixture *fixture_of(fixture parts)
{
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    *f = parts;
    return f;
}

static fixture *open_with(ls_tls_options server, ls_tls_options client, const char *server_name)
{
    fixture *f = fixture_of((fixture){.dir = tls_dir_open(), .pools = tls_pools_open(TLS_POOL_BYTES)});
    ls_tls_cert files = tls_files(f->dir, "server", (tls_wish){.cn = "example.org", .san = "DNS:example.org"}, NULL);
    server.server = true;
    if (!server.self_signed) {
        server.certs = &files;
        server.cert_count = 1;
        if (!client.insecure) client.ca = files.cert;
    }
    f->server_tls = open_tls(server);
    f->client_tls = open_tls(client);
    f->client = tls_side_open(f->client_tls, server_name, f->pools.pool);
    f->server = tls_side_open(f->server_tls, NULL, f->pools.pool);
    return f;
}

static void fixture_close(fixture *f)
{
    tls_side_close(&f->client);
    tls_side_close(&f->server);
    ls_tls_drop(f->client_tls);
    ls_tls_drop(f->server_tls);
    tls_pools_close(&f->pools);
    tls_dir_close(f->dir);
    free(f);
}

/* Connected, nothing in flight. */
static fixture *open_connected(ls_tls_options server, ls_tls_options client)
{
    fixture *f = open_with(server, client, "example.org");
    tls_run(&f->client, &f->server, WHOLE);
    if (f->client.handshake != LS_DONE) fail_msg("client: %s", ls_tls_why(f->client.f));
    if (f->server.handshake != LS_DONE) fail_msg("server: %s", ls_tls_why(f->server.f));
    return f;
}

static const ls_tls_options no_options;

static char *text_of(size_t len)
{
    char *text = malloc(len);
    assert_non_null(text);
    for (size_t i = 0; i < len; i++) text[i] = (char)('a' + (i * 7 + i / 251) % 26);
    return text;
}

static void assert_plain(const tls_side *s, const void *bytes, size_t len)
{
    assert_int_equal(s->plain_len, len);
    assert_memory_equal(s->plain, bytes, len);
}

/* ---- the handshake ------------------------------------------------------------------------------------------ */

static void both_sides_exchange_data(fixture *f, size_t piece)
{
    tls_run(&f->client, &f->server, piece);
    assert_int_equal(f->client.handshake, LS_DONE);
    assert_int_equal(f->server.handshake, LS_DONE);
    tls_send(&f->client, "question", 8);
    tls_send(&f->server, "answer", 6);
    tls_run(&f->client, &f->server, piece);
    assert_plain(&f->server, "question", 8);
    assert_plain(&f->client, "answer", 6);
    assert_int_equal(f->server.reading, LS_EAGAIN);
    assert_false(f->server.f->type->has_input(f->server.f));
}

TEST(a_handshake_works_with_input_cut_anywhere)
{
    static const size_t pieces[] = {1, 2, 3, 5, 7, 64, 1000, WHOLE};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        fixture *f = open_with(no_options, no_options, "example.org");
        both_sides_exchange_data(f, pieces[i]);
        fixture_close(f);
    }
}

/* Up to where the last bytes of the client's handshake are on their way to the server. */
static fixture *open_almost_connected(void)
{
    fixture *f = open_with(no_options, no_options, "example.org");
    tls_step(&f->client);
    tls_deliver(&f->client, &f->server, WHOLE);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_int_equal(f->client.handshake, LS_DONE);
    assert_int_equal(f->server.handshake, LS_EAGAIN);
    return f;
}

/* At once: a client with Nagle's algorithm sends its request only when these bytes are acknowledged. */
TEST_WITH(fixture, f, one_ticket_follows_a_handshake, open_almost_connected())
{
    size_t lens[4];
    tls_deliver(&f->client, &f->server, WHOLE);
    assert_int_equal(f->server.handshake, LS_DONE);
    assert_int_equal(tls_records(&f->server, lens, 4), 1);
}

/* Behind a handshake whose last bytes came with a request there will be a response. */
TEST(a_ticket_leaves_with_the_response_to_a_request_that_is_here)
{
    for (int answers = 0; answers < 2; answers++) {
        fixture *f = open_almost_connected();
        size_t lens[4];
        tls_send(&f->client, "question", 8);
        tls_deliver(&f->client, &f->server, WHOLE);
        assert_int_equal(f->server.handshake, LS_DONE);
        assert_plain(&f->server, "question", 8);
        assert_int_equal(f->server.wire_len, 0);
        if (answers)
            tls_send(&f->server, "answer", 6);
        else
            assert_int_equal(tls_end(&f->server), LS_OK);
        assert_int_equal(tls_records(&f->server, lens, 4), 2);
        tls_deliver(&f->server, &f->client, WHOLE);
        assert_plain(&f->client, "answer", answers ? 6 : 0);
        assert_int_equal(f->client.reading, answers ? LS_EAGAIN : 0);
        fixture_close(f);
    }
}

/* No option asks for TLS 1.2 alone, so the sessions are taken back to it by OpenSSL's function. */
static void allow_at_most_tls_1_2(tls_side *s)
{
    assert_int_equal(SSL_set_max_proto_version(((ls_tls_conn *)(void *)s->f)->ssl, TLS1_2_VERSION), 1);
}

/* In TLS 1.2 the last bytes of a server belong to the handshake: they never wait for a response. */
TEST_WITH(fixture, f, the_end_of_a_handshake_of_tls_1_2_leaves_at_once,
          open_with(no_options, no_options, "example.org"))
{
    char wire[4096];
    allow_at_most_tls_1_2(&f->client);
    tls_step(&f->client);
    tls_deliver(&f->client, &f->server, WHOLE);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_int_equal(f->client.handshake, LS_EAGAIN); /* it has sent its last bytes */
    assert_in_range(f->client.wire_len, 1, sizeof wire - 5);
    memcpy(wire, f->client.wire, f->client.wire_len);
    memcpy(wire + f->client.wire_len, "\x17\x03\x03\x01\x00", 5); /* and the start of a record of data */
    tls_feed(&f->server, wire, f->client.wire_len + 5);
    assert_int_equal(f->server.handshake, LS_DONE);
    assert_true(f->server.wire_len > 0);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_int_equal(f->client.handshake, LS_DONE);
}

TEST(tls_1_2_works_with_input_cut_anywhere)
{
    static const char *const ciphers[] = {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA384",
                                          "ECDHE-ECDSA-CHACHA20-POLY1305"};
    for (size_t i = 0; i < sizeof ciphers / sizeof ciphers[0]; i++) {
        for (size_t piece = 1; piece <= WHOLE; piece *= 32) {
            fixture *f = open_with((ls_tls_options){.ciphers = ciphers[i]}, (ls_tls_options){.ciphers = ciphers[i]},
                                   "example.org");
            ls_tls_peer peer;
            char *text = text_of(50000);
            allow_at_most_tls_1_2(&f->client);
            both_sides_exchange_data(f, piece);
            ls_tls_peer_of(f->client.f, &peer);
            assert_string_equal(peer.version, "TLSv1.2");
            assert_string_equal(peer.cipher, ciphers[i]);
            f->client.plain_len = 0;
            tls_send(&f->server, text, 50000);
            tls_run(&f->client, &f->server, piece);
            assert_plain(&f->client, text, 50000);
            free(text);
            fixture_close(f);
        }
    }
}

/* A client that asks for a new handshake gets a warning at once. */
TEST_WITH(fixture, f, renegotiation_is_refused, open_with(no_options, no_options, "example.org"))
{
    ls_tls_conn *client = (ls_tls_conn *)(void *)f->client.f;
    ls_filter_out out = {.pool = f->pools.pool};
    allow_at_most_tls_1_2(&f->client);
    both_sides_exchange_data(f, WHOLE);
    SSL_clear_options(client->ssl, SSL_OP_NO_RENEGOTIATION);
    assert_int_equal(SSL_renegotiate(client->ssl), 1);
    client->complete = false;
    assert_int_equal(ls_tls_handshake(f->client.f, &out), LS_EAGAIN);
    client->complete = true;
    tls_take_out(&f->client, &out);
    tls_deliver(&f->client, &f->server, WHOLE);
    assert_int_equal(f->server.reading, LS_EAGAIN);
    assert_true(f->server.wire_len > 0);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_int_equal(f->client.reading, LS_EPROTO);
    assert_string_equal(ls_tls_why(f->client.f), "no renegotiation");
}

/* The client sends KeyUpdates that ask for answers (RFC 8446 section 4.6.3), then a question. */
static void update_keys(fixture *f, int count)
{
    ls_tls_conn *client = (ls_tls_conn *)(void *)f->client.f;
    for (int i = 0; i < count; i++) {
        ls_filter_out out = {.pool = f->pools.pool};
        assert_int_equal(SSL_key_update(client->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        client->complete = false;
        assert_int_equal(ls_tls_handshake(f->client.f, &out), LS_DONE);
        tls_take_out(&f->client, &out);
    }
    tls_send(&f->client, "question", 8);
}

/* Any number that arrives together is answered, the last one in front of the next data, and few of the answers wait at
 * a time. */
TEST(many_keys_are_updated)
{
    static const int counts[] = {1, 40, 200, 5000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        fixture *f = open_connected(no_options, no_options);
        size_t lens[1];
        f->server.answer_max = 0;
        update_keys(f, counts[i]);
        tls_deliver(&f->client, &f->server, WHOLE);
        assert_int_equal(f->server.reading, LS_EAGAIN);
        assert_plain(&f->server, "question", 8);
        assert_int_equal(tls_records(&f->server, lens, 1), counts[i] - 1);
        assert_in_range(f->server.answer_max, 0, 17000);
        tls_send(&f->server, "answer", 6);
        assert_int_equal(tls_records(&f->server, lens, 1), counts[i] + 1);
        tls_deliver(&f->server, &f->client, WHOLE);
        assert_plain(&f->client, "answer", 6);
        fixture_close(f);
    }
}

/* While a send is pending the answers wait for the next write. A peer that does not receive them cannot go on for
 * ever. */
TEST(updates_of_keys_beside_a_send)
{
    for (int too_many = 0; too_many < 2; too_many++) {
        fixture *f = open_connected(no_options, no_options);
        f->server.busy = true;
        for (int i = 0; i < 2; i++) {
            update_keys(f, too_many ? 1000 : 200);
            tls_deliver(&f->client, &f->server, 1000);
            assert_int_equal(f->server.wire_len, 0);
            assert_in_range(f->server.f->answer_len, 1, 17000);
            if (too_many) break;
            tls_send(&f->server, "answer", 6);
            assert_int_equal(f->server.f->answer_len, 0);
            tls_deliver(&f->server, &f->client, WHOLE);
        }
        if (too_many) {
            assert_int_equal(f->server.reading, LS_EPROTO);
            assert_string_equal(ls_tls_why(f->server.f), "the peer does not receive the answers to its KeyUpdates");
        } else {
            assert_plain(&f->server, "questionquestion", 16);
            assert_plain(&f->client, "answeranswer", 12);
        }
        fixture_close(f);
    }
}

/* Behind a close_notify they are not answered. */
TEST_WITH(fixture, f, keys_are_updated_after_the_end, open_connected(no_options, no_options))
{
    assert_int_equal(tls_end(&f->server), LS_OK);
    update_keys(f, 1000);
    f->server.wire_len = 0;
    tls_deliver(&f->client, &f->server, WHOLE);
    assert_plain(&f->server, "question", 8);
    assert_int_equal(f->server.reading, LS_EAGAIN);
    assert_int_equal(f->server.wire_len, 0);
}

TEST_WITH(fixture, f, keys_are_updated, open_connected(no_options, no_options))
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(SSL_key_update(((ls_tls_conn *)(void *)f->client.f)->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        tls_send(&f->client, "question", 8);
        tls_send(&f->server, "answer", 6);
        tls_run(&f->client, &f->server, 3);
    }
    assert_plain(&f->server, "questionquestionquestion", 24);
    assert_plain(&f->client, "answeransweranswer", 18);
}

TEST_WITH(fixture, f, the_peer_is_described,
          open_connected((ls_tls_options){.alpn = "h2,http/1.1"}, (ls_tls_options){.alpn = "http/1.1"}))
{
    ls_tls_peer peer;
    char hex[96];
    ls_tls_peer_of(f->client.f, &peer);
    assert_string_equal(peer.version, "TLSv1.3");
    assert_string_equal(peer.cipher, "TLS_AES_256_GCM_SHA384");
    assert_string_equal(peer.alpn, "http/1.1");
    assert_string_equal(peer.subject, "CN=example.org");
    assert_string_equal(peer.issuer, "CN=example.org");
    assert_true(peer.verified);
    assert_false(peer.resumed);
    ls_tls_fingerprint(f->server_tls, hex);
    assert_int_equal(strlen(hex), 95);
    assert_string_equal(peer.fingerprint, hex);
    ls_tls_peer_of(f->server.f, &peer);
    assert_string_equal(peer.alpn, "http/1.1");
    assert_string_equal(peer.server_name, "example.org");
    assert_false(peer.verified);
    assert_string_equal(peer.subject, "");
    assert_string_equal(peer.fingerprint, "");
}

/* The first failure of a handshake that must fail, on one side. */
static void fails(ls_tls_options server, ls_tls_options client, const char *server_name, int server_err,
                  const char *server_why, int client_err, const char *client_why)
{
    fixture *f = open_with(server, client, server_name);
    tls_run(&f->client, &f->server, WHOLE);
    if (server_why != NULL) {
        assert_int_equal(f->server.handshake, server_err);
        assert_string_equal(ls_tls_why(f->server.f), server_why);
    }
    if (client_why != NULL) {
        assert_int_equal(f->client.handshake == LS_DONE ? f->client.reading : f->client.handshake, client_err);
        assert_string_equal(ls_tls_why(f->client.f), client_why);
    }
    assert_false(f->server.f->type->has_input(f->server.f));
    fixture_close(f);
}

/* Neither side keeps a key of the key exchange. */
TEST(keys_of_the_exchange_are_wiped)
{
    for (int old = 0; old < 2; old++) {
        fixture *f = open_with(no_options, no_options, "example.org");
        if (old) allow_at_most_tls_1_2(&f->client);
        both_sides_exchange_data(f, WHOLE);
        const tls_side *const sides[] = {&f->client, &f->server};
        for (int i = 0; i < 2; i++) {
            SSL *ssl = ((ls_tls_conn *)(void *)sides[i]->f)->ssl;
            EVP_PKEY *keys[2] = {NULL, NULL};
            unsigned char raw[64];
            (void)SSL_get_tmp_key(ssl, &keys[0]);
            (void)SSL_get_peer_tmp_key(ssl, &keys[1]);
            if (!old) assert_true(keys[0] != NULL && keys[1] != NULL);
            for (int k = 0; k < 2; k++) {
                size_t len = sizeof raw;
                if (keys[k] != NULL) assert_int_not_equal(EVP_PKEY_get_raw_private_key(keys[k], raw, &len), 1);
                if (keys[k] != NULL) assert_int_not_equal(EVP_PKEY_get_raw_public_key(keys[k], raw, &len), 1);
                EVP_PKEY_free(keys[k]);
            }
        }
        ERR_clear_error();
        fixture_close(f);
    }
}

TEST(a_failed_handshake_names_the_reason_and_sends_an_alert)
{
    const ls_tls_options none = no_options;
    fails(none, none, "other.example", LS_EPROTO, "the peer reports: bad certificate", LS_ECERT,
          "the certificate is not for other.example");
    fails(none, none, "127.0.0.1", LS_EPROTO, "the peer reports: bad certificate", LS_ECERT,
          "the certificate is not for 127.0.0.1");
    fails((ls_tls_options){.self_signed = true}, none, "localhost", LS_EPROTO, "the peer reports: unknown ca",
          LS_ECERT, "the certificate of localhost is not accepted: self-signed certificate");
    fails((ls_tls_options){.alpn = "h2"}, (ls_tls_options){.alpn = "http/1.1"}, "example.org", LS_EPROTO,
          "no common application protocol (ALPN)", LS_EPROTO, "the peer reports: no application protocol");
    fails((ls_tls_options){.ciphers = "TLS_AES_128_GCM_SHA256", .min = "1.3"},
          (ls_tls_options){.ciphers = "TLS_CHACHA20_POLY1305_SHA256", .min = "1.3"}, "example.org", LS_EPROTO,
          "no common cipher", LS_EPROTO, "the peer reports: handshake failure");
}

/* A ClientHello of TLS 1.2 without the extension supported_versions. */
TEST_WITH(fixture, f, an_old_version_is_refused, open_with((ls_tls_options){.min = "1.3"}, no_options, "example.org"))
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    char hello[1000];
    SSL_set_max_proto_version(ssl, TLS1_2_VERSION);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    (void)SSL_do_handshake(ssl);
    const int len = BIO_read(SSL_get_wbio(ssl), hello, sizeof hello);
    assert_true(len > 0);
    tls_feed(&f->server, hello, (size_t)len);
    assert_int_equal(f->server.handshake, LS_EPROTO);
    assert_string_equal(ls_tls_why(f->server.f), "the peer offers only versions of TLS that are too old");
    assert_int_equal(f->server.wire_len, 7);
    assert_memory_equal(f->server.wire, "\x15\x03\x03\0\x02\x02\x46", 7); /* alert, fatal, protocol_version */
    SSL_free(ssl);
    SSL_CTX_free(ctx);
}

TEST_WITH(fixture, f, without_a_name_to_check_there_is_no_session, open_with(no_options, no_options, "example.org"))
{
    ls_tls *insecure = open_tls((ls_tls_options){.insecure = true});
    char name[300];
    ls_filter *session = NULL;
    memset(name, 'a', sizeof name);
    for (size_t i = 20; i < sizeof name; i += 20) name[i] = '.';
    assert_int_equal(ls_tls_session(f->client_tls, NULL, &session), LS_EINVAL);
    assert_int_equal(ls_tls_session(f->client_tls, "", &session), LS_EINVAL);
    assert_int_equal(ls_tls_session(f->client_tls, ".", &session), LS_EINVAL);
    name[254] = '\0';
    assert_int_equal(ls_tls_session(f->client_tls, name, &session), LS_EINVAL);
    assert_null(session);
    name[253] = '\0';
    assert_int_equal(ls_tls_session(f->client_tls, name, &session), LS_OK);
    session->type->free(session);
    assert_int_equal(ls_tls_session(insecure, NULL, &session), LS_OK);
    session->type->free(session);
    ls_tls_drop(insecure);
}

TEST(addresses_and_absolute_names_are_checked)
{
    static const char *const names[] = {"127.0.0.1", "::1", "::1%lo", "localhost", "LOCALHOST", "localhost."};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture *f = fixture_of((fixture){.dir = tls_dir_open(), .pools = tls_pools_open(TLS_POOL_BYTES)});
        ls_tls_cert files =
            tls_files(f->dir, "c", (tls_wish){.cn = "x", .san = "DNS:localhost,IP:127.0.0.1,IP:::1"}, NULL);
        ls_tls_peer peer;
        f->server_tls = open_tls((ls_tls_options){.server = true, .certs = &files, .cert_count = 1});
        f->client_tls = open_tls((ls_tls_options){.ca = files.cert});
        f->client = tls_side_open(f->client_tls, names[i], f->pools.pool);
        f->server = tls_side_open(f->server_tls, NULL, f->pools.pool);
        both_sides_exchange_data(f, WHOLE);
        ls_tls_peer_of(f->server.f, &peer);
        if (i < 3)
            assert_null(peer.server_name); /* an address is not sent as a name */
        else
            assert_int_equal(strlen(peer.server_name), 9);
        fixture_close(f);
    }
}

TEST_WITH(fixture, f, a_self_signed_server_works_with_an_insecure_client,
          open_with((ls_tls_options){.self_signed = true}, (ls_tls_options){.insecure = true}, "localhost"))
{
    ls_tls_peer peer;
    char hex[96];
    both_sides_exchange_data(f, WHOLE);
    ls_tls_peer_of(f->client.f, &peer);
    ls_tls_fingerprint(f->server_tls, hex);
    assert_string_equal(peer.fingerprint, hex);
    assert_string_equal(peer.subject, "CN=localhost");
    assert_false(peer.verified);
}

TEST(a_peer_that_does_not_speak_tls_is_recognised)
{
    static const struct {
        const char *bytes, *alert, *why;
    } cases[] = {{"GET / HTTP/1.1\r\n\r\n", "\x15\x03\x03\0\x02\x02\x0a", "the peer does not speak TLS"},
                 {"hello, is this SMTP?", "\x15\x03\x03\0\x02\x02\x0a", "the peer does not speak TLS"},
                 {"\x16\x09\x09\x01\x01 another version", "\x15\x03\x03\0\x02\x02\x46", "wrong version number"}};
    fixture *f = open_with(no_options, no_options, "example.org");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tls_side server = tls_side_open(f->server_tls, NULL, f->pools.pool);
        tls_feed(&server, cases[i].bytes, strlen(cases[i].bytes));
        assert_int_equal(server.handshake, LS_EPROTO);
        assert_string_equal(ls_tls_why(server.f), cases[i].why);
        assert_int_equal(server.wire_len, 7);
        assert_memory_equal(server.wire, cases[i].alert, 7);
        tls_side_close(&server);
    }
    tls_step(&f->client);
    tls_feed(&f->client, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    assert_int_equal(f->client.handshake, LS_EPROTO);
    assert_string_equal(ls_tls_why(f->client.f), "the server does not speak TLS");
    fixture_close(f);
}

/* An alert is not answered with an alert (RFC 8446 section 6.2), nor is the end of the stream. */
TEST_WITH(fixture, f, only_one_alert_is_sent, open_almost_connected())
{
    tls_feed(&f->server, "\x15\x03\x03\0\x02\x02\x2a", 7); /* bad_certificate */
    assert_int_equal(f->server.handshake, LS_EPROTO);
    assert_int_equal(f->server.wire_len, 0);
}

/* A client that sends nothing, or a part of its first record, costs the server only the struct of the session and
 * these bytes: no block is kept. */
TEST_WITH(fixture, f, a_client_takes_no_memory_of_openssl_before_its_first_record,
          open_with(no_options, no_options, "example.org"))
{
    const ls_tls_conn *server = (ls_tls_conn *)(void *)f->server.f;
    ls_tls_peer peer;
    tls_step(&f->server);
    tls_step(&f->client);
    const size_t len = f->client.wire_len;
    for (size_t at = 0; at < len; at++) {
        assert_int_equal(f->server.handshake, LS_EAGAIN);
        assert_null(server->ssl);
        assert_int_equal(server->in.len, 0);
        assert_int_equal(server->first_len, at);
        assert_true(ls_tls_is_small(f->server.f));
        assert_false(f->server.f->type->has_input(f->server.f));
        ls_block *block = ls_block_get(f->pools.pool, LS_BLOCK_SMALL);
        block->data[0] = f->client.wire[at];
        f->server.f->type->feed(f->server.f, (ls_slice){block, block->data, 1});
        tls_step(&f->server);
        if (at + 1 < len) assert_int_equal(tls_stats(&f->pools).blocks_live, 0);
    }
    assert_non_null(server->ssl);
    assert_null(server->first);
    assert_false(ls_tls_is_small(f->server.f));
    f->client.wire_len = 0;
    both_sides_exchange_data(f, WHOLE);
    tls_side_close(&f->server);
    f->server = tls_side_open(f->server_tls, NULL, f->pools.pool);
    ls_tls_peer_of(f->server.f, &peer);
    assert_null(peer.version);
    assert_int_equal(tls_end(&f->server), LS_OK);
    tls_feed_end(&f->server);
    assert_int_equal(f->server.handshake, LS_ETRUNCATED);
}

/* OpenSSL sees the first record when it is whole, or when it can refuse what there is; a large one is not small. */
TEST(the_first_record)
{
    static const struct {
        const char *bytes;
        size_t len, whole; /* opened with this many bytes; 0: not with these */
    } cases[] = {{"\x16\x03\x01\0\x05garbage", 12, 10},  {"\x15\x03\x03\0\x02\x02\x28", 7, 7},
                 {"\x16\x09\x01\x40\0 version", 12, 5},  {"hello, SMTP", 11, 5},
                 {"\x80\x0a\x01\x03\x03 SSL 2", 12, 12}, {"\x16\x03\x03\x40\x01 too long", 14, 5},
                 {"\x80\x03\x01\x03\x03", 5, 5},         {"\x16\x03\x03\x40\0 16 KiB", 12, 0}};
    fixture *f = open_with(no_options, no_options, "example.org");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tls_side server = tls_side_open(f->server_tls, NULL, f->pools.pool);
        size_t at = 0;
        while (at < cases[i].len && ((ls_tls_conn *)(void *)server.f)->ssl == NULL) {
            server.f->type->feed(server.f, tls_slice(cases[i].bytes + at++, 1));
            tls_step(&server);
        }
        if (cases[i].whole > 0) assert_int_equal(at, cases[i].whole);
        assert_int_equal(((ls_tls_conn *)(void *)server.f)->ssl != NULL, cases[i].whole > 0);
        tls_side_close(&server);
    }
    tls_side server = tls_side_open(f->server_tls, NULL, f->pools.pool);
    char zeros[2048] = {0x16, 3, 1, 0x40, 0};
    tls_feed(&server, zeros, sizeof zeros);
    assert_true(ls_tls_is_small(server.f));
    tls_feed(&server, "", 1);
    assert_false(ls_tls_is_small(server.f));
    tls_side_close(&server);
    fixture_close(f);
}

TEST_WITH(fixture, f, the_end_of_the_stream_ends_a_handshake, open_with(no_options, no_options, "example.org"))
{
    tls_step(&f->client);
    tls_feed(&f->server, f->client.wire, f->client.wire_len - 1);
    tls_feed_end(&f->server);
    assert_int_equal(f->server.handshake, LS_ETRUNCATED);
    assert_string_equal(ls_tls_why(f->server.f), "the connection was closed during the handshake");
}

/* Every value of each of the first bytes of a ClientHello, and garbage; the server stays in order and says why. */
TEST_WITH(fixture, f, garbage_is_refused, open_with(no_options, no_options, "example.org"))
{
    char hello[2000], garbage[1000];
    tls_step(&f->client);
    const size_t len = f->client.wire_len;
    assert_true(len < sizeof hello);
    memcpy(hello, f->client.wire, len);
    for (size_t at = 0; at < 48; at++) {
        for (unsigned value = 0; value < 256; value += at < 11 ? 1 : 51) {
            tls_side server = tls_side_open(f->server_tls, NULL, f->pools.pool);
            const char was = hello[at];
            hello[at] = (char)value;
            tls_feed(&server, hello, len);
            hello[at] = was;
            tls_feed_end(&server);
            assert_true(server.handshake == LS_EPROTO || server.handshake == LS_ETRUNCATED);
            assert_true(strlen(ls_tls_why(server.f)) > 0);
            tls_side_close(&server);
        }
    }
    for (unsigned seed = 0; seed < 200; seed++) {
        tls_side server = tls_side_open(f->server_tls, NULL, f->pools.pool);
        unsigned n = seed * 2654435761u;
        for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = (char)((n = n * 1664525 + 1013904223) >> 24);
        tls_feed(&server, garbage, sizeof garbage);
        tls_feed_end(&server);
        assert_true(server.handshake < 0 && server.handshake != LS_EAGAIN);
        tls_side_close(&server);
    }
}

/* ---- records ------------------------------------------------------------------------------------------------ */

TEST_WITH(fixture, f, head_and_body_leave_in_one_record, open_connected(no_options, no_options))
{
    char head[150], body[8000];
    size_t lens[4];
    memset(head, 'h', sizeof head);
    memset(body, 'b', sizeof body);
    ls_slice slices[] = {ls_slice_static(head, sizeof head), ls_slice_static(body, 0),
                         ls_slice_static(body, sizeof body)};
    assert_int_equal(tls_write_all(&f->server, slices, 3), 1);
    assert_int_equal(tls_records(&f->server, lens, 4), 1);
    assert_int_equal(lens[0], sizeof head + sizeof body);
    assert_int_equal(tls_stats(&f->pools).bytes_encrypted, sizeof head + sizeof body);
    assert_int_equal(tls_stats(&f->pools).bytes_copied, 0);
    tls_run(&f->client, &f->server, WHOLE);
    assert_int_equal(f->client.plain_len, sizeof head + sizeof body);
    assert_memory_equal(f->client.plain, head, sizeof head);
    assert_memory_equal(f->client.plain + sizeof head, body, sizeof body);
}

/* Exactly the first flight leaves in one record; one byte more begins with records of a segment. */
TEST_WITH(fixture, f, a_long_burst_begins_with_small_records, open_connected(no_options, no_options))
{
    enum { FLIGHT = 13000, LONG = 100000 };
    size_t lens[16];
    char *text = text_of(LONG);
    tls_send(&f->server, text, 1000); /* a head that leaves alone: the body may fill the rest of the flight */
    tls_send(&f->server, text, FLIGHT - 1000);
    assert_int_equal(tls_records(&f->server, lens, 16), 2);
    f->server.wire_len = 0; /* lost: the rest is not decrypted */

    tls_send(&f->server, text, LONG); /* no request in between: the same burst */
    assert_int_equal(tls_records(&f->server, lens, 16), 7);
    assert_int_equal(lens[0], RECORD);
    f->server.wire_len = 0;

    tls_send(&f->client, "next", 4);
    tls_deliver(&f->client, &f->server, WHOLE);
    tls_send(&f->server, text, FLIGHT + 1);
    assert_int_equal(tls_records(&f->server, lens, 16), 4);
    assert_int_equal(lens[0], 1300);
    assert_int_equal(lens[1], 1300);
    assert_int_equal(lens[2], 1300);
    assert_int_equal(lens[3], FLIGHT + 1 - 3900);
    f->server.wire_len = 0;
    free(text);
}

/* One call fills at most LS_FILTER_OUT_MAX blocks; tls_take_out checks that. */
TEST(a_mebibyte_arrives_whole)
{
    enum { LEN = 1 << 20 };
    static const size_t pieces[] = {WHOLE, 16384, 4096, 1501};
    char *text = text_of(LEN);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        fixture *f = open_connected(no_options, no_options);
        ls_slice slices[] = {ls_slice_static(text, 1), ls_slice_static(text + 1, 16383),
                             ls_slice_static(text + 16384, 16385), ls_slice_static(text + 32769, LEN - 32769)};
        const unsigned calls = tls_write_all(&f->server, slices, 4);
        assert_in_range(calls, 4, 6);
        tls_run(&f->client, &f->server, pieces[i]);
        assert_plain(&f->client, text, LEN);
        assert_int_equal(tls_stats(&f->pools).bytes_encrypted, LEN);
        fixture_close(f);
    }
    free(text);
}

/* A close_notify fits behind every write, also one that filled `out`. */
TEST_WITH(fixture, f, the_end_fits_behind_a_full_write, open_connected(no_options, no_options))
{
    enum { LEN = 1 << 20 };
    char *text = text_of(LEN);
    const ls_slice slice = ls_slice_static(text, LEN);
    ls_filter_out out = {.pool = f->pools.pool};
    const int64_t n = f->server.f->type->write(f->server.f, &slice, 1, &out);
    assert_in_range(n, 200000, 4 * 65536);
    assert_int_equal(f->server.f->type->end(f->server.f, &out), LS_OK);
    tls_take_out(&f->server, &out);
    tls_run(&f->client, &f->server, WHOLE);
    assert_plain(&f->client, text, (size_t)n);
    assert_int_equal(f->client.reading, 0);

    /* Every amount with which the output is about full: no record and no end may need more than there is. */
    enum { ROOM = LS_FILTER_OUT_MAX * LS_BLOCK_LARGE };
    for (size_t len = ROOM - 1000; len <= ROOM; len++) {
        ls_filter_out full = {.pool = f->pools.pool};
        const ls_slice most = ls_slice_static(text, len);
        ls_tls_conn *s = (ls_tls_conn *)(void *)f->server.f;
        s->write_ended = false;
        SSL_set_shutdown(s->ssl, 0);
        assert_true(f->server.f->type->write(f->server.f, &most, 1, &full) > 0);
        assert_int_equal(f->server.f->type->end(f->server.f, &full), LS_OK);
        ls_slices_drop(full.slices, full.count);
    }
    free(text);
}

/* With little memory left a write takes less, and without any it fails. */
TEST_WITH(fixture, f, a_write_adapts_to_the_memory_left, open_connected(no_options, no_options))
{
    enum { LEN = 100000 };
    char *text = text_of(LEN);
    ls_slice slice = ls_slice_static(text, LEN);
    tls_pools few = tls_pools_open(3 * LS_BLOCK_SMALL);
    ls_filter_out out = {.pool = few.pool};
    const int64_t n = f->server.f->type->write(f->server.f, &slice, 1, &out);
    assert_in_range(n, 1, 3 * LS_BLOCK_SMALL);
    ls_filter_out none = {.pool = few.pool};
    tls_take_out(&f->server, &out);
    tls_run(&f->client, &f->server, WHOLE);
    assert_plain(&f->client, text, (size_t)n);
    ls_block *blocks[3];
    for (int i = 0; i < 3; i++) assert_non_null(blocks[i] = ls_block_get(few.pool, LS_BLOCK_SMALL));
    assert_int_equal(f->server.f->type->write(f->server.f, &slice, 1, &none), LS_ENOMEM);
    assert_int_equal(none.count, 0);
    for (int i = 0; i < 3; i++) ls_block_drop(blocks[i]);
    free(text);
    tls_pools_close(&few);
}

TEST_WITH(fixture, f, a_read_fills_its_buffer_from_several_records, open_connected(no_options, no_options))
{
    char room[25];
    for (int i = 0; i < 3; i++) tls_send(&f->client, "0123456789", 10);
    f->server.f->type->feed(f->server.f, tls_slice(f->client.wire, f->client.wire_len));
    f->client.wire_len = 0;
    assert_true(f->server.f->type->has_input(f->server.f));
    assert_int_equal(f->server.f->type->read(f->server.f, room, sizeof room), 25);
    assert_memory_equal(room, "0123456789012345678901234", 25);
    assert_true(f->server.f->type->has_input(f->server.f));
    assert_int_equal(f->server.f->type->read(f->server.f, room, sizeof room), 5);
    assert_memory_equal(room, "56789", 5);
    assert_false(f->server.f->type->has_input(f->server.f));
    assert_int_equal(f->server.f->type->read(f->server.f, room, sizeof room), LS_EAGAIN);
}

/* One record delivered in two parts, cut at each of its bytes. */
TEST_WITH(fixture, f, a_record_cut_at_every_byte_arrives, open_connected(no_options, no_options))
{
    for (size_t cut = 1;; cut++) {
        f->server.plain_len = 0;
        tls_send(&f->client, "a text of thirty-two characters.", 32);
        if (cut == f->client.wire_len) break;
        tls_feed(&f->server, f->client.wire, cut);
        assert_int_equal(f->server.reading, LS_EAGAIN);
        assert_int_equal(f->server.plain_len, 0);
        tls_feed(&f->server, f->client.wire + cut, f->client.wire_len - cut);
        assert_plain(&f->server, "a text of thirty-two characters.", 32);
        f->client.wire_len = 0;
    }
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

TEST_WITH(fixture, f, close_notify_ends_both_directions, open_connected(no_options, no_options))
{
    tls_send(&f->client, "last", 4);
    assert_int_equal(tls_end(&f->client), LS_OK);
    assert_int_equal(tls_end(&f->client), LS_OK); /* nothing is appended twice */
    tls_deliver(&f->client, &f->server, WHOLE);
    assert_plain(&f->server, "last", 4);
    assert_int_equal(f->server.reading, 0);
    assert_false(f->server.f->type->has_input(f->server.f));
    tls_feed_end(&f->server);
    assert_int_equal(f->server.reading, 0); /* the end was orderly */

    tls_send(&f->server, "half-closed", 11); /* RFC 8446 section 6.1 */
    assert_int_equal(tls_end(&f->server), LS_OK);
    tls_deliver(&f->server, &f->client, 1);
    assert_plain(&f->client, "half-closed", 11);
    assert_int_equal(f->client.reading, 0);
}

/* Data and the end arrive together: the first read returns the data, and the end is still to be reported. */
TEST_WITH(fixture, f, the_end_behind_data_is_reported_by_the_next_read, open_connected(no_options, no_options))
{
    char room[100];
    tls_send(&f->client, "last", 4);
    tls_end(&f->client);
    f->server.f->type->feed(f->server.f, tls_slice(f->client.wire, f->client.wire_len));
    assert_int_equal(f->server.f->type->read(f->server.f, room, sizeof room), 4);
    assert_true(f->server.f->type->has_input(f->server.f));
    assert_int_equal(f->server.f->type->read(f->server.f, room, sizeof room), 0);
    assert_false(f->server.f->type->has_input(f->server.f));
}

TEST_WITH(fixture, f, a_stream_cut_without_close_notify_is_truncated, open_connected(no_options, no_options))
{
    tls_send(&f->client, "first", 5);
    tls_send(&f->client, "second", 6);
    tls_feed(&f->server, f->client.wire, f->client.wire_len - 1);
    tls_feed_end(&f->server);
    assert_plain(&f->server, "first", 5);
    assert_int_equal(f->server.reading, LS_ETRUNCATED);
}

/* A forged record: read fails, `end` sends the alert, and the peer learns of it. */
TEST(a_forged_record_is_answered_with_an_alert)
{
    for (size_t at = 5; at < 40; at += 7) {
        fixture *f = open_connected(no_options, no_options);
        tls_send(&f->client, "intact", 6);
        const size_t second = f->client.wire_len;
        tls_send(&f->client, "a text that is forged on its way", 32);
        f->client.wire[second + at] ^= 1;
        tls_deliver(&f->client, &f->server, WHOLE);
        assert_plain(&f->server, "intact", 6); /* data in front of it is delivered */
        assert_int_equal(f->server.reading, LS_EPROTO);
        assert_string_equal(ls_tls_why(f->server.f), "forged or damaged record");
        assert_false(f->server.f->type->has_input(f->server.f));
        const size_t alert = f->server.wire_len;
        assert_true(alert > 0);
        assert_int_equal(tls_end(&f->server), LS_OK);
        assert_int_equal(f->server.wire_len, alert);
        tls_deliver(&f->server, &f->client, WHOLE);
        assert_int_equal(f->client.reading, LS_EPROTO);
        assert_string_equal(ls_tls_why(f->client.f), "the peer reports: bad record mac");
        fixture_close(f);
    }
}

TEST(invalid_records_are_refused)
{
    static const struct {
        const char *header, *why;
    } cases[] = {{"\x17\x03\x03\x41\x01", "oversized record"}, /* 2^14 + 256 + 1 bytes */
                 {"\x17\x03\x03\xff\xff", "oversized record"},
                 {"\x17\x02\x03\x00\x20", NULL},
                 {"\x99\x03\x03\x00\x20", NULL}};
    char record[70000];
    memset(record, 'x', sizeof record);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture *f = open_connected(no_options, no_options);
        memcpy(record, cases[i].header, 5);
        tls_feed(&f->server, record, sizeof record);
        assert_int_equal(f->server.reading, LS_EPROTO);
        if (cases[i].why != NULL) assert_string_equal(ls_tls_why(f->server.f), cases[i].why);
        assert_true(strlen(ls_tls_why(f->server.f)) > 0);
        tls_feed(&f->server, record, 100); /* dropped */
        assert_int_equal(f->server.reading, LS_EPROTO);
        fixture_close(f);
    }
}

/* Another library may leave an error in the queue of the thread. */
TEST_WITH(fixture, f, a_foreign_error_of_openssl_does_no_harm, open_with(no_options, no_options, "example.org"))
{
    ERR_raise(ERR_LIB_USER, 1);
    tls_step(&f->client);
    assert_int_equal(f->client.handshake, LS_EAGAIN);
    tls_run(&f->client, &f->server, WHOLE);
    tls_send(&f->client, "text", 4);
    ERR_raise(ERR_LIB_USER, 1);
    tls_feed(&f->server, f->client.wire, f->client.wire_len - 1);
    assert_int_equal(f->server.reading, LS_EAGAIN);
    ERR_clear_error();
}

/* ---- files -------------------------------------------------------------------------------------------------- */

static ls_shared_file *open_file(const char *path)
{
    ls_shared_file *file;
    assert_int_equal(ls_shared_file_open(path, &file), LS_OK);
    return file;
}

TEST_WITH(fixture, f, ranges_of_files_are_encrypted, open_connected(no_options, no_options))
{
    enum { LEN = 300000, FROM = 12345 };
    char *text = text_of(LEN);
    ls_shared_file *file = open_file(tls_write(f->dir, "data", text, LEN));
    ls_slice slices[] = {ls_slice_static("head", 4), ls_shared_file_slice(file, FROM, LEN - FROM),
                         ls_slice_static("tail", 4), ls_shared_file_slice(file, 0, 10)};
    ls_block *const held[] = {slices[1].block, slices[3].block};
    size_t lens[4];
    (void)tls_write_all(&f->server, slices, 4);
    assert_true(tls_records(&f->server, lens, 4) >= 18);
    assert_int_equal(lens[0], 1300); /* the head and the start of the file */
    tls_run(&f->client, &f->server, WHOLE);
    assert_int_equal(f->client.plain_len, 4 + LEN - FROM + 4 + 10);
    assert_memory_equal(f->client.plain, "head", 4);
    assert_memory_equal(f->client.plain + 4, text + FROM, LEN - FROM);
    assert_memory_equal(f->client.plain + 4 + LEN - FROM, "tail", 4);
    assert_memory_equal(f->client.plain + 4 + LEN - FROM + 4, text, 10);
    for (int i = 0; i < 2; i++) ls_block_drop(held[i]);
    ls_shared_file_drop(file);
    free(text);
}

TEST_WITH(fixture, f, a_file_that_was_truncated_ends_the_response, open_connected(no_options, no_options))
{
    enum { LEN = 2000000, LEFT = 600000 };
    char *text = text_of(LEN);
    ls_shared_file *file = open_file(tls_write(f->dir, "data", text, LEN));
    ls_slice slice = ls_shared_file_slice(file, 0, LEN);
    ls_filter_out out = {.pool = f->pools.pool};
    assert_true(f->server.f->type->write(f->server.f, &slice, 1, &out) > 0);
    tls_take_out(&f->server, &out);
    tls_write(f->dir, "data", text, LEFT); /* the same file, shorter */
    assert_int_equal(f->server.f->type->write(f->server.f, &slice, 1, &out), LS_ECHANGED);
    assert_int_equal(out.count, 0);
    assert_int_equal(f->server.f->type->write(f->server.f, &slice, 1, &out), LS_EPROTO);
    assert_int_equal(f->server.f->type->end(f->server.f, &out), LS_OK);
    assert_int_equal(out.count, 0); /* no close_notify: the peer must notice */
    ls_slice_drop(&slice);
    ls_shared_file_drop(file);
    free(text);
}

/* No record of the head is encrypted, so another response can follow. */
TEST_WITH(fixture, f, a_file_that_changed_before_its_head_was_sent_leaves_the_session,
          open_connected(no_options, no_options))
{
    ls_shared_file *file = open_file(tls_write(f->dir, "data", "0123456789", 10));
    ls_slice slices[2] = {ls_slice_static("head", 4), ls_shared_file_slice(file, 0, 10)};
    ls_filter_out out = {.pool = f->pools.pool};
    tls_write(f->dir, "data", "01234", 5);
    assert_int_equal(f->server.f->type->write(f->server.f, slices, 2, &out), LS_ECHANGED);
    assert_int_equal(out.count, 0);
    assert_int_equal(f->server.f->type->write(f->server.f, slices, 1, &out), 4);
    tls_take_out(&f->server, &out);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_plain(&f->client, "head", 4);
    ls_slice_drop(&slices[1]);
    ls_shared_file_drop(file);
}

/* The bytes in front of the end are sent; then the response cannot go on. */
TEST_WITH(fixture, f, a_file_that_ends_before_its_range_ends_the_response, open_connected(no_options, no_options))
{
    ls_shared_file *file = open_file(tls_write(f->dir, "data", "0123456789", 10));
    ls_slice slice = ls_shared_file_slice(file, 4, 100);
    ls_filter_out out = {.pool = f->pools.pool};
    assert_int_equal(f->server.f->type->write(f->server.f, &slice, 1, &out), 6);
    tls_take_out(&f->server, &out);
    slice.ptr += 6;
    slice.len -= 6;
    assert_int_equal(f->server.f->type->write(f->server.f, &slice, 1, &out), LS_ECHANGED);
    assert_int_equal(out.count, 0);
    tls_deliver(&f->server, &f->client, WHOLE);
    assert_plain(&f->client, "456789", 6);
    tls_feed_end(&f->client);
    assert_int_equal(f->client.reading, LS_ETRUNCATED);
    ls_slice_drop(&slice);
    ls_shared_file_drop(file);
}
