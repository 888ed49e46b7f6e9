/* fuzz_ws_handshake.c - the opening handshake for any head: a status with its text, and results inside the bytes. A
 * request that the server accepts has a key, and the client accepts the response to it. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/http1/http1_parse.h"
#include "codec/http1/http1_reader.h"
#include "codec/ws/ws_handshake.h"

static const char *const names[] = {"chat", "b"}, *const origins[] = {"https://a.example", "http://b:81"};

static void server(const uint8_t *data, size_t size)
{
    static const ls_http_limits limits = {4096, 2048, LS_HTTP_FIELDS_MAX};
    char *bytes = fuzz_copy_exact(data, size);
    ls_http_head head;
    if (ls_http1_parse(bytes, size, 0, &limits, &head, &(ls_http_terms){0}, NULL) > 0) {
        char host[256];
        (void)snprintf(host, sizeof host, "%.*s", (int)(head.host.len < 255 ? head.host.len : 255),
                       bytes + head.host.at);
        for (unsigned n = 0; n < 8; n++) {
            const ls_ws_policy policy = {
                .protocols = {names, n & 1 ? 2 : 0}, .origins = {origins, n & 2 ? 2 : 0}, .any_origin = false};
            ls_ws_handshake out;
            const int status = ls_ws_handshake_check(&head, bytes, n & 4, host, &policy, &out);
            FUZZ_HOLDS(status == 101 || status == 400 || status == 403 || status == 405 || status == 426 ||
                       status == 501);
            FUZZ_HOLDS((status == 101) == (out.why[0] == '\0') && (status != 426 || out.fields[0] != '\0'));
            if (status != 101) continue;
            FUZZ_HOLDS(strlen(out.accept) == LS_WS_ACCEPT_CHARS);
            FUZZ_HOLDS(out.protocol == NULL ||
                       (out.protocol >= bytes && out.protocol + out.protocol_len <= bytes + size));
            FUZZ_HOLDS(out.protocol == NULL || (n & 1));
        }
    }
    free(bytes);
}

static void client(const uint8_t *data, size_t size)
{
    static const ls_ws_deflate_options deflate = LS_WS_DEFLATE_OPTIONS;
    char *bytes = fuzz_copy_exact(data, size);
    for (unsigned n = 0; n < 2; n++) {
        const ls_ws_request request = {.host = "h",
                                       .target = "/",
                                       .protocols = {names, 2},
                                       .deflate = n == 0 ? NULL : &deflate,
                                       .key = "dGhlIHNhbXBsZSBub25jZQ=="};
        ls_http1_reader reader;
        ls_ws_response out;
        const char *wrong = NULL;
        char why[LS_WS_WHY_BYTES];
        size_t skip;
        ls_http1_reader_init(&reader, LS_ASKED_UPGRADE);
        if (ls_http1_read_head(&reader, bytes, size, 4096, &skip, &wrong) <= 0) break;
        const int err = ls_ws_response_check(&reader.head, bytes + skip, &request, &out, why);
        FUZZ_HOLDS(memchr(why, '\0', sizeof why) != NULL);
        FUZZ_HOLDS((err == LS_EPROTO || err == LS_EREFUSED) == (why[0] != '\0'));
        FUZZ_HOLDS((err == LS_EREFUSED) == (reader.head.status != 101));
        FUZZ_HOLDS(err != LS_OK || (out.protocol >= -1 && out.protocol < 2 && (n == 1 || !out.deflated)));
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy_exact(data, size);
    server(data, size);
    client(data, size);
    (void)ls_ws_origin_valid(bytes, size);
    free(bytes);
    return 0;
}
