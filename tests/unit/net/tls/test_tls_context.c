/* test_tls_context.c - contexts of TLS: every reason for which they cannot be opened, the choice of a certificate by
 * name, client certificates, tickets across contexts and after rotation, and files that change. */
#define _GNU_SOURCE /* mkdtemp */
#include "net/tls/tls_fixture.h"

#include <openssl/rand.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "net/tls/tls_internal_openssl.h"

enum { WHOLE = 1 << 20 };

/* ---- time: the program is linked with --wrap=ls_clock_coarse_ms --------------------------------------------- */

static uint64_t clock_ahead_ms;

uint64_t __real_ls_clock_coarse_ms(void);

uint64_t __wrap_ls_clock_coarse_ms(void)
{
    return __real_ls_clock_coarse_ms() + clock_ahead_ms;
}

/* ---- connections -------------------------------------------------------------------------------------------- */

static ls_tls *open_tls(ls_tls_options options)
{
    char why[TLS_WHY];
    ls_tls *tls = NULL;
    if (ls_tls_open(&options, &tls, why, sizeof why) < 0) fail_msg("%s", why);
    return tls;
}

static ls_tls *open_server(const ls_tls_cert *files, const char *tickets)
{
    return open_tls((ls_tls_options){.server = true, .certs = files, .cert_count = 1, .tickets = tickets});
}

typedef struct result {
    int client, server; /* of the handshake; of a client that completed, of its first read */
    char client_why[200], server_why[200];
    bool resumed, verified;
    char subject[256]; /* of the peer, as the side that `of_client` names sees it */
    char seen_name[256];
} result;

/* One connection with a few bytes in both directions, so that tickets arrive. `look`: whose peer is described. */
static result connect_once(ls_tls *client_tls, ls_tls *server_tls, const char *server_name, bool look_at_client)
{
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    tls_side client = tls_side_open(client_tls, server_name, pools.pool);
    tls_side server = tls_side_open(server_tls, NULL, pools.pool);
    ls_tls_peer peer;
    result r = {.client = 0};
    tls_run(&client, &server, WHOLE);
    r.server = server.handshake;
    r.client = client.handshake == LS_DONE && client.reading != LS_EAGAIN ? (int)client.reading : client.handshake;
    snprintf(r.client_why, sizeof r.client_why, "%s", ls_tls_why(client.f));
    snprintf(r.server_why, sizeof r.server_why, "%s", ls_tls_why(server.f));
    if (r.server == LS_DONE && r.client == LS_DONE) {
        tls_send(&client, "ping", 4);
        tls_send(&server, "pong", 4);
        tls_run(&client, &server, WHOLE);
        assert_int_equal(client.plain_len, 4);
        assert_int_equal(server.plain_len, 4);
        ls_tls_peer_of(look_at_client ? server.f : client.f, &peer);
        r.resumed = peer.resumed;
        r.verified = peer.verified;
        memcpy(r.subject, peer.subject, sizeof r.subject);
        ls_tls_peer_of(server.f, &peer);
        snprintf(r.seen_name, sizeof r.seen_name, "%s", peer.server_name != NULL ? peer.server_name : "");
    }
    tls_side_close(&client);
    tls_side_close(&server);
    tls_pools_close(&pools);
    return r;
}

static bool resumes(ls_tls *client, ls_tls *server)
{
    const result r = connect_once(client, server, "example.org", false);
    assert_int_equal(r.client, LS_DONE);
    return r.resumed;
}

/* ---- reasons ------------------------------------------------------------------------------------------------ */

static void cannot_open(ls_tls_options options, int err, const char *format, const char *path)
{
    char why[TLS_WHY], expected[TLS_WHY];
    ls_tls *tls = NULL;
    snprintf(expected, sizeof expected, format, path, path);
    assert_int_equal(ls_tls_open(&options, &tls, why, sizeof why), err);
    assert_string_equal(why, expected);
    assert_null(tls);
    assert_int_equal(ls_tls_open(&options, &tls, NULL, 0), err);
    assert_int_equal(ERR_peek_error(), 0);
}

static void cannot_open_files(ls_tls_cert files, int err, const char *format, const char *path)
{
    cannot_open((ls_tls_options){.server = true, .certs = &files, .cert_count = 1}, err, format, path);
}

