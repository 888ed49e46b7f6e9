/* test_ws_deflate.c - the negotiation of permessage-deflate: which offer a server accepts with which response, and
 * which responses a client refuses. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "codec/ws/ws_deflate.h"

static const ls_ws_deflate_options none = LS_WS_DEFLATE_OPTIONS;

/* The response in `text`, terminated; the code. */
static int accept_offers(const char *offers, const ls_ws_deflate_options *options, ls_ws_deflate_params *out,
                         char text[LS_WS_DEFLATE_TEXT_MAX + 1])
{
    const size_t offers_len = strlen(offers);
    char *copy = test_copy_exact(offers, offers_len);
    size_t len = 0;
    const int err = ls_ws_deflate_accept(copy, offers_len, options, out, text, &len);
    text[err == LS_OK ? len : 0] = '\0';
    free(copy);
    return err;
}

typedef struct accepted {
    const char *offers, *response;
    bool server_takeover, client_takeover;
    unsigned server_bits, client_bits;
} accepted;

static void accepts(const accepted *cases, size_t count, const ls_ws_deflate_options *options)
{
    for (size_t i = 0; i < count; i++) {
        ls_ws_deflate_params params;
        char text[LS_WS_DEFLATE_TEXT_MAX + 1];
        assert_int_equal(accept_offers(cases[i].offers, options, &params, text), LS_OK);
        assert_string_equal(text, cases[i].response);
        assert_int_equal(params.server_takeover, cases[i].server_takeover);
        assert_int_equal(params.client_takeover, cases[i].client_takeover);
        assert_int_equal(params.server_bits, cases[i].server_bits);
        assert_int_equal(params.client_bits, cases[i].client_bits);
    }
}

#define BASE         "permessage-deflate"
#define SERVER_NO    "; server_no_context_takeover"
#define CLIENT_NO    "; client_no_context_takeover"
#define SERVER_BITS  "; server_max_window_bits"
#define CLIENT_BITS  "; client_max_window_bits"
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

TEST(without_takeover)
{
    static const accepted cases[] = {
        {BASE, BASE SERVER_NO CLIENT_NO, false, false, 15, 15},
        {" \t" BASE "\t ", BASE SERVER_NO CLIENT_NO, false, false, 15, 15},
        {BASE CLIENT_BITS, BASE SERVER_NO CLIENT_NO, false, false, 15, 15}, /* browsers */
        {BASE "\t;\tclient_no_context_takeover ;server_no_context_takeover", BASE SERVER_NO CLIENT_NO, false, false,
         15, 15},
        {BASE SERVER_BITS "=10", BASE SERVER_NO CLIENT_NO SERVER_BITS "=10", false, false, 10, 15},
        {BASE SERVER_BITS "=15", BASE SERVER_NO CLIENT_NO SERVER_BITS "=15", false, false, 15, 15},
        {BASE SERVER_BITS "=9", BASE SERVER_NO CLIENT_NO SERVER_BITS "=9", false, false, 9, 15},
        {BASE SERVER_BITS " = \"1\\2\"", BASE SERVER_NO CLIENT_NO SERVER_BITS "=12", false, false, 12, 15},
        {BASE CLIENT_BITS "=8", BASE SERVER_NO CLIENT_NO CLIENT_BITS "=8", false, false, 15, 8},
        {BASE CLIENT_BITS "=\"15\"", BASE SERVER_NO CLIENT_NO, false, false, 15, 15},
        /* the first acceptable one of several */
        {"foo, x-bar; a=1; b=\"2\", " BASE ", " BASE CLIENT_BITS "=9", BASE SERVER_NO CLIENT_NO, false, false, 15, 15},
        {",, ," BASE ",", BASE SERVER_NO CLIENT_NO, false, false, 15, 15},
        {BASE SERVER_BITS "=8, " BASE SERVER_BITS "=11", BASE SERVER_NO CLIENT_NO SERVER_BITS "=11", false, false, 11,
         15},
        {BASE "; future, " BASE CLIENT_BITS "=13", BASE SERVER_NO CLIENT_NO CLIENT_BITS "=13", false, false, 15, 13},
    };
    accepts(cases, COUNT(cases), &none);
}

