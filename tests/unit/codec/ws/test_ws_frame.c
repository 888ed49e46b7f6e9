/* test_ws_frame.c - heads of frames: every prefix asks for more, every rule, and every length both ways; masks;
 * Close. */
/* sanitizers: asan; no thread starts */
#include "codec/ws/ws_frame.h"

#include "support.h"

static const ls_ws_rules from_client = {.masked = true}, from_server = {.masked = false},
                         compressing = {.masked = true, .compressed = true};

static int parse_copy(const char *bytes, size_t len, const ls_ws_rules *rules, ls_ws_head *out)
{
    const char *why = NULL;
    char *copy = test_copy_exact(bytes, len);
    const int result = ls_ws_head_parse(copy, len, rules, out, &why);
    free(copy);
    assert_true((result < 0) == (why != NULL));
    assert_true(result >= 0 || result == -LS_WS_PROTOCOL_ERROR);
    return result;
}

/* Every proper prefix asks for more and does not change *out; the whole parses, also with payload behind it. */
static void parses(const char *bytes, size_t len, const ls_ws_rules *rules, ls_ws_head *out)
{
    char longer[LS_WS_HEAD_BYTES_MAX + 3];
    ls_ws_head untouched;
    memset(&untouched, 0xa5, sizeof untouched);
    const ls_ws_head before = untouched;
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(parse_copy(bytes, n, rules, &untouched), 0);
        assert_memory_equal(&untouched, &before, sizeof before);
    }
    assert_int_equal(parse_copy(bytes, len, rules, out), len);
    memcpy(longer, bytes, len);
    memcpy(longer + len, "\xff\xff\xff", 3);
    assert_int_equal(parse_copy(longer, len + 3, rules, out), len);
}

static void assert_same(const ls_ws_head *a, const ls_ws_head *b)
{
    assert_true(a->length == b->length);
    assert_int_equal(a->opcode, b->opcode);
    assert_int_equal(a->fin, b->fin);
    assert_int_equal(a->compressed, b->compressed);
    assert_int_equal(a->masked, b->masked);
    assert_memory_equal(a->key, b->key, sizeof a->key);
}

/* Section 5.7. */
TEST(examples_of_the_rfc)
{
    ls_ws_head head;
    char text[5];
    parses("\x81\x05", 2, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 5, .opcode = LS_WS_TEXT, .fin = true});
    parses("\x81\x85\x37\xfa\x21\x3d", 6, &from_client, &head);
    assert_same(&head, &(ls_ws_head){5, LS_WS_TEXT, true, false, true, {0x37, 0xfa, 0x21, 0x3d}});
    memcpy(text, "\x7f\x9f\x4d\x51\x58", 5);
    ls_ws_mask(text, 5, head.key, 0);
    assert_memory_equal(text, "Hello", 5);
    parses("\x01\x03", 2, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 3, .opcode = LS_WS_TEXT});
    parses("\x80\x02", 2, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 2, .opcode = LS_WS_CONTINUATION, .fin = true});
    parses("\x89\x05", 2, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 5, .opcode = LS_WS_PING, .fin = true});
    parses("\x8a\x85\x37\xfa\x21\x3d", 6, &from_client, &head);
    assert_same(&head, &(ls_ws_head){5, LS_WS_PONG, true, false, true, {0x37, 0xfa, 0x21, 0x3d}});
    parses("\x82\x7e\x01\x00", 4, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 256, .opcode = LS_WS_BINARY, .fin = true});
    parses("\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 10, &from_server, &head);
    assert_same(&head, &(ls_ws_head){.length = 65536, .opcode = LS_WS_BINARY, .fin = true});
}

