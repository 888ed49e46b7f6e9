/* test_http_head.c - which fields may be trailers (RFC 9110 section 6.5.1). What else is in http_head.h is tested with heads
 * that are parsed: http1/test_http1_parse_fields.c. */
/* sanitizers: asan; no thread starts */
#include "codec/http_head.h"
#include "support.h"

static bool is_trailer(const char *name)
{
    return ls_http_is_trailer(name, strlen(name));
}

static void fields_that_may_be_trailers(void **state)
{
    static const char *const names[] = {"Content-Digest", "Digest", "ETag",  "Server-Timing",
                                        "X-Checksum",     "Conten", "Hosts", "a"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (!is_trailer(names[n])) fail_msg("%s", names[n]);
}

static void fields_that_need_to_be_known_before_the_content(void **state)
{
    static const char *const names[] = {
        "Content-Length", "transfer-encoding", "HOST",         "Trailer",   "Authorization",
        "Cookie",         "Set-Cookie",        "Content-Type", "If-Match",  "Range",
        "Cache-Control",  "Connection",        "Location",     "Forwarded", "Content-Encoding"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (is_trailer(names[n])) fail_msg("%s", names[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_that_may_be_trailers),
        cmocka_unit_test(fields_that_need_to_be_known_before_the_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