TEST(with_takeover_and_windows)
{
    static const accepted cases[] = {
        {BASE, BASE, true, true, 15, 15},
        {BASE SERVER_NO, BASE SERVER_NO, false, true, 15, 15},
        {BASE CLIENT_NO, BASE CLIENT_NO, true, false, 15, 15},
        {BASE CLIENT_BITS SERVER_BITS "=15", BASE SERVER_BITS "=15", true, true, 15, 15},
    };
    static const accepted small[] = {
        /* a server may demand its own window in any case, that of the client only if the client knows the parameter */
        {BASE, BASE SERVER_BITS "=12", true, true, 12, 15},
        {BASE CLIENT_BITS, BASE SERVER_BITS "=12" CLIENT_BITS "=10", true, true, 12, 10},
        {BASE CLIENT_BITS "=9" SERVER_BITS "=11", BASE SERVER_BITS "=11" CLIENT_BITS "=9", true, true, 11, 9},
        {BASE CLIENT_BITS "=14" SERVER_BITS "=14", BASE SERVER_BITS "=12" CLIENT_BITS "=10", true, true, 12, 10},
    };
    ls_ws_deflate_options options = LS_WS_DEFLATE_OPTIONS;
    options.takeover = true;
    accepts(cases, COUNT(cases), &options);
    options.server_bits = 12;
    options.client_bits = 10;
    accepts(small, COUNT(small), &options);
}

TEST(offers_that_are_declined)
{
    static const char *const cases[] = {
        /* clang-format off */
        "", " ", ",", "foo", "permessage-deflat", "permessage-deflatee", "Permessage-Deflate",
        "x-webkit-deflate-frame", BASE "; future", BASE "; future=1", BASE SERVER_NO "=1",
        BASE CLIENT_NO "=\"x\"", BASE SERVER_NO SERVER_NO, BASE CLIENT_NO CLIENT_NO, BASE SERVER_BITS,
        BASE SERVER_BITS "=8", BASE SERVER_BITS "=7", BASE SERVER_BITS "=16", BASE SERVER_BITS "=010",
        BASE SERVER_BITS "=09", BASE SERVER_BITS "=1", BASE SERVER_BITS "=20", BASE SERVER_BITS "=1a",
        BASE SERVER_BITS "=99999999999999999999", BASE SERVER_BITS "=10" SERVER_BITS "=10",
        BASE CLIENT_BITS "=7", BASE CLIENT_BITS "=16", BASE CLIENT_BITS "=+9", BASE CLIENT_BITS CLIENT_BITS,
        BASE CLIENT_BITS "=10" CLIENT_BITS "=10", BASE "; server_max_window_bit=10", "foo; a=\"" BASE "\"",
        /* clang-format on */
    };
    ls_ws_deflate_params params;
    char text[LS_WS_DEFLATE_TEXT_MAX + 1];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(accept_offers(cases[i], &none, &params, text), LS_ENOENT);
}

TEST(invalid_lists)
{
    static const char *const cases[] = {
        /* clang-format off */
        ";", "=", "foo bar", "foo;", "foo; ", "foo;;a", "foo; =1", "foo; a=", "foo; a=,", "foo; a=\"",
        "foo; a=\"1", "foo; a=\"\\", "foo; a=\"\"", "foo; a=\"b c\"", "foo; a=\"b\"c", "foo; a b", "foo/1",
        "foo; a=\x80", "\"foo\"", BASE ", foo;", BASE "; server_no_context_takeover=", BASE " foo",
        /* clang-format on */
    };
    ls_ws_deflate_params params;
    char text[LS_WS_DEFLATE_TEXT_MAX + 1];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(accept_offers(cases[i], &none, &params, text), LS_EPROTO);
}

static int check(const char *response, const ls_ws_deflate_options *options, ls_ws_deflate_params *out,
                 const char **why)
{
    const size_t len = strlen(response);
    char *copy = test_copy_exact(response, len);
    const int err = ls_ws_deflate_check(copy, len, options, out, why);
    free(copy);
    return err;
}

TEST(the_offer_of_a_client)
{
    ls_ws_deflate_options options = LS_WS_DEFLATE_OPTIONS;
    char text[LS_WS_DEFLATE_TEXT_MAX];
#define OFFER_IS(expected)                                      \
    do {                                                        \
        const size_t len = ls_ws_deflate_offer(&options, text); \
        assert_int_equal(len, strlen(expected));                \
        assert_memory_equal(text, expected, len);               \
    } while (0)
    OFFER_IS(BASE SERVER_NO CLIENT_NO CLIENT_BITS);
    options.takeover = true;
    OFFER_IS(BASE CLIENT_BITS);
    options.server_bits = 10;
    options.client_bits = 9;
    OFFER_IS(BASE SERVER_BITS "=10" CLIENT_BITS "=9");
    options.takeover = false;
    OFFER_IS(BASE SERVER_NO CLIENT_NO SERVER_BITS "=10" CLIENT_BITS "=9"); /* the longest */
#undef OFFER_IS
}

