/* test_http1_parse_fields.c - request heads: fields, and the ones that determine framing and the connection. */
/* sanitizers: asan; no thread starts */
#include "http1_parse_fixture.h"

TEST(fields)
{
    /* clang-format off */
    static const char *const good[] = {
        "A: \x80\xff \xc3\xa9\r\n", "A:b\r\n", "A:\tb\t \r\n", "A:   \r\n", "!#$%&'*+-.^_`|~09azAZ: v\r\n",
        "A: a\tb c:d\"(),/;<=>?@[]\\{}\r\n", "A: 12345678901234567890\t2345678901234567890\r\n",
        "A: b\r\nA: b\r\n", "Hostile: x\r\nHos: x\r\n",
        "Content-Lengt: x\r\nContent-Length2: x\r\nContent_Length: x\r\n",
        "Transfer-Encodin: x\r\nTransfer_Encoding: chunked\r\n"
    };
    static const char *const bad[] = {
        " A: b\r\n", "\tA: b\r\n", "A : b\r\n", "A\t: b\r\n", ": b\r\n", ":\r\n", "A\r\n", "A b: c\r\n",
        "A(: b\r\n", "\xc3\xa9: b\r\n", "A\x7f: b\r\n", "A: b\n", "A: b\rc\r\n", "A: b\r\r\n", "A: b\n\r\n",
        "A: b\x01\r\n", "A: b\x7f\r\n", "A: 1234567\x0b\r\n", "A: 12345678\x1f\r\n",
        "A: 123456789\1771234567890\r\n", "A: b\r\n c\r\n", "A: b\r\n\tc\r\n", "A: b\r\n \r\n", "A:\r\n b\r\n",
        "\n", "\r\r\n", "\rX\n", "A@b: c\r\n", "A[]: c\r\n", "{A}: c\r\n", "A/B: c\r\n", "A,B: c\r\n", "A=B\r\n",
        "\"A\": c\r\n", "A\\: c\r\n", "Transfer-Encoding\x0b: chunked\r\n", "Content-Length : 5\r\n",
        "Transfer-Encoding : chunked\r\n", " Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n", "Content-Length\r\n: 5\r\n"
    };
    /* clang-format on */
    char text[160];
    static const char nul_value[] = GET "A: b\0c\r\n\r\n", nul_name[] = GET "A\0: b\r\n\r\n";
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        strcat(strcat(strcpy(text, GET), good[i]), "\r\n");
        is_served(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, GET), bad[i]), "\r\n");
        is_refused(text, 400);
        strcat(strcat(strcpy(text, "GET / HTTP/1.1\r\n"), bad[i]), HOST "\r\n"); /* as the first field */
        is_refused(text, 400);
    }
    is_refused_bytes(nul_value, sizeof nul_value - 1, 400);
    is_refused_bytes(nul_name, sizeof nul_name - 1, 400);
}

TEST(every_byte_in_a_value)
{
    for (int pad = 0; pad < 17; pad++) { /* at every offset within the words that the parser loads */
        for (int c = 0; c < 256; c++) {
            const bool is_fine = c == '\t' || (c >= 0x20 && c != 0x7f);
            char text[64] = GET "A: x";
            ls_http_head head;
            size_t len = strlen(text);
            int result;
            memset(text + len, 0xe9, (size_t)pad);
            len += (size_t)pad;
            text[len++] = (char)c;
            memcpy(text + len, "yyyyyyyy\r\n\r\n", 12);
            len += 12;
            result = parse_copy(text, len, 0, &defaults, &head);
            assert_int_equal(result, is_fine ? (int)len : -400);
        }
    }
}

TEST(connection)
{
    static const struct {
        const char *version, *fields;
        bool keep_alive, upgrade;
    } cases[] = {
        /* clang-format off */
        {"1.1", "", true, false}, {"1.1", "Connection: close\r\n", false, false},
        {"1.1", "CONNECTION: CLOSE\r\n", false, false}, {"1.1", "Connection: keep-alive\r\n", true, false},
        {"1.1", "Connection: keep-alive, close\r\n", false, false},
        {"1.1", "Connection:x ,\tClose\t,y\r\n", false, false},
        {"1.1", "Connection: ,,\r\nConnection: foo\r\nConnection: ,close\r\n", false, false},
        {"1.1", "Connection: closed\r\n", true, false}, {"1.1", "Connection: clos\r\n", true, false},
        {"1.1", "Connection: close;x\r\n", true, false}, {"1.1", "Connection:\r\n", true, false},
        {"1.1", "Proxy-Connection: close\r\n", true, false}, {"1.0", "", false, false},
        {"1.0", "Connection: Keep-Alive\r\n", true, false},
        {"1.0", "Connection: keep-alive\r\nConnection: close\r\n", false, false},
        {"1.0", "Connection: keep_alive\r\n", false, false},
        {"1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", true, true},
        {"1.1", "Upgrade: websocket\r\nConnection: keep-alive, uPGRADE\r\n", true, true},
        {"1.1", "Upgrade: websocket\r\n", true, false}, {"1.1", "Connection: upgrade\r\n", true, false},
        {"1.1", "Connection: upgrade\r\nUpgrade:\r\n", true, false},
        {"1.0", "Connection: upgrade, keep-alive\r\nUpgrade: websocket\r\n", true, false},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[160] = "GET / HTTP/";
        ls_http_head head;
        strcat(strcat(strcat(strcat(text, cases[i].version), "\r\n" HOST), cases[i].fields), "\r\n");
        is_served_to(text, &head);
        assert_int_equal(terms.keep_alive, cases[i].keep_alive);
        assert_int_equal(head.upgrade, cases[i].upgrade);
    }
}