TEST_WITH(tls_dir, d, files_that_cannot_be_used_are_named_with_the_reason, tls_dir_open())
{
    const ls_tls_cert good = tls_files(d, "good", (tls_wish){.cn = "a"}, NULL);
    const ls_tls_cert other = tls_files(d, "other", (tls_wish){.cn = "b"}, NULL);
    const ls_tls_cert rsa = tls_files(d, "rsa", (tls_wish){.cn = "b", .rsa = true}, NULL);
    tls_made made = tls_make((tls_wish){.cn = "c"}, NULL);
    const char *locked_cert = tls_write_cert(d, "locked.pem", &made, NULL);
    const char *locked = tls_write_key(d, "locked.key", &made, "secret");
    const char *missing = tls_path(d, "missing");
    const char *empty = tls_write(d, "empty", "", 0);
    const char *text = tls_write(d, "text", "this is no PEM file\n", 20);
    static const char pem[] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const char *broken = tls_write(d, "broken", pem, sizeof pem - 1);
    static const char key_pem[] = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    const char *broken_key = tls_write(d, "broken.key", key_pem, sizeof key_pem - 1);
    cannot_open_files((ls_tls_cert){.cert = missing}, LS_ENOENT, "cannot read '%s': not found", missing);
    cannot_open_files((ls_tls_cert){.cert = good.cert, .key = missing}, LS_ENOENT, "cannot read '%s': not found",
                      missing);
    cannot_open_files((ls_tls_cert){.cert = d->path}, LS_EISDIR, "cannot read '%s': is a directory", d->path);
    cannot_open_files((ls_tls_cert){.cert = empty}, LS_EINVAL, "'%s' holds no certificate in PEM format", empty);
    cannot_open_files((ls_tls_cert){.cert = text}, LS_EINVAL, "'%s' holds no certificate in PEM format", text);
    cannot_open_files((ls_tls_cert){.cert = good.key}, LS_EINVAL, "'%s' holds no certificate in PEM format", good.key);
    cannot_open_files((ls_tls_cert){.cert = good.cert}, LS_EINVAL, "'%s' holds no private key in PEM format",
                      good.cert);
    cannot_open_files((ls_tls_cert){.cert = good.cert, .key = text}, LS_EINVAL,
                      "'%s' holds no private key in PEM format", text);
    cannot_open_files((ls_tls_cert){.cert = locked_cert, .key = locked}, LS_EINVAL,
                      "the key in '%s' is encrypted and needs a password", locked);
    cannot_open_files((ls_tls_cert){.cert = locked_cert, .key = locked, .password = "wrong"}, LS_EINVAL,
                      "the password does not open the key in '%s'", locked);
    cannot_open_files((ls_tls_cert){.cert = locked_cert, .key = locked, .password = ""}, LS_EINVAL,
                      "the password does not open the key in '%s'", locked);
    for (int i = 0; i < 2; i++) { /* the same type of key, another one */
        char expected[TLS_WHY];
        const char *key = i == 0 ? other.key : rsa.key;
        snprintf(expected, sizeof expected, "the key in '%s' does not belong to the certificate in '%s'", key,
                 good.cert);
        cannot_open_files((ls_tls_cert){.cert = good.cert, .key = key}, LS_EINVAL, "%s", expected);
    }
    ls_tls *tls;
    char why[TLS_WHY];
    const ls_tls_cert cases[] = {{.cert = broken}, {.cert = good.cert, .key = broken_key}};
    for (int i = 0; i < 2; i++) {
        const ls_tls_options options = {.server = true, .certs = &cases[i], .cert_count = 1};
        assert_int_equal(ls_tls_open(&options, &tls, why, sizeof why), LS_EINVAL);
        assert_non_null(strstr(why, i == 0 ? "broken' holds an invalid certificate: "
                                           : "broken.key' holds an invalid private key: "));
    }
    char *zeros = calloc(1, LS_TLS_FILE_BYTES_MAX + 1);
    assert_non_null(zeros);
    tls_write(d, "text", zeros, LS_TLS_FILE_BYTES_MAX);
    cannot_open_files((ls_tls_cert){.cert = text}, LS_EINVAL, "'%s' holds no certificate in PEM format", text);
    tls_write(d, "text", zeros, LS_TLS_FILE_BYTES_MAX + 1);
    free(zeros);
    cannot_open_files((ls_tls_cert){.cert = text}, LS_EINVAL, "'%s' is larger than 4 MiB", text);

    ls_tls *opened =
        open_tls((ls_tls_options){.server = true,
                                  .certs = &(ls_tls_cert){.cert = locked_cert, .key = locked, .password = "secret"},
                                  .cert_count = 1});
    ls_tls_drop(opened);
    tls_made_free(&made);
}

TEST_WITH(tls_dir, d, options_that_cannot_be_used_are_named_with_the_reason, tls_dir_open())
{
    ls_tls_cert cert = tls_files(d, "good", (tls_wish){.cn = "a"}, NULL);
    const ls_tls_options server = {.server = true, .certs = &cert, .cert_count = 1};
    ls_tls_options o;
    unsigned char keys[80 * 17] = {0};
    char alpn[300];
    cannot_open((ls_tls_options){.server = true}, LS_EINVAL, "a TLS server needs a certificate", "");
    o = server;
    o.min = "1.1";
    cannot_open(o, LS_EINVAL, "invalid lowest version '1.1' of TLS: it must be \"1.2\" or \"1.3\"", "");
    o = server;
    o.verify = LS_TLS_VERIFY_REQUIRED;
    cannot_open(o, LS_EINVAL, "to verify clients, a file of trusted certificates (client_ca) is needed", "");
    o = server;
    o.ciphers = "ECDHE-RSA-AES128-GCM-SHA256:NOT-A-CIPHER";
    cannot_open(o, LS_EINVAL, "unknown cipher 'NOT-A-CIPHER': see `openssl ciphers -v`", "");
    o.ciphers = "TLS_AES_128_GCM_SHA256:TLS_NOT_A_CIPHER";
    cannot_open(o, LS_EINVAL, "unknown cipher 'TLS_NOT_A_CIPHER': see `openssl ciphers -v`", "");
    o.ciphers = " : ";
    cannot_open(o, LS_EINVAL, "the list of ciphers is empty", "");
    o = server;
    o.ca = o.tickets = tls_path(d, "missing");
    cannot_open(o, LS_ENOENT, "cannot read '%s': not found", o.ca);
    o.ca = cert.key;
    o.tickets = NULL;
    cannot_open(o, LS_EINVAL, "'%s' holds no certificate in PEM format", cert.key);
    o = server;
    o.tickets = tls_write(d, "tickets", keys, 79);
    cannot_open(o, LS_EINVAL, "'%s' must hold ticket keys of 80 bytes each, or of 48 bytes each; it has 79",
                o.tickets);
    o.tickets = tls_write(d, "tickets", keys, 0);
    cannot_open(o, LS_EINVAL, "'%s' must hold ticket keys of 80 bytes each, or of 48 bytes each; it has 0", o.tickets);
    o.tickets = tls_write(d, "tickets", keys, sizeof keys);
    cannot_open(o, LS_EINVAL, "'%s' holds more than 16 ticket keys", o.tickets);
    o.tickets = tls_write(d, "tickets", keys, 80 * 16);
    ls_tls_drop(open_tls(o));

    o = server;
    memset(alpn, 'p', sizeof alpn);
    alpn[256] = '\0';
    o.alpn = alpn;
    cannot_open(o, LS_EINVAL, "invalid ALPN protocol '%s': it must have 1 to 255 bytes",
                "pppppppppppppppppppppppppppppppppppppppp");
    o.alpn = "h2,,x";
    cannot_open(o, LS_EINVAL, "invalid ALPN protocol '': it must have 1 to 255 bytes", "");
    alpn[255] = '\0';
    o.alpn = alpn;
    ls_tls_drop(open_tls(o));
}

