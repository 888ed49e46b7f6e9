/* fuzz_ws_frame.c - frames, as a server and as a client: the head gives the same result for every prefix, and is what the
 * writer makes of it; unmasking twice gives the payload again; UTF-8 does not depend on splits; a Close payload is read
 * inside its bytes. The first byte chooses the rules. */
#include "fuzz.h"

#include "base/err.h"
#include "base/utf8.h"
#include "codec/ws/ws_frame.h"

static int parse(const uint8_t *data, size_t len, const ls_ws_rules *rules, ls_ws_head *out)
{
    const char *why = NULL;
    char *copy = fuzz_copy_exact(data, len);
    const int result = ls_ws_head_parse(copy, len, rules, out, &why);
    FUZZ_HOLDS((result == -LS_WS_PROTOCOL_ERROR && why != NULL) || (result >= 0 && why == NULL));
    FUZZ_HOLDS(result <= LS_WS_HEAD_BYTES_MAX && (result < 0 || (size_t)result <= len));
    free(copy);
    return result;
}

static void payload(const uint8_t *data, size_t len, const ls_ws_head *head)
{
    char *bytes = fuzz_copy_exact(data, len), *masked = fuzz_copy_exact(data, len);
    ls_utf8 bytewise = {0};
    bool valid = true;
    unsigned code;
    const char *reason;
    size_t reason_len;
    const size_t split = len > 0 ? data[0] % (len + 1) : 0;
    ls_ws_mask_copy(masked, bytes, len, head->key, 0);
    for (size_t i = 0; i < len; i++) FUZZ_HOLDS(masked[i] == (char)(bytes[i] ^ head->key[i % 4]));
    ls_ws_mask(masked, split, head->key, 0);
    ls_ws_mask(masked + split, len - split, head->key, split);
    FUZZ_HOLDS(memcmp(masked, bytes, len) == 0);

    for (size_t i = 0; i < len && valid; i++) valid = ls_utf8_feed(&bytewise, bytes + i, 1);
    FUZZ_HOLDS(ls_utf8_valid(bytes, len) == (valid && ls_utf8_complete(&bytewise)));
    if (ls_ws_close_parse(bytes, len, &code, &reason, &reason_len) == LS_OK) {
        FUZZ_HOLDS(code == LS_WS_NO_CODE || ls_ws_code_valid(code));
        FUZZ_HOLDS((code == LS_WS_NO_CODE) == (len == 0) && reason + reason_len == bytes + len);
        FUZZ_HOLDS(ls_utf8_valid(reason, reason_len));
    }
    free(bytes);
    free(masked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_ws_head head, again;
    if (size == 0) return 0;
    const ls_ws_rules rules = {.masked = data[0] & 1, .compressed = data[0] & 2};
    data++;
    size--;
    const int whole = parse(data, size, &rules, &head);
    for (size_t n = 0; n <= size; n++) {
        const int part = parse(data, n, &rules, &again);
        FUZZ_HOLDS(part == 0 || part == whole);
        if (part != 0) break;
    }
    if (whole <= 0) return 0;
    char bytes[LS_WS_HEAD_BYTES_MAX];
    FUZZ_HOLDS(head.masked == rules.masked && (rules.compressed || !head.compressed) && head.length <= INT64_MAX);
    FUZZ_HOLDS(head.opcode < LS_WS_CLOSE || (head.fin && !head.compressed && head.length <= LS_WS_CONTROL_BYTES_MAX));
    FUZZ_HOLDS(ls_ws_head_write(&head, bytes) == (size_t)whole && memcmp(bytes, data, (size_t)whole) == 0);
    const size_t left = size - (size_t)whole;
    payload(data + whole, head.length < left ? (size_t)head.length : left, &head);
    return 0;
}
