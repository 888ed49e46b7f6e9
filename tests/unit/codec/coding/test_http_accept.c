/* test_http_accept.c - Accept-Encoding and Accept. */
/* sanitizers: asan; no thread starts */
#include "codec/coding/http_accept.h"
#include "codec/http1/http1_parse.h"

#include "support.h"

static const ls_http_limits limits = {65536, 8192, LS_HTTP_FIELDS_MAX};

/* A head with exactly these fields; the caller frees the text. */
static char *parsed(const char *fields, ls_http_head *head)
{
    char text[1024];
    const int len = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", fields);
    char *copy = test_copy_exact(text, (size_t)len);
    assert_int_equal(ls_http1_parse(copy, (size_t)len, 0, &limits, head, &(ls_http_terms){0}, NULL), len);
    return copy;
}

static const char *codings(const char *fields, const enum ls_coding *offered, unsigned count_offered)
{
    static char text[24];
    enum ls_coding out[LS_CODINGS];
    ls_http_head head;
    char *copy = parsed(fields, &head);
    const unsigned count = ls_accept_codings(&head, copy, offered, count_offered, out);
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++) strcat(strcat(text, ls_codings[out[i]]->name), " ");
    free(copy);
    return text;
}

TEST(the_accepted_codings)
{
    static const char *const cases[][2] = {
        /* clang-format off */
        {"", ""}, {"Accept-Encoding:\r\n", ""}, {"Accept-Encoding: gzip\r\n", "gzip "},
        {"Accept-Encoding: x-gzip\r\n", "gzip "}, {"Accept-Encoding: GZIP, BR\r\n", "br gzip "},
        {"Accept-Encoding: gzip, deflate, br, zstd\r\n", "br gzip "},
        {"Accept-Encoding: gzip;q=1.0, br;q=0.5\r\n", "gzip br "},
        {"Accept-Encoding: gzip;q=0.5, br;q=0.501\r\n", "br gzip "},
        {"Accept-Encoding: br;q=0, gzip;q=0.001\r\n", "gzip "}, {"Accept-Encoding: br;q=0.000\r\n", ""},
        {"Accept-Encoding: br ; q=0.9\r\n", "br "}, {"Accept-Encoding: br;Q=0\r\n", ""},
        {"Accept-Encoding: *\r\n", "br gzip "}, {"Accept-Encoding: *;q=0\r\n", ""},
        {"Accept-Encoding: br;q=0, *\r\n", "gzip "}, {"Accept-Encoding: gzip, *;q=0\r\n", "gzip "},
        {"Accept-Encoding: gzip;q=0.5, *;q=0.8\r\n", "br "}, /* "*" is also the weight of the file as it is */
        {"Accept-Encoding: gzip;q=0.5, *;q=0.8, identity;q=0.1\r\n", "br gzip "},
        {"Accept-Encoding: *;q=0.5\r\n", "br gzip "},
        {"Accept-Encoding: identity, br;q=0.5\r\n", ""}, /* the file as it is is wanted more */
        {"Accept-Encoding: identity;q=0.5, br;q=0.5\r\n", "br "}, {"Accept-Encoding: identity;q=0\r\n", ""},
        {"Accept-Encoding: br;q=2, gzip;q=0.0001\r\n", ""}, /* invalid weights */
        {"Accept-Encoding: br;q=, gzip;q=x, br;q=1.001\r\n", ""},
        {"Accept-Encoding: br;q=1., gzip;q=0.\r\n", "br "},
        {"Accept-Encoding: br;q=.5, gzip;q=.501\r\n", "gzip br "},
        {"Accept-Encoding: br;q=., gzip;q=.0001, zstd;q=..1\r\n", ""},
        {"Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n", "br gzip "},
        {"Accept-Encoding: , ,br,\r\n", "br "}, {"Accept-Encoding: brotli, xgzip\r\n", ""},
        {"Accept-Encodings: br\r\n", ""},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(codings(cases[i][0], (const enum ls_coding[]){LS_CODING_BR, LS_CODING_GZIP}, 2),
                            cases[i][1]);
}

/* The order of the offer decides between equals, and what is not offered does not count. */
TEST(the_order_of_the_offer)
{
    static const enum ls_coding three[] = {LS_CODING_ZSTD, LS_CODING_BR, LS_CODING_GZIP},
                                other[] = {LS_CODING_GZIP, LS_CODING_BR, LS_CODING_ZSTD};
    static const char all[] = "Accept-Encoding: gzip, deflate, br, zstd\r\n",
                      some[] = "Accept-Encoding: zstd;q=0.2, br;q=0.5, gzip;q=0.5\r\n",
                      any[] = "Accept-Encoding: gzip;q=0.4, *\r\n";
    assert_string_equal(codings(all, three, 3), "zstd br gzip ");
    assert_string_equal(codings(all, other, 3), "gzip br zstd ");
    assert_string_equal(codings(all, other, 1), "gzip ");
    assert_string_equal(codings(all, other, 0), "");
    assert_string_equal(codings(some, three, 3), "br gzip zstd ");
    assert_string_equal(codings(some, other, 3), "gzip br zstd ");
    assert_string_equal(codings(any, three, 3), "zstd br ");
    assert_string_equal(codings("Accept-Encoding: gzip, br;q=0.9, zstd;q=0.8, identity;q=0.9\r\n", three, 3),
                        "gzip br ");
}

TEST(whether_a_page_is_wanted)
{
    static const struct {
        const char *fields;
        enum ls_accept_page page;
    } cases[] = {
        /* clang-format off */
        {"", LS_PAGE_POSSIBLE}, {"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", LS_PAGE_NAMED},
        {"Accept: TEXT/HTML;level=1;q=0.1\r\n", LS_PAGE_NAMED}, {"Accept: */*\r\n", LS_PAGE_POSSIBLE},
        {"Accept: text/*\r\n", LS_PAGE_POSSIBLE}, {"Accept: text/*;q=0, */*\r\n", LS_PAGE_REFUSED},
        {"Accept: text/html;q=0, */*\r\n", LS_PAGE_REFUSED}, {"Accept: application/json\r\n", LS_PAGE_REFUSED},
        {"Accept:\r\n", LS_PAGE_REFUSED},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_http_head head;
        char *copy = parsed(cases[i].fields, &head);
        assert_int_equal(ls_accept_page(&head, copy), cases[i].page);
        free(copy);
    }
}

TEST(the_weight_of_a_type)
{
    static const struct {
        const char *fields, *type;
        int weight;
        bool named;
    } cases[] = {
        {"", "application/json", 1000, false},
        {"Accept: application/json\r\n", "application/json", 1000, true},
        {"Accept: APPLICATION/JSON; charset=utf-8; q=0.5\r\n", "application/json", 500, true},
        {"Accept: application/json;q=0, */*\r\n", "application/json", 0, false},
        {"Accept: application/*;q=0.25, */*\r\n", "application/json", 250, false},
        {"Accept: application/*;q=0.25, */*;q=0.75\r\n", "text/plain", 750, false},
        {"Accept: applicatio/*, application/jso, application/jsonx, */json\r\n", "application/json", 0, false},
        {"Accept: text/html\r\nAccept: application/json;q=0.001\r\n", "application/json", 1, true},
        {"Accept: text/html, image/gif, */*; q=.2\r\n", "application/json", 200, false}, /* of Java */
        {"Accept: application/json;q=1.001\r\n", "application/json", 0, false}, /* an invalid element is ignored */
        {"Accept:\r\n", "application/json", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_http_head head;
        bool named = !cases[i].named;
        char *copy = parsed(cases[i].fields, &head), *type = test_copy_exact(cases[i].type, strlen(cases[i].type));
        assert_int_equal(ls_accept_weight(&head, copy, type, strlen(cases[i].type), &named), cases[i].weight);
        assert_int_equal(named, cases[i].named);
        free(type);
        free(copy);
    }
}