TEST_WITH(tls_dir, d, ciphers_of_both_versions_may_be_mixed, tls_dir_open())
{
    static const char *const lists[] = {"TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
                                        "HIGH:!aNULL:-DHE:@STRENGTH:TLS_CHACHA20_POLY1305_SHA256",
                                        "DEFAULT:@SECLEVEL=2"};
    ls_tls_cert cert = tls_files(d, "good", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *client = open_tls((ls_tls_options){.ca = cert.cert});
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        ls_tls *server =
            open_tls((ls_tls_options){.server = true, .certs = &cert, .cert_count = 1, .ciphers = lists[i]});
        assert_int_equal(connect_once(client, server, "example.org", false).client, LS_DONE);
        ls_tls_drop(server);
    }
    ls_tls_drop(client);
}

TEST_WITH(tls_dir, d, dates_that_do_not_fit_are_a_warning, tls_dir_open())
{
    const ls_tls_cert expired = tls_files(d, "expired", (tls_wish){.cn = "a", .from_days = -20, .days = -10}, NULL);
    const ls_tls_cert early = tls_files(d, "early", (tls_wish){.cn = "a", .from_days = 10, .days = 20}, NULL);
    const ls_tls_cert *const cases[] = {&expired, &early};
    static const char *const texts[] = {"expired.pem' expired on 20", "early.pem' is not valid before 20"};
    for (int i = 0; i < 2; i++) {
        const ls_tls_options options = {.server = true, .certs = cases[i], .cert_count = 1};
        char why[TLS_WHY];
        ls_tls *tls;
        assert_int_equal(ls_tls_open(&options, &tls, why, sizeof why), LS_OK);
        assert_non_null(strstr(why, texts[i]));
        assert_int_equal(ls_tls_reload(tls, true, why, sizeof why), LS_OK);
        assert_non_null(strstr(why, texts[i]));
        ls_tls *client = open_tls((ls_tls_options){.ca = cases[i]->cert});
        const result r = connect_once(client, tls, "a", false);
        assert_int_equal(r.client, LS_ECERT);
        assert_string_equal(r.client_why, i == 0
                                              ? "the certificate of a is not accepted: certificate has expired"
                                              : "the certificate of a is not accepted: certificate is not yet valid");
        ls_tls_drop(client);
        ls_tls_drop(tls);
    }
}

/* ---- names -------------------------------------------------------------------------------------------------- */

TEST(the_certificate_is_chosen_by_name)
{
    static const struct {
        const char *asked, *got;
    } cases[] = {{"first.example", "CN=first"},      {"second.example", "CN=second"}, {"SECOND.Example", "CN=second"},
                 {"also.example", "CN=second"},      {"a.wild.example", "CN=wild"},   {"A.WILD.example", "CN=wild"},
                 {"exact.wild.example", "CN=exact"}, {"cn.example", "CN=cn.example"}, {"127.0.0.1", "CN=first"},
                 {"second.example.", "CN=second"}};
    static const char *const refused[] = {"wild.example", "a.b.wild.example", "unknown.example"};
    tls_dir *d = tls_dir_open();
    const ls_tls_cert certs[] = {
        tls_files(d, "1", (tls_wish){.cn = "first", .san = "DNS:first.example"}, NULL),
        tls_files(d, "2", (tls_wish){.cn = "second", .san = "DNS:Second.example,DNS:also.example"}, NULL),
        tls_files(d, "3", (tls_wish){.cn = "wild", .san = "DNS:*.wild.example"}, NULL),
        tls_files(d, "4", (tls_wish){.cn = "exact", .san = "DNS:exact.wild.example"}, NULL),
        tls_files(d, "5", (tls_wish){.cn = "cn.example"}, NULL)};
    ls_tls *server = open_tls((ls_tls_options){.server = true, .certs = certs, .cert_count = 5});
    ls_tls *client = open_tls((ls_tls_options){.insecure = true, .no_resumption = true});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const result r = connect_once(client, server, cases[i].asked, false);
        assert_int_equal(r.client, LS_DONE);
        assert_string_equal(r.subject, cases[i].got);
        assert_false(r.verified);
    }
    assert_string_equal(connect_once(client, server, NULL, false).subject, "CN=first");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char why[100];
        const result r = connect_once(client, server, refused[i], false);
        assert_int_equal(r.client, LS_EPROTO);
        assert_string_equal(r.client_why, "the peer reports: unrecognized name");
        snprintf(why, sizeof why, "no certificate has the name '%s', which the client asks for", refused[i]);
        assert_string_equal(r.server_why, why);
    }
    ls_tls_drop(server);
    server = open_tls((ls_tls_options){.server = true, .certs = certs, .cert_count = 1});
    assert_string_equal(connect_once(client, server, "unknown.example", false).subject, "CN=first"); /* no choice */
    ls_tls_drop(client);
    ls_tls_drop(server);
    tls_dir_close(d);
}

