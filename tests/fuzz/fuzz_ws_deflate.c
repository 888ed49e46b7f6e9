/* fuzz_ws_deflate.c - the negotiation of permessage-deflate: what a server answers keeps to its options, a client that made
 * this offer accepts it, and a response that a client accepts is within its offer. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/ws/ws_deflate.h"

static void check_bits(unsigned bits, unsigned least)
{
    FUZZ_HOLDS(bits >= least && bits <= LS_WS_DEFLATE_BITS_MAX);
}

static void serve(const char *text, size_t len, const ls_ws_deflate_options *options)
{
    ls_ws_deflate_params p, seen;
    char response[LS_WS_DEFLATE_TEXT_MAX];
    const char *why = NULL;
    size_t response_len;
    const int err = ls_ws_deflate_accept(text, len, options, &p, response, &response_len);
    FUZZ_HOLDS(err == LS_OK || err == LS_ENOENT || err == LS_EPROTO);
    if (err < 0) return;
    check_bits(p.server_bits, LS_WS_DEFLATE_BITS_MIN);
    check_bits(p.client_bits, 8);
    FUZZ_HOLDS(p.server_bits <= options->server_bits);
    FUZZ_HOLDS(options->takeover || (!p.server_takeover && !p.client_takeover));
    const ls_ws_deflate_options any = {true, LS_WS_DEFLATE_BITS_MAX, LS_WS_DEFLATE_BITS_MAX, 0};
    FUZZ_HOLDS(response_len < sizeof response);
    FUZZ_HOLDS(ls_ws_deflate_check(response, response_len, &any, &seen, &why) == LS_OK);
    FUZZ_HOLDS(memcmp(&p, &seen, sizeof p) == 0);
}

static void ask(const char *text, size_t len, const ls_ws_deflate_options *options)
{
    ls_ws_deflate_params p;
    const char *why = NULL;
    const int err = ls_ws_deflate_check(text, len, options, &p, &why);
    FUZZ_HOLDS(err == LS_OK || err == LS_ENOENT || err == LS_EPROTO);
    FUZZ_HOLDS((err == LS_EPROTO) == (why != NULL));
    if (err < 0) return;
    check_bits(p.server_bits, 8);
    check_bits(p.client_bits, 8);
    FUZZ_HOLDS(p.server_bits <= options->server_bits && p.client_bits <= options->client_bits);
    FUZZ_HOLDS(options->takeover || (!p.server_takeover && !p.client_takeover));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const ls_ws_deflate_options options = {(data[0] & 1) != 0, (uint8_t)(9 + (data[0] >> 1) % 7),
                                           (uint8_t)(9 + (data[0] >> 4) % 7), 0};
    char *copy = fuzz_copy_exact(data + 1, size - 1);
    serve(copy, size - 1, &options);
    ask(copy, size - 1, &options);
    free(copy);
    return 0;
}
