/* fuzz_http1_parse_response.c - the response parser gives the same result for every split, and the fields are inside
 * the head. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/http1/http1_parse_response.h"

enum { BYTES_MAX = 512 };

static int parse(const uint8_t *data, size_t len, size_t seen, bool to_head, ls_http_response *head)
{
    const char *why = NULL;
    char *copy = fuzz_copy_exact(data, len);
    int result = ls_http1_parse_response(copy, len, seen, BYTES_MAX, to_head, head, &why);
    FUZZ_HOLDS((result == LS_EPROTO && why != NULL) || (result >= 0 && why == NULL));
    FUZZ_HOLDS(result <= BYTES_MAX && (result < 0 || (size_t)result <= len));
    free(copy);
    return result;
}

static void check_fields(const uint8_t *data, const ls_http_response *head)
{
    char *copy = fuzz_copy_exact(data, head->bytes);
    size_t at = 0, count = 0;
    ls_pair field;
    while (ls_http1_response_field(copy, head, &at, &field)) {
        FUZZ_HOLDS(++count <= LS_RESPONSE_FIELDS_MAX);
        FUZZ_HOLDS(field.name >= copy && field.name_len > 0 && field.name + field.name_len < field.value);
        FUZZ_HOLDS(field.value + field.value_len <= copy + head->bytes - 4);
        FUZZ_HOLDS(ls_is_token(field.name, field.name_len) && ls_is_field_value(field.value, field.value_len));
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_http_response head, again;
    const bool to_head = size > 0 && data[size - 1] == 'H';
    const int whole = parse(data, size, 0, to_head, &head);
    size_t seen = 0;
    if (whole > 0) {
        FUZZ_HOLDS(head.bytes == (uint32_t)whole && memcmp(data + whole - 4, "\r\n\r\n", 4) == 0);
        FUZZ_HOLDS(head.status >= 100 && head.status <= 999 && head.framing <= LS_FRAMING_TO_END);
        FUZZ_HOLDS(head.framing != LS_FRAMING_TO_END || !head.keep_alive);
        FUZZ_HOLDS(!to_head || head.framing == LS_FRAMING_NONE);
        check_fields(data, &head);
    }
    for (size_t n = 0; n <= size; n++) {
        const int part = parse(data, n, seen, to_head, &again);
        FUZZ_HOLDS(part == 0 || part == whole);
        if (part != 0) break;
        seen = n;
    }
    return 0;
}