/* Certificates of the same names with an ECDSA and an RSA key: the client's abilities decide. */
TEST_WITH(tls_dir, d, types_of_keys_share_a_name, tls_dir_open())
{
    const ls_tls_cert certs[] = {tls_files(d, "e", (tls_wish){.cn = "a"}, NULL),
                                 tls_files(d, "r", (tls_wish){.cn = "a", .rsa = true}, NULL)};
    ls_tls *server = open_tls((ls_tls_options){.server = true, .certs = certs, .cert_count = 2});
    for (int i = 0; i < 2; i++) {
        ls_tls *client = open_tls((ls_tls_options){.ca = certs[i].cert});
        tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
        tls_side c = tls_side_open(client, "a", pools.pool), s = tls_side_open(server, NULL, pools.pool);
        assert_int_equal(SSL_set1_sigalgs_list(((ls_tls_conn *)(void *)c.f)->ssl,
                                               i == 0 ? "ecdsa_secp256r1_sha256" : "rsa_pss_rsae_sha256"),
                         1);
        tls_run(&c, &s, WHOLE);
        assert_string_equal(ls_tls_why(c.f), "");
        assert_int_equal(c.handshake, LS_DONE);
        tls_side_close(&c);
        tls_side_close(&s);
        tls_pools_close(&pools);
        ls_tls_drop(client);
    }
    ls_tls_drop(server);
}

TEST_WITH(tls_dir, d, a_chain_and_the_key_may_be_in_one_file, tls_dir_open())
{
    tls_made root = tls_make((tls_wish){.cn = "root", .ca = true}, NULL);
    tls_made middle = tls_make((tls_wish){.cn = "middle", .ca = true}, &root);
    tls_made leaf = tls_make((tls_wish){.cn = "a", .san = "DNS:example.org"}, &middle);
    const char *ca = tls_write_cert(d, "root.pem", &root, NULL);
    const char *all = tls_write_cert(d, "all.pem", &leaf, &middle);
    FILE *file = fopen(all, "ab");
    assert_int_equal(PEM_write_PrivateKey(file, leaf.key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    const ls_tls_cert cert = {.cert = all};
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.ca = ca});
    const result r = connect_once(client, server, "example.org", false);
    assert_string_equal(r.client_why, "");
    assert_true(r.verified);
    assert_string_equal(r.subject, "CN=a");
    ls_tls_drop(client);
    ls_tls_drop(server);
    tls_made_free(&root);
    tls_made_free(&middle);
    tls_made_free(&leaf);
}

/* The file of a client may hold the certificate of one server, whose issuer it does not know. */
TEST_WITH(tls_dir, d, a_single_certificate_can_be_trusted, tls_dir_open())
{
    tls_made root = tls_make((tls_wish){.cn = "root", .ca = true}, NULL);
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, &root);
    const ls_tls_cert other = tls_files(d, "o", (tls_wish){.cn = "example.org"}, &root);
    ls_tls *server = open_server(&cert, NULL), *wrong = open_server(&other, NULL);
    ls_tls *client = open_tls((ls_tls_options){.ca = cert.cert});
    assert_true(connect_once(client, server, "example.org", false).verified);
    const result r = connect_once(client, wrong, "example.org", false);
    assert_int_equal(r.client, LS_ECERT);
    assert_string_equal(r.client_why,
                        "the certificate of example.org is not accepted: unable to get local issuer certificate");
    ls_tls_drop(client);
    ls_tls_drop(server);
    ls_tls_drop(wrong);
    tls_made_free(&root);
}

/* The system trusts no certificate that was just made. */
TEST_WITH(tls_dir, d, a_client_without_a_file_uses_the_store_of_the_system, tls_dir_open())
{
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.server = false});
    assert_int_equal(connect_once(client, server, "example.org", false).client, LS_ECERT);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

TEST_WITH(tls_dir, d, a_long_subject_is_cut_between_two_characters, tls_dir_open())
{
    char name[4 * 64 + 1] = "";
    for (size_t n = 0; n < sizeof name - 1; n++) name[n] = "\xF0\x9F\x98\x80"[n % 4];
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = name}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.insecure = true});
    const result r = connect_once(client, server, "example.org", false);
    assert_int_equal(strlen(r.subject), 3 + 4 * 63);
    assert_memory_equal(r.subject + 3, name, 4 * 63);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

/* ---- client certificates ------------------------------------------------------------------------------------ */

