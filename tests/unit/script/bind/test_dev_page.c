/* test_dev_page.c - where the script of dev mode goes into a page, and the nonce that it needs. */
#include "script/bind/dev_page.h"

#include "support.h"

static void the_place(void **state)
{
    static const struct {
        const char *before, *after;
        bool document, found;
    } cases[] = {
        {"<html><body>a", "</body></html>", false, true},
        {"a</body>b", "</BODY >", false, true}, /* the last one */
        {"<html>a", "</html>", false, true},
        {"<!doctype html><p>a", "", false, true},
        {" \r\n<!DOCTYPE HTML><p>a", "", false, true},
        {"<HTML><p>a", "", false, true},
        {"<p>part", "", false, false}, /* which a script of the page puts into it */
        {"<p>page", "", true, true},
        {"", "", true, true},
        {"", "", false, false},
        {"<", "", false, false},
        {"</bod", "", false, false},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const size_t before = strlen(cases[n].before), after = strlen(cases[n].after);
        char *text = malloc(before + after + 1);
        memcpy(text, cases[n].before, before);
        memcpy(text + before, cases[n].after, after);
        char *copy = test_copy_exact(text, before + after);
        assert_true(ls_dev_page_place(copy, before + after, cases[n].document) ==
                    (cases[n].found ? before : SIZE_MAX));
        free(copy);
        free(text);
    }
}

static void the_nonce(void **state)
{
    static const struct {
        const char *policy, *nonce;
    } cases[] = {
        {"script-src 'nonce-abc123='", "abc123="},
        {"default-src 'self'; script-src 'self' 'NONCE-x' 'nonce-y'", "x"},
        {"script-src 'self'", NULL},
        {"script-src 'nonce-'", NULL},
        {"script-src 'nonce-abc", NULL},
        {"script-src 'nonce-", NULL},
        {"script-src 'nonce-a\"b'", NULL}, /* would end the attribute */
        {"", NULL},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        size_t len = 0;
        char *copy = test_copy_exact(cases[n].policy, strlen(cases[n].policy));
        const char *nonce = ls_dev_page_nonce(copy, strlen(cases[n].policy), &len);
        assert_true((nonce == NULL) == (cases[n].nonce == NULL));
        if (nonce != NULL) {
            assert_int_equal(len, strlen(cases[n].nonce));
            assert_memory_equal(nonce, cases[n].nonce, len);
        }
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_place), cmocka_unit_test(the_nonce)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