TEST(responses_that_a_client_accepts)
{
    ls_ws_deflate_options options = LS_WS_DEFLATE_OPTIONS;
    ls_ws_deflate_params p;
    const char *why;
#define ACCEPTS(response, server, client, sbits, cbits)               \
    do {                                                              \
        assert_int_equal(check(response, &options, &p, &why), LS_OK); \
        assert_int_equal(p.server_takeover, server);                  \
        assert_int_equal(p.client_takeover, client);                  \
        assert_int_equal(p.server_bits, sbits);                       \
        assert_int_equal(p.client_bits, cbits);                       \
    } while (0)
    ACCEPTS(BASE SERVER_NO CLIENT_NO, false, false, 15, 15);
    ACCEPTS(BASE SERVER_NO, false, false, 15, 15);
    ACCEPTS(BASE SERVER_NO SERVER_BITS "=8" CLIENT_BITS "=8", false, false, 8, 8);
    options.takeover = true;
    ACCEPTS(BASE, true, true, 15, 15);
    ACCEPTS(" " BASE CLIENT_NO " ,", true, false, 15, 15);
    ACCEPTS(BASE SERVER_NO CLIENT_BITS "=\"11\"", false, true, 15, 11);
    options.server_bits = options.client_bits = 11;
    ACCEPTS(BASE SERVER_BITS "=11", true, true, 11, 11);
    ACCEPTS(BASE SERVER_BITS "=10" CLIENT_BITS "=9", true, true, 10, 9);
#undef ACCEPTS
    assert_int_equal(check("", &options, &p, &why), LS_ENOENT);
    assert_int_equal(check(" , ", &options, &p, &why), LS_ENOENT);
}

TEST(responses_that_a_client_refuses)
{
    static const char *const cases[] = {
        "foo",
        BASE ", foo",
        BASE "," BASE,
        BASE ";",
        BASE " x",
        BASE SERVER_NO SERVER_NO,
        BASE "; future",
        BASE SERVER_NO CLIENT_BITS,
        BASE SERVER_NO SERVER_BITS,
        BASE SERVER_NO SERVER_BITS "=16",
        BASE /* server_no_context_takeover was offered */,
    };
    ls_ws_deflate_options options = LS_WS_DEFLATE_OPTIONS;
    ls_ws_deflate_params p;
    const char *why;
    for (size_t i = 0; i < COUNT(cases); i++) {
        why = NULL;
        assert_int_equal(check(cases[i], &options, &p, &why), LS_EPROTO);
        assert_non_null(why);
    }
    options.takeover = true;
    options.server_bits = options.client_bits = 11;
    assert_int_equal(check(BASE, &options, &p, &why), LS_EPROTO); /* the window of 15 bits */
    assert_int_equal(check(BASE SERVER_BITS "=12", &options, &p, &why), LS_EPROTO);
    assert_int_equal(check(BASE SERVER_BITS "=11" CLIENT_BITS "=12", &options, &p, &why), LS_EPROTO);
}

TEST(both_sides_agree)
{
    for (unsigned n = 0; n < 2 * 7 * 7 * 2 * 7 * 7; n++) {
        unsigned at = n;
        ls_ws_deflate_options server = LS_WS_DEFLATE_OPTIONS, client = LS_WS_DEFLATE_OPTIONS;
        ls_ws_deflate_options *const sides[] = {&server, &client};
        ls_ws_deflate_params of_server, of_client;
        char offer[LS_WS_DEFLATE_TEXT_MAX], response[LS_WS_DEFLATE_TEXT_MAX];
        const char *why = "";
        size_t len;
        for (unsigned i = 0; i < 2; i++) {
            sides[i]->takeover = at % 2 != 0;
            sides[i]->server_bits = (uint8_t)(LS_WS_DEFLATE_BITS_MIN + at / 2 % 7);
            sides[i]->client_bits = (uint8_t)(LS_WS_DEFLATE_BITS_MIN + at / 14 % 7);
            at /= 98;
        }
        const size_t offer_len = ls_ws_deflate_offer(&client, offer);
        assert_in_range(offer_len, 1, sizeof offer - 1);
        assert_int_equal(ls_ws_deflate_accept(offer, offer_len, &server, &of_server, response, &len), LS_OK);
        assert_in_range(len, 1, sizeof response - 1);
        assert_int_equal(ls_ws_deflate_check(response, len, &client, &of_client, &why), LS_OK);
        assert_memory_equal(&of_server, &of_client, sizeof of_server);
    }
}

TEST(without_a_store_nothing_is_negotiated)
{
    ls_ws_deflate d = {.store = NULL};
    char text[LS_WS_DEFLATE_TEXT_MAX];
    size_t len;
    assert_int_equal(ls_ws_deflate_negotiate(NULL, BASE, strlen(BASE), &none, &d, text, &len), LS_ENOENT);
    assert_int_equal(ls_ws_deflate_negotiate(NULL, ";", 1, &none, &d, text, &len), LS_EPROTO);
    assert_false(ls_ws_deflate_active(&d));
    assert_false(ls_ws_deflate_shares(&d));
    ls_ws_deflate_end(&d);
}