TEST_WITH(tls_dir, d, clients_are_verified, tls_dir_open())
{
    tls_made root = tls_make((tls_wish){.cn = "root", .ca = true}, NULL);
    const char *ca = tls_write_cert(d, "root.pem", &root, NULL);
    const ls_tls_cert cert = tls_files(d, "server", (tls_wish){.cn = "example.org"}, &root);
    const ls_tls_cert known = tls_files(d, "known", (tls_wish){.cn = "J\xC3\xBCrgen, client"}, &root);
    const ls_tls_cert unknown = tls_files(d, "unknown", (tls_wish){.cn = "stranger"}, NULL);
    ls_tls *with = open_tls((ls_tls_options){.ca = ca, .certs = &known, .cert_count = 1});
    ls_tls *without = open_tls((ls_tls_options){.ca = ca});
    ls_tls *stranger = open_tls((ls_tls_options){.ca = ca, .certs = &unknown, .cert_count = 1});
    for (enum ls_tls_verify verify = LS_TLS_VERIFY_NONE; verify <= LS_TLS_VERIFY_REQUIRED; verify++) {
        ls_tls *server =
            open_tls((ls_tls_options){.server = true, .certs = &cert, .cert_count = 1, .ca = ca, .verify = verify});
        for (int i = 0; i < 2; i++) { /* the second connection is resumed */
            const result r = connect_once(with, server, "example.org", true);
            assert_string_equal(r.server_why, "");
            assert_int_equal(r.server, LS_DONE);
            assert_int_equal(r.verified, verify != LS_TLS_VERIFY_NONE);
            assert_string_equal(r.subject, verify != LS_TLS_VERIFY_NONE ? "CN=J\xC3\xBCrgen\\, client" : "");
            assert_int_equal(r.resumed, i == 1);
        }
        const result none = connect_once(without, server, "example.org", true);
        if (verify == LS_TLS_VERIFY_REQUIRED) {
            assert_int_equal(none.server, LS_ECERT);
            assert_string_equal(none.server_why, "the client has no certificate");
            assert_int_equal(none.client, LS_EPROTO);
            assert_string_equal(none.client_why, "the peer reports: certificate required");
        } else {
            assert_int_equal(none.server, LS_DONE);
            assert_false(none.verified);
        }
        const result bad = connect_once(stranger, server, "example.org", true);
        assert_int_equal(bad.server, verify == LS_TLS_VERIFY_NONE ? LS_DONE : LS_ECERT);
        if (verify != LS_TLS_VERIFY_NONE)
            assert_string_equal(bad.server_why,
                                "the certificate of the client is not accepted: self-signed certificate");
        ls_tls_drop(server);
    }
    ls_tls_drop(with);
    ls_tls_drop(without);
    ls_tls_drop(stranger);
    tls_made_free(&root);
}

/* ---- tickets ------------------------------------------------------------------------------------------------ */

TEST_WITH(tls_dir, d, a_client_resumes_unless_it_must_not, tls_dir_open())
{
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "a", .san = "DNS:example.org,DNS:example.net"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.ca = cert.cert});
    ls_tls *full = open_tls((ls_tls_options){.ca = cert.cert, .no_resumption = true});
    assert_false(resumes(client, server));
    for (int i = 0; i < 5; i++) assert_true(resumes(client, server));
    assert_false(connect_once(client, server, "example.net", false).resumed); /* each name has its own */
    assert_true(connect_once(client, server, "example.net", false).resumed);
    for (int i = 0; i < 3; i++) assert_false(resumes(full, server));
    ls_tls_drop(full);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

/* TLS 1.2 has tickets as well (RFC 5077). */
TEST_WITH(tls_dir, d, tls_1_2_resumes, tls_dir_open())
{
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.ca = cert.cert});
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    for (int i = 0; i < 4; i++) {
        tls_side c = tls_side_open(client, "example.org", pools.pool), s = tls_side_open(server, NULL, pools.pool);
        ls_tls_peer peer;
        assert_int_equal(SSL_set_max_proto_version(((ls_tls_conn *)(void *)c.f)->ssl, TLS1_2_VERSION), 1);
        if (i == 2) clock_ahead_ms += (uint64_t)LS_TLS_TICKET_ROTATE_S * 1000 + 1000;
        tls_run(&c, &s, WHOLE);
        ls_tls_peer_of(s.f, &peer);
        assert_string_equal(peer.version, "TLSv1.2");
        assert_int_equal(peer.resumed, i > 0);
        tls_side_close(&c);
        tls_side_close(&s);
    }
    clock_ahead_ms = 0;
    tls_pools_close(&pools);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