TEST(content_length)
{
    static const struct {
        const char *value;
        uint64_t length;
    } good[] = {
        /* clang-format off */
        {"0", 0}, {"5", 5}, {" 42\t", 42}, {"007", 7}, {"0000000000000000010", 10},
        {"9223372036854775807", INT64_MAX},
        /* clang-format on */
    };
    /* clang-format off */
    static const char *const bad[] = {
        "", " ", "-1", "+5", "0x5", "1_0", "5 6", "5,5", "5, 5", "5,6", "5;", "5.0", "1e3", "\"5\"", "five",
        "5\t5", "-0", ",", "5,", "9223372036854775808", "9999999999999999999", "18446744073709551616",
        "18446744073709551621", "00000000000000000005", "99999999999999999999999999", "\xb2", "5\xa0"
    };
    /* clang-format on */
    char text[160];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ls_http_head head;
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "cONTENT-lENGTH:"), good[i].value), "\r\n\r\n");
        is_served_to(text, &head);
        assert_true(head.has_length && head.content_length == good[i].length && !terms.chunked);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Content-Length: "), bad[i]), "\r\n\r\n");
        is_refused(text, 400);
    }
    is_refused(GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400);
    is_refused(GET "Content-Length: 5\r\ncontent-length: 6\r\n\r\n", 400);
    is_refused(GET "Content-Length: 0\r\nX: y\r\nContent-Length: 0\r\n\r\n", 400);
}

TEST(transfer_encoding)
{
    static const char *const good[] = {"chunked", "Chunked", "CHUNKED", "\tchunked \t"};
    static const struct {
        const char *value;
        int status;
    } bad[] = {
        /* clang-format off */
        {"", 400}, {" ", 400}, {",", 400}, {"chunked,", 400}, {",chunked", 400}, {"chunked,,", 400},
        {"chunked, chunked", 400}, {"chunked, gzip", 400}, {"chunked, identity", 400}, {"chunked;a=b", 400},
        {"chunked ;a", 400}, {"chunked chunked", 400}, {"chunked x", 400}, {"x chunked", 400},
        {"\"chunked\"", 400}, {"'chunked'x \"", 400}, {"chunked\x80", 400}, {"chun\tked", 400},
        {"(chunked)", 400}, {"chunked\x0b", 400}, {"\013chunked", 400}, {"\014chunked", 400},
        {"chunked\x7f", 400}, {"gzip,, chunked", 400}, {"=", 400}, {"gzip, chunked, gzip", 400},
        {"identity", 501}, {"gzip", 501}, {"xchunked", 501}, {"chunkedx", 501}, {"chunke", 501},
        {"chunked-", 501}, {"'chunked'", 501}, {"gzip, chunked", 501}, {"identity, chunked", 501},
        {"gzip;q=1, chunked", 501}, {"gzip ; q=1", 501}, {"x-foo", 501}, {"cow", 501}, {"deflate,gzip", 501},
        /* clang-format on */
    };
    char text[160];
    ls_http_head head;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "tRANSFER-eNCODING:"), good[i]), "\r\n\r\n");
        is_served_to(text, &head);
        assert_true(terms.chunked && !head.has_length);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: "), bad[i].value), "\r\n\r\n");
        is_refused(text, bad[i].status);
        /* with a Content-Length, and in HTTP/1.0, every coding is a 400 */
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: "), bad[i].value),
               "\r\nContent-Length: 3\r\n\r\n");
        is_refused(text, 400);
        strcat(strcat(strcpy(text, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: "), bad[i].value), "\r\n\r\n");
        is_refused(text, 400);
    }
    is_refused(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400);
    is_refused(GET "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 501);
    is_refused(GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400);
    is_refused(GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused(GET "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused("POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400);
    is_refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n", 400);
    is_served(GET "TE: trailers, deflate\r\nContent-Encoding: gzip\r\n\r\n"); /* these fields do not affect framing */
}

TEST(expect)
{
    static const char *const bad[] = {"",  "100",   "100-continu", "100-continue, 100-continue", "100-continue;x",
                                      "x", "200-ok"};
    char text[128];
    ls_http_head head;
    is_served_to("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", &head);
    assert_true(terms.expect_continue);
    is_served_to("POST / HTTP/1.1\r\n" HOST "eXPECT: \t100-CONTINUE \r\n\r\n", &head);
    assert_true(terms.expect_continue);
    is_served_to("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &head);
    assert_false(terms.expect_continue);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, GET "Expect: "), bad[i]), "\r\n\r\n");
        is_refused(text, 417);
        strcat(strcat(strcpy(text, "GET / HTTP/1.0\r\nExpect: "), bad[i]), "\r\n\r\n");
        is_served(text);
    }
    is_refused(GET "Expect: 100-continue\r\nExpect: x\r\n\r\n", 417);
    is_refused(GET "Expect: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
               400); /* the framing error comes first */
}
