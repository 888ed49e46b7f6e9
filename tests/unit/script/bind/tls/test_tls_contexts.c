/* test_tls_contexts.c - which options share a TLS context, and which contexts are kept. The TLS library is a fake. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/io/log.h"
#include "script/bind/tls/tls_contexts.h"

struct ls_tls {
    int refs;
};

static int opened, live, reloaded, open_err, reload_err;

int __wrap_ls_tls_open(const ls_tls_options *options, ls_tls **out, char *why, size_t why_bytes)
{
    assert_false(options->self_signed);
    if (open_err < 0) {
        (void)snprintf(why, why_bytes, "ca.pem: no certificate");
        return open_err;
    }
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->refs = 1;
    opened++;
    live++;
    return LS_OK;
}

ls_tls *__wrap_ls_tls_hold(ls_tls *tls)
{
    tls->refs++;
    return tls;
}

void __wrap_ls_tls_drop(ls_tls *tls)
{
    if (--tls->refs > 0) return;
    live--;
    free(tls);
}

int __wrap_ls_tls_reload(ls_tls *tls, bool force, char *why, size_t why_bytes)
{
    assert_false(force);
    (void)snprintf(why, why_bytes, "%s", reload_err < 0 ? "ca.pem: no certificate" : "");
    reloaded++;
    return reload_err;
}

static ls_tls_contexts *contexts_open(void)
{
    ls_tls_contexts *contexts;
    opened = live = reloaded = open_err = reload_err = 0;
    assert_int_equal(ls_tls_contexts_open(&contexts), LS_OK);
    return contexts;
}

static ls_tls *get(ls_tls_contexts *contexts, const ls_tls_options *options)
{
    char why[64] = "x";
    ls_tls *tls;
    assert_int_equal(ls_tls_contexts_get(contexts, options, &tls, why, sizeof why), LS_OK);
    assert_string_equal(why, "");
    return tls;
}

TEST(equal_options_share_a_context)
{
    static const ls_tls_cert certs[] = {{.cert = "c"}, {.cert = "c", .key = "k"}, {.cert = "c", .key = "k", .password = "p"},
                                        {.cert = "ck", .key = "", .password = "p"}, {.supplied = "c"}};
    static const ls_tls_options all[] = {
        /* clang-format off */
        {.insecure = false}, {.insecure = true}, {.ca = "a"}, {.ca = ""}, {.ca = "ab"}, {.min = "a"},
        {.ciphers = "a"}, {.alpn = "a"}, {.ca = "a", .min = "b"}, {.ca = "a=b"},
        {.certs = &certs[0], .cert_count = 1}, {.certs = &certs[1], .cert_count = 1},
        {.certs = &certs[2], .cert_count = 1}, {.certs = &certs[3], .cert_count = 1},
        {.certs = &certs[4], .cert_count = 1},
        {.server = true, .certs = &certs[0], .cert_count = 1},
        {.server = true, .certs = &certs[0], .cert_count = 2},
        {.server = true, .certs = &certs[1], .cert_count = 2},
        {.server = true, .certs = &certs[0], .cert_count = 1, .tickets = "t"},
        {.server = true, .certs = &certs[0], .cert_count = 1, .ca = "a"},
        {.server = true, .certs = &certs[0], .cert_count = 1, .ca = "a", .verify = LS_TLS_VERIFY_OPTIONAL},
        {.server = true, .certs = &certs[0], .cert_count = 1, .ca = "a", .verify = LS_TLS_VERIFY_REQUIRED},
        /* clang-format on */
    };
    enum { ALL = sizeof all / sizeof *all };
    ls_tls_contexts *contexts = contexts_open();
    ls_tls *first[ALL];
    for (int n = 0; n < ALL; n++) {
        first[n] = get(contexts, &all[n]);
        assert_int_equal(opened, n + 1);
    }
    assert_int_equal(reloaded, 0);
    for (int n = 0; n < ALL; n++) {
        const int before = reloaded;
        ls_tls *again = get(contexts, &all[n]);
        assert_ptr_equal(again, first[n]);
        assert_int_equal(reloaded - before,
                         all[n].ca != NULL || all[n].cert_count > 0); /* its files may have changed */
        __wrap_ls_tls_drop(again);
    }
    assert_int_equal(opened, ALL);
    ls_tls_contexts_close(contexts);
    assert_int_equal(live, ALL); /* the callers hold them */
    for (int n = 0; n < ALL; n++) __wrap_ls_tls_drop(first[n]);
    assert_int_equal(live, 0);
}

TEST(a_failure_is_not_kept)
{
    const ls_tls_options options = {.ca = "ca.pem"};
    ls_tls_contexts *contexts = contexts_open();
    char why[64];
    ls_tls *tls;
    open_err = LS_EINVAL;
    for (int n = 0; n < 2; n++) {
        assert_int_equal(ls_tls_contexts_get(contexts, &options, &tls, why, sizeof why), LS_EINVAL);
        assert_string_equal(why, "ca.pem: no certificate");
    }
    open_err = 0;
    __wrap_ls_tls_drop(get(contexts, &options));
    assert_int_equal(opened, 1);
    ls_tls_contexts_close(contexts);
    assert_int_equal(live, 0);
}

static void keep_line(int level, const char *line, size_t len, void *user)
{
    (void)snprintf(user, 200, "%.*s", (int)len, line);
}

TEST(a_changed_file_that_cannot_be_used_is_logged)
{
    const ls_tls_options options = {.ca = "ca.pem"};
    ls_tls_contexts *contexts = contexts_open();
    char line[200] = "";
    ls_tls *first = get(contexts, &options);
    reload_err = LS_EINVAL;
    ls_log_set_sink(keep_line, line);
    ls_tls *second = get(contexts, &options);
    ls_log_set_sink(NULL, NULL);
    assert_ptr_equal(first, second);
    assert_non_null(strstr(line, "ca.pem: no certificate; the certificates in use stay"));
    __wrap_ls_tls_drop(first);
    __wrap_ls_tls_drop(second);
    ls_tls_contexts_close(contexts);
    assert_int_equal(live, 0);
}

TEST(one_more_than_the_limit_replaces_the_oldest)
{
    ls_tls_contexts *contexts = contexts_open();
    char ca[LS_TLS_CONTEXTS_MAX + 1][16];
    for (int n = 0; n <= LS_TLS_CONTEXTS_MAX; n++) {
        (void)snprintf(ca[n], sizeof ca[n], "%d", n);
        __wrap_ls_tls_drop(get(contexts, &(ls_tls_options){.ca = ca[n]}));
        assert_int_equal(live, n < LS_TLS_CONTEXTS_MAX ? n + 1 : LS_TLS_CONTEXTS_MAX);
    }
    __wrap_ls_tls_drop(get(contexts, &(ls_tls_options){.ca = ca[1]})); /* still there */
    assert_int_equal(opened, LS_TLS_CONTEXTS_MAX + 1);
    __wrap_ls_tls_drop(get(contexts, &(ls_tls_options){.ca = ca[0]})); /* replaced */
    assert_int_equal(opened, LS_TLS_CONTEXTS_MAX + 2);
    ls_tls_contexts_close(contexts);
    assert_int_equal(live, 0);
}