/* What is written parses to the same, in the shortest form. */
TEST(every_length_both_ways)
{
    static const struct {
        uint64_t length;
        size_t bytes; /* of the head without a key */
    } cases[] = {{0, 2},     {1, 2},      {125, 2},         {126, 4},          {127, 4},
                 {65535, 4}, {65536, 10}, {0xffffffff, 10}, {0x100000000, 10}, {INT64_MAX, 10}};
    static const uint8_t opcodes[] = {LS_WS_CONTINUATION, LS_WS_TEXT, LS_WS_BINARY,
                                      LS_WS_CLOSE,        LS_WS_PING, LS_WS_PONG};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        for (unsigned bits = 0; bits < 8 * sizeof opcodes; bits++) {
            const ls_ws_head head = {.length = cases[n].length,
                                     .opcode = opcodes[bits / 8],
                                     .fin = bits & 1,
                                     .compressed = bits & 2,
                                     .masked = bits & 4,
                                     .key = {(bits & 4) ? 0x12 : 0, 0, (bits & 4) ? 0xfe : 0, 0}};
            const bool control = head.opcode >= LS_WS_CLOSE;
            if (control && (!head.fin || head.compressed || head.length > LS_WS_CONTROL_BYTES_MAX)) continue;
            if (head.opcode == LS_WS_CONTINUATION && head.compressed) continue;
            char bytes[LS_WS_HEAD_BYTES_MAX];
            ls_ws_head again;
            const size_t len = ls_ws_head_write(&head, bytes);
            assert_int_equal(len, cases[n].bytes + (head.masked ? 4 : 0));
            parses(bytes, len, &(ls_ws_rules){head.masked, head.compressed}, &again);
            assert_same(&again, &head);
        }
    }
}

/* Each is refused at its last byte, with any bytes behind it, and not before. */
TEST(refused_as_soon_as_a_byte_shows_it)
{
    static const struct {
        const char *bytes;
        size_t len;
        const ls_ws_rules *rules;
    } cases[] = {
        /* clang-format off */
        {"\xa1", 1, &from_client}, /* RSV2 */
        {"\x91", 1, &from_client}, /* RSV3 */
        {"\xc1", 1, &from_client}, /* RSV1, not negotiated */
        {"\xe1", 1, &compressing}, /* RSV1 and RSV2 */
        {"\xc0", 1, &compressing}, /* RSV1 in a continuation */
        {"\xc8", 1, &compressing}, /* RSV1 in control frames */
        {"\xc9", 1, &compressing}, {"\xca", 1, &compressing}, {"\x83", 1, &from_client},
        {"\x84", 1, &from_client}, {"\x85", 1, &from_client}, {"\x86", 1, &from_client},
        {"\x87", 1, &from_client}, {"\x8b", 1, &from_client}, {"\x8c", 1, &from_client},
        {"\x8d", 1, &from_client}, {"\x8e", 1, &from_client}, {"\x8f", 1, &from_client},
        {"\x08", 1, &from_client}, /* fragmented control frames */
        {"\x09", 1, &from_client}, {"\x0a", 1, &from_client}, {"\x81\x05", 2, &from_client}, /* not masked */
        {"\x81\x85", 2, &from_server}, /* masked */
        {"\x88\xfe", 2, &from_client}, /* long control frames */
        {"\x89\xff", 2, &from_client}, {"\x8a\x7e", 2, &from_server},
        {"\x81\xfe\x00\x00", 4, &from_client}, /* not the shortest length */
        {"\x81\xfe\x00\x7d", 4, &from_client}, {"\x81\xff\x00\x00\x00\x00\x00\x00", 8, &from_client},
        {"\x81\xff\x80", 3, &from_client}, /* 2^63 */
        {"\x82\xff\xff", 3, &from_client},
        /* clang-format on */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char longer[LS_WS_HEAD_BYTES_MAX];
        ls_ws_head head;
        for (size_t len = 0; len < cases[n].len; len++)
            assert_int_equal(parse_copy(cases[n].bytes, len, cases[n].rules, &head), 0);
        memset(longer, 0xff, sizeof longer);
        memcpy(longer, cases[n].bytes, cases[n].len);
        for (size_t len = cases[n].len; len <= sizeof longer; len++) {
            if (parse_copy(longer, len, cases[n].rules, &head) >= 0) fail_msg("case %zu is accepted", n);
        }
    }
}

/* At the limits that the cases above exceed. */
TEST(accepted_at_the_limit)
{
    ls_ws_head head;
    parses("\xc1\x80\1\2\3\4", 6, &compressing, &head);
    assert_true(head.compressed);
    parses("\x42\x80\1\2\3\4", 6, &compressing, &head);
    assert_true(head.compressed && !head.fin);
    parses("\x89\xfd\1\2\3\4", 6, &from_client, &head);
    assert_int_equal(head.length, 125);
    parses("\x81\xfe\x00\x7e\1\2\3\4", 8, &from_client, &head);
    assert_int_equal(head.length, 126);
    parses("\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\1\2\3\4", 14, &from_client, &head);
    assert_true(head.length == INT64_MAX);
}