/* A client that offers a session of another name: TLS 1.2 must not resume it (RFC 6066 section 3). */
TEST(a_session_belongs_to_its_name)
{
    static const struct {
        const char *made_for, *name;
        bool resumed12;
    } cases[] = {{"a.test", "a.test", true}, {"a.test", "b.test", false},
                 {"a.test", "a.tes", false}, {"a.test", "a.test2", false},
                 {"a.test", NULL, false},    {NULL, "a.test", false},
                 {NULL, NULL, true}};
    tls_dir *d = tls_dir_open();
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.insecure = true});
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            SSL_SESSION *made = NULL;
            for (int n = 0; n < 2; n++) {
                const char *const name = n == 0 ? cases[i].made_for : cases[i].name;
                tls_side c = tls_side_open(client, name, pools.pool), s = tls_side_open(server, NULL, pools.pool);
                SSL *const ssl = ((ls_tls_conn *)(void *)c.f)->ssl;
                ls_tls_peer peer;
                assert_int_equal(SSL_set_max_proto_version(ssl, version), 1);
                assert_int_equal(SSL_set_session(ssl, made), 1);
                tls_run(&c, &s, WHOLE);
                assert_int_equal(c.handshake, LS_DONE);
                ls_tls_peer_of(s.f, &peer);
                assert_int_equal(peer.resumed, n > 0 && (version == TLS1_3_VERSION || cases[i].resumed12));
                if (name == NULL)
                    assert_null(peer.server_name);
                else if (!peer.resumed || version == TLS1_3_VERSION)
                    assert_string_equal(peer.server_name, name);
                SSL_SESSION_free(made);
                made = SSL_SESSION_dup(SSL_get0_session(ssl)); /* the close marks it as used up */
                tls_side_close(&c);
                tls_side_close(&s);
            }
            SSL_SESSION_free(made);
        }
    tls_pools_close(&pools);
    ls_tls_drop(client);
    ls_tls_drop(server);
    tls_dir_close(d);
}

/* Of connections that begin at the same time, all resume with the only ticket there is. */
TEST_WITH(tls_dir, d, a_ticket_serves_several_connections, tls_dir_open())
{
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.ca = cert.cert});
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    tls_side clients[3], servers[3];
    assert_false(resumes(client, server));
    for (int i = 0; i < 3; i++) {
        clients[i] = tls_side_open(client, "example.org", pools.pool);
        servers[i] = tls_side_open(server, NULL, pools.pool);
    }
    for (int i = 0; i < 3; i++) {
        ls_tls_peer peer;
        tls_run(&clients[i], &servers[i], WHOLE);
        ls_tls_peer_of(clients[i].f, &peer);
        assert_true(peer.resumed);
        assert_true(peer.verified);
        tls_side_close(&clients[i]);
        tls_side_close(&servers[i]);
    }
    tls_pools_close(&pools);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

/* The cache holds LS_TLS_CACHE_MAX names; one more replaces the least recently used. */
TEST_WITH(tls_dir, d, the_cache_of_a_client_is_limited, tls_dir_open())
{
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "a"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.insecure = true});
    char name[32];
    for (int i = 0; i < LS_TLS_CACHE_MAX; i++) {
        snprintf(name, sizeof name, "host-%d", i);
        assert_false(connect_once(client, server, name, false).resumed);
    }
    assert_true(connect_once(client, server, "host-0", false).resumed);
    assert_false(connect_once(client, server, "another", false).resumed); /* in place of host-1 */
    assert_true(connect_once(client, server, "host-0", false).resumed);
    assert_true(connect_once(client, server, "host-2", false).resumed);
    assert_false(connect_once(client, server, "host-1", false).resumed);
    ls_tls_drop(client);
    ls_tls_drop(server);
}

/* Two machines with the same file accept each other's tickets, also when one has a newer key in front. */
TEST(servers_with_the_same_keys_resume_each_others_sessions)
{
    static const size_t key_bytes[] = {80, 48};
    for (int i = 0; i < 2; i++) {
        tls_dir *d = tls_dir_open();
        const size_t n = key_bytes[i];
        unsigned char keys[160];
        char why[TLS_WHY];
        RAND_bytes(keys, sizeof keys);
        const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
        const char *old = tls_write(d, "old", keys + n, n), *both = tls_write(d, "both", keys, 2 * n);
        ls_tls *a = open_server(&cert, old), *b = open_server(&cert, both), *c = open_server(&cert, NULL);
        ls_tls *client = open_tls((ls_tls_options){.ca = cert.cert});
        assert_false(resumes(client, a));
        assert_true(resumes(client, b));  /* its second key; the new ticket has the first */
        assert_false(resumes(client, a)); /* which this one does not know */
        assert_true(resumes(client, a));
        assert_false(resumes(client, c));

        assert_false(resumes(client, a));
        tls_write(d, "old", keys, n); /* the file changes: only the other key */
        assert_int_equal(ls_tls_reload(a, false, why, sizeof why), LS_OK);
        assert_false(resumes(client, a));
        assert_true(resumes(client, b));
        assert_true(resumes(client, a));
        ls_tls_drop(client);
        ls_tls_drop(a);
        ls_tls_drop(b);
        ls_tls_drop(c);
        tls_dir_close(d);
    }
}

TEST(own_keys_rotate)
{
    const uint64_t period = (uint64_t)LS_TLS_TICKET_ROTATE_S * 1000;
    tls_dir *d = tls_dir_open();
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    ls_tls *server = open_server(&cert, NULL);
    ls_tls *client = open_tls((ls_tls_options){.ca = cert.cert});
    unsigned char first[16];
    assert_false(resumes(client, server));
    memcpy(first, server->tickets.keys[0].name, sizeof first);
    clock_ahead_ms += period - 60000;
    assert_true(resumes(client, server));
    assert_memory_equal(server->tickets.keys[0].name, first, sizeof first);
    clock_ahead_ms += 120000; /* rotates: the old key still decrypts */
    assert_true(resumes(client, server));
    assert_memory_not_equal(server->tickets.keys[0].name, first, sizeof first);
    assert_memory_equal(server->tickets.keys[1].name, first, sizeof first);
    assert_true(resumes(client, server));
    clock_ahead_ms += 2 * period; /* nobody connected for two periods: all keys are forgotten */
    assert_false(resumes(client, server));
    assert_int_equal(server->tickets.count, 1);
    assert_true(resumes(client, server));
    ls_tls_drop(client);
    ls_tls_drop(server);
    tls_dir_close(d);
    clock_ahead_ms = 0;
}

