/* test_http_head.c - which fields may be trailers (RFC 9110 section 6.5.1). What else is in http_head.h is tested with
 * heads that are parsed: http1/test_http1_parse_fields.c. */
/* sanitizers: asan; no thread starts */
#include "codec/http_head.h"
#include "support.h"

static bool is_trailer(const char *name)
{
    return ls_http_is_trailer(name, strlen(name));
}

TEST(fields_that_may_be_trailers)
{
    static const char *const names[] = {"Content-Digest", "Digest", "ETag",  "Server-Timing",
                                        "X-Checksum",     "Conten", "Hosts", "a"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (!is_trailer(names[n])) fail_msg("%s", names[n]);
}

TEST(fields_that_need_to_be_known_before_the_content)
{
    static const char *const names[] = {
        "Content-Length", "transfer-encoding", "HOST",         "Trailer",   "Authorization",
        "Cookie",         "Set-Cookie",        "Content-Type", "If-Match",  "Range",
        "Cache-Control",  "Connection",        "Location",     "Forwarded", "Content-Encoding"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (is_trailer(names[n])) fail_msg("%s", names[n]);
}