/* Every length around the blocks, at every alignment and position, as byte by byte; no byte outside changes. */
TEST(masks)
{
    enum { LEN = 75, ROOM = LEN + 24 };
    static const uint8_t key[4] = {0x37, 0xfa, 0x21, 0x3d};
    char plain[ROOM], place[ROOM], copy[ROOM], wanted[ROOM];
    for (size_t i = 0; i < ROOM; i++) plain[i] = (char)(i * 7 + 3);
    for (size_t len = 0; len <= LEN; len++) {
        for (size_t from = 0; from < 16; from++) {
            for (uint64_t at = UINT32_MAX - 1; at < (uint64_t)UINT32_MAX + 3; at++) {
                memcpy(wanted, plain, ROOM);
                for (size_t i = 0; i < len; i++) wanted[from + i] = (char)(plain[from + i] ^ key[(at + i) % 4]);
                memcpy(place, plain, ROOM);
                ls_ws_mask(place + from, len, key, at);
                assert_memory_equal(place, wanted, ROOM);
                memcpy(copy, plain, ROOM);
                ls_ws_mask_copy(copy + from, plain + from, len, key, at);
                assert_memory_equal(copy, wanted, ROOM);
            }
        }
    }
    for (size_t split = 0; split <= LEN; split++) { /* the position goes on where the first part ended */
        memcpy(place, plain, ROOM);
        memcpy(wanted, plain, ROOM);
        ls_ws_mask(wanted, LEN, key, 0);
        ls_ws_mask(place, split, key, 0);
        ls_ws_mask(place + split, LEN - split, key, split);
        assert_memory_equal(place, wanted, ROOM);
    }
}

TEST(close_codes)
{
    for (unsigned code = 0; code <= 65535; code++) {
        const bool valid =
            (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code < 5000);
        char payload[2] = {(char)(code >> 8), (char)code};
        unsigned found = 1;
        const char *reason = NULL;
        size_t reason_len = 1;
        assert_int_equal(ls_ws_code_valid(code), valid);
        const int result = ls_ws_close_parse(payload, 2, &found, &reason, &reason_len);
        assert_int_equal(result, valid ? LS_OK : -LS_WS_PROTOCOL_ERROR);
        assert_int_equal(found, valid ? code : 1);
        assert_int_equal(reason_len, valid ? 0 : 1);
    }
}

TEST(close_reasons)
{
    static const struct {
        const char *payload;
        size_t len;
        int result;
        unsigned code;
        const char *reason;
    } cases[] = {
        /* clang-format off */
        {"", 0, LS_OK, LS_WS_NO_CODE, ""}, {"\x03", 1, -LS_WS_PROTOCOL_ERROR, 0, NULL},
        {"\x03\xe8", 2, LS_OK, 1000, ""}, {"\x03\xe9going away", 12, LS_OK, 1001, "going away"},
        {"\x0f\xa0\xe2\x82\xac", 5, LS_OK, 4000, "\xe2\x82\xac"},
        {"\x03\xe8\xe2\x82", 4, -LS_WS_BAD_DATA, 0, NULL}, {"\x03\xe8\xff", 3, -LS_WS_BAD_DATA, 0, NULL},
        {"\x03\xed\xff", 3, -LS_WS_PROTOCOL_ERROR, 0, NULL}, /* 1005 */
        /* clang-format on */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char *copy = test_copy_exact(cases[n].payload, cases[n].len);
        unsigned code = 0;
        const char *reason = NULL;
        size_t reason_len = 0;
        assert_int_equal(ls_ws_close_parse(copy, cases[n].len, &code, &reason, &reason_len), cases[n].result);
        assert_int_equal(code, cases[n].code);
        if (cases[n].reason != NULL) {
            assert_int_equal(reason_len, strlen(cases[n].reason));
            assert_memory_equal(reason, cases[n].reason, reason_len);
        }
        free(copy);
    }
}