/* Two servers with the keys of a third party: tickets of each are accepted by the other, those of the key that
 * encrypted before for as long as a ticket lives, and the keys rotate when they are not renewed. */
TEST(keyrings_share_keys)
{
    const uint64_t period = (uint64_t)LS_TLS_TICKET_ROTATE_S * 1000, life = (uint64_t)LS_TLS_TICKET_LIFE_S * 1000;
    tls_dir *d = tls_dir_open();
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, NULL);
    char keys[80 * LS_TLS_TICKET_KEYS_MAX];
    ls_tls_keyring *ring[2];
    ls_tls *server[2];
    RAND_bytes((unsigned char *)keys, sizeof keys);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_tls_keyring_open(&ring[i]), LS_OK);
        server[i] = open_tls((ls_tls_options){.server = true, .certs = &cert, .cert_count = 1, .keyring = ring[i]});
    }
    ls_tls *client = open_tls((ls_tls_options){.ca = cert.cert});
    assert_false(resumes(client, server[0]));
    assert_true(resumes(client, server[0]));
    assert_false(resumes(client, server[1])); /* keys of its own */
    assert_int_equal(ls_tls_keyring_set(ring[1], keys, 0), LS_EINVAL);
    assert_int_equal(ls_tls_keyring_set(ring[1], keys, 79), LS_EINVAL);
    assert_int_equal(ls_tls_keyring_set(ring[1], keys, sizeof keys), LS_EINVAL);
    assert_int_equal(ls_tls_keyring_set(ring[1], keys, sizeof keys - 80), LS_OK);
    assert_true(resumes(client, server[1])); /* its own key, which still decrypts */
    assert_int_equal(ls_tls_keyring_set(ring[0], keys, 80), LS_OK);
    assert_true(resumes(client, server[0]));
    assert_true(resumes(client, server[1]));

    assert_int_equal(ls_tls_keyring_set(ring[0], keys + 80, 80), LS_OK); /* without the first one */
    assert_true(resumes(client, server[0]));
    assert_true(resumes(client, server[1])); /* its second one; the new ticket has the first */
    clock_ahead_ms += life - 60000;
    assert_int_equal(ls_tls_keyring_set(ring[0], keys + 80, 80), LS_OK);
    assert_true(resumes(client, server[0]));
    assert_true(resumes(client, server[1]));
    clock_ahead_ms += 120000;
    assert_int_equal(ls_tls_keyring_set(ring[0], keys + 80, 80), LS_OK);
    assert_false(resumes(client, server[0]));

    clock_ahead_ms += period;
    assert_true(resumes(client, server[0]));  /* an own key encrypts the new ticket */
    assert_false(resumes(client, server[1])); /* which this one does not know */
    for (int i = 0; i < 2; i++) {
        ls_tls_keyring_drop(ring[i]);
        ls_tls_drop(server[i]);
    }
    ls_tls_drop(client);
    tls_dir_close(d);
    clock_ahead_ms = 0;
}

/* A ticket from a server that asked for no certificate is not accepted by one that requires it. */
TEST_WITH(tls_dir, d, rules_for_clients_do_not_leak_through_tickets, tls_dir_open())
{
    unsigned char keys[80];
    RAND_bytes(keys, sizeof keys);
    tls_made root = tls_make((tls_wish){.cn = "root", .ca = true}, NULL);
    const char *ca = tls_write_cert(d, "root.pem", &root, NULL), *tickets = tls_write(d, "keys", keys, sizeof keys);
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, &root);
    ls_tls *open = open_server(&cert, tickets);
    ls_tls *strict = open_tls((ls_tls_options){.server = true,
                                               .certs = &cert,
                                               .cert_count = 1,
                                               .ca = ca,
                                               .verify = LS_TLS_VERIFY_REQUIRED,
                                               .tickets = tickets});
    ls_tls *client = open_tls((ls_tls_options){.ca = ca});
    assert_false(resumes(client, open));
    assert_true(resumes(client, open));
    assert_int_equal(connect_once(client, strict, "example.org", false).server, LS_ECERT);
    ls_tls_drop(client);
    ls_tls_drop(open);
    ls_tls_drop(strict);
    tls_made_free(&root);
}

/* ---- reload ------------------------------------------------------------------------------------------------- */

