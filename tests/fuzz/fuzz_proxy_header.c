/* fuzz_proxy_header.c - the parser of PROXY headers: feeding byte by byte gives the result of the whole input, bytes
 * behind the header do not count, and a line written from the parsed addresses gives the same addresses. */
#include "fuzz.h"

#include "base/err.h"
#include "net/proxy_header.h"

static int parse(const uint8_t *data, size_t size, ls_proxy_header *out, const char **why)
{
    char *copy = fuzz_copy_exact(data, size);
    const int err = ls_proxy_header_parse(copy, size, out, why);
    free(copy);
    return err;
}

static void check_line(const ls_proxy_header *header)
{
    const bool ip4 = header->source.family == LS_ADDR_IP4 && header->destination.family == LS_ADDR_IP4;
    const bool ip6 = header->source.family == LS_ADDR_IP6 && header->destination.family == LS_ADDR_IP6;
    char source[LS_ADDR_TEXT_BYTES], destination[LS_ADDR_TEXT_BYTES], line[3 * LS_ADDR_TEXT_BYTES];
    ls_proxy_header again;
    const char *why = NULL;
    if (!ip4 && !ip6) return;
    const int len = snprintf(line, sizeof line, "PROXY TCP%c %s %s %u %u\r\n", ip4 ? '4' : '6',
                             ls_addr_host(&header->source, source), ls_addr_host(&header->destination, destination),
                             (unsigned)header->source.port, (unsigned)header->destination.port);
    FUZZ_HOLDS(len > 0 && len <= LS_PROXY_V1_BYTES_MAX);
    FUZZ_HOLDS(parse((const uint8_t *)line, (size_t)len, &again, &why) == LS_OK);
    FUZZ_HOLDS(again.bytes == (size_t)len && again.has_addrs);
    FUZZ_HOLDS(memcmp(&again.source, &header->source, sizeof again.source) == 0);
    FUZZ_HOLDS(memcmp(&again.destination, &header->destination, sizeof again.destination) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_proxy_header whole, fed;
    const char *why = NULL;
    const size_t most = size < LS_PROXY_V2_BYTES_MAX ? size : LS_PROXY_V2_BYTES_MAX;
    const int err = parse(data, size, &whole, &why);
    FUZZ_HOLDS(err == LS_OK || err == LS_EAGAIN || err == LS_EPROTO);
    FUZZ_HOLDS((err == LS_EPROTO) == (why != NULL));
    FUZZ_HOLDS(err != LS_EAGAIN || size < LS_PROXY_V2_BYTES_MAX);

    int step = LS_EAGAIN;
    size_t n = 0;
    for (; step == LS_EAGAIN && n <= most; n++) {
        why = NULL;
        step = parse(data, n, &fed, &why);
    }
    FUZZ_HOLDS(step == err);
    if (err < 0) return 0;
    FUZZ_HOLDS(whole.bytes == n - 1 && whole.bytes > 0 && whole.bytes <= size);
    FUZZ_HOLDS(memcmp(&whole, &fed, sizeof whole) == 0);
    FUZZ_HOLDS(whole.has_addrs == (whole.source.family != LS_ADDR_NONE));
    FUZZ_HOLDS(whole.has_addrs == (whole.destination.family != LS_ADDR_NONE));
    check_line(&whole);
    return 0;
}