TEST_WITH(tls_dir, d, changed_files_are_read_again, tls_dir_open())
{
    ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "old"}, NULL);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.insecure = true});
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    tls_side c = tls_side_open(client, "x", pools.pool), s = tls_side_open(server, NULL, pools.pool);
    char why[TLS_WHY], before[96], after[96];
    tls_step(&c); /* a handshake that begins before the change ends with the old certificate */
    tls_deliver(&c, &s, WHOLE);
    const ls_tls_gen *gen = server->gen;
    ls_tls_fingerprint(server, before);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_OK);
    assert_ptr_equal(server->gen, gen); /* nothing changed, nothing was read */
    assert_int_equal(ls_tls_reload(server, true, why, sizeof why), LS_OK);
    assert_ptr_not_equal(server->gen, gen);

    gen = server->gen;
    tls_made fresh = tls_make((tls_wish){.cn = "new"}, NULL); /* only the certificate at first */
    tls_write_cert(d, "c.pem", &fresh, NULL);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_EINVAL);
    assert_non_null(strstr(why, "does not belong to the certificate"));
    assert_ptr_equal(server->gen, gen);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_OK);    /* not reported twice */
    assert_int_equal(ls_tls_reload(server, true, why, sizeof why), LS_EINVAL); /* unless asked for */
    assert_string_equal(connect_once(client, server, "x", false).subject, "CN=old");
    assert_int_equal(remove(cert.key), 0);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_ENOENT);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_OK);
    ls_tls_fingerprint(server, after);
    assert_string_equal(after, before);

    tls_write_key(d, "c.key", &fresh, NULL);
    assert_int_equal(ls_tls_reload(server, false, why, sizeof why), LS_OK);
    assert_string_equal(why, "");
    ls_tls_fingerprint(server, after);
    assert_string_not_equal(after, before);
    ls_tls *new_client = open_tls((ls_tls_options){.insecure = true});
    assert_string_equal(connect_once(new_client, server, "x", false).subject, "CN=new");

    ls_tls_peer peer;
    tls_run(&c, &s, WHOLE);
    assert_int_equal(c.handshake, LS_DONE);
    ls_tls_peer_of(c.f, &peer);
    assert_string_equal(peer.subject, "CN=old");
    tls_made_free(&fresh);
    tls_side_close(&c);
    ls_tls_drop(server); /* the session still holds it */
    tls_send(&s, "text", 4);
    tls_side_close(&s);
    tls_pools_close(&pools);
    ls_tls_drop(client);
    ls_tls_drop(new_client);
}

/* A client that no longer trusts the issuer of a server does not resume a session that was verified before, also not
 * one whose ticket arrives after the change. */
TEST_WITH(tls_dir, d, changed_trust_ends_resumption, tls_dir_open())
{
    tls_made root = tls_make((tls_wish){.cn = "root", .ca = true}, NULL);
    tls_made other = tls_make((tls_wish){.cn = "other", .ca = true}, NULL);
    const char *ca = tls_write_cert(d, "trusted.pem", &root, NULL);
    const ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "example.org"}, &root);
    ls_tls *server = open_server(&cert, NULL), *client = open_tls((ls_tls_options){.ca = ca});
    tls_pools pools = tls_pools_open(TLS_POOL_BYTES);
    char why[TLS_WHY];
    assert_false(resumes(client, server));
    assert_true(resumes(client, server));
    tls_side c = tls_side_open(client, "example.org", pools.pool), s = tls_side_open(server, NULL, pools.pool);
    tls_step(&c);
    tls_deliver(&c, &s, WHOLE);
    tls_deliver(&s, &c, WHOLE);
    assert_int_equal(c.handshake, LS_DONE);

    tls_write_cert(d, "trusted.pem", &other, NULL);
    assert_int_equal(ls_tls_reload(client, false, why, sizeof why), LS_OK);
    tls_run(&c, &s, WHOLE); /* the ticket */
    const result r = connect_once(client, server, "example.org", false);
    assert_int_equal(r.client, LS_ECERT);
    tls_side_close(&c);
    tls_side_close(&s);
    tls_pools_close(&pools);
    ls_tls_drop(client);
    ls_tls_drop(server);
    tls_made_free(&root);
    tls_made_free(&other);
}

TEST(a_self_signed_certificate_survives_a_reload)
{
    ls_tls *server = open_tls((ls_tls_options){.server = true, .self_signed = true});
    char why[TLS_WHY], before[96], after[96];
    ls_tls_fingerprint(server, before);
    assert_int_equal(ls_tls_reload(server, true, why, sizeof why), LS_OK);
    ls_tls_fingerprint(server, after);
    assert_string_equal(after, before);
    ls_tls_drop(server);
}

typedef struct shared {
    ls_tls *server, *client;
} shared;

static void connect_many(void *arg)
{
    shared *s = arg;
    for (unsigned i = 0; i < 100; i++) {
        const result r = connect_once(s->client, s->server, "x", false);
        assert_int_equal(r.client, LS_DONE);
    }
}

/* For ThreadSanitizer: connections that share both contexts while the server's files change. */
TEST_WITH(tls_dir, d, threads_share_contexts_during_reloads, tls_dir_open())
{
    ls_tls_cert cert = tls_files(d, "c", (tls_wish){.cn = "x"}, NULL);
    shared s = {.server = open_server(&cert, NULL), .client = open_tls((ls_tls_options){.insecure = true})};
    ls_thread threads[2];
    char why[TLS_WHY], hex[96];
    for (int i = 0; i < 2; i++) assert_int_equal(ls_thread_start(&threads[i], "tls", connect_many, &s), LS_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(ls_tls_reload(s.server, true, why, sizeof why), LS_OK);
        ls_tls_fingerprint(s.server, hex);
    }
    for (int i = 0; i < 2; i++) ls_thread_join(&threads[i]);
    ls_tls_drop(s.server);
    ls_tls_drop(s.client);
}

TEST(the_library_is_named)
{
    assert_int_equal(strncmp(ls_tls_library(), "OpenSSL 3.", 10), 0);
}
