/* test_proxy_header.c - headers of the PROXY protocol, valid and not, fed whole and byte by byte. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "net/proxy_header.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"

static int parse_copy(const char *bytes, size_t len, ls_proxy_header *out, const char **why)
{
    char *copy = test_copy_exact(bytes, len);
    const int err = ls_proxy_header_parse(copy, len, out, why);
    free(copy);
    return err;
}

/* Every proper prefix needs more bytes and leaves the result untouched; the whole, also with bytes behind it, gives
 * the header. */
static ls_proxy_header parse_valid(const char *bytes, size_t len)
{
    static const char behind[] = "GET / HTTP/1.1\r\n";
    char with[LS_PROXY_V2_BYTES_MAX + sizeof behind];
    ls_proxy_header header = {.bytes = 77}, again;
    const char *why = NULL;
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(parse_copy(bytes, n, &header, &why), LS_EAGAIN);
        assert_int_equal(header.bytes, 77);
    }
    assert_int_equal(parse_copy(bytes, len, &header, &why), LS_OK);
    assert_int_equal(header.bytes, len);
    assert_null(why);
    memcpy(with, bytes, len);
    memcpy(with + len, behind, sizeof behind);
    assert_int_equal(parse_copy(with, len + sizeof behind, &again, &why), LS_OK);
    assert_memory_equal(&again, &header, sizeof header);
    return header;
}

static void expect_addrs(const ls_proxy_header *header, const char *source, const char *destination)
{
    char text[LS_ADDR_TEXT_BYTES];
    assert_int_equal(header->has_addrs, source != NULL);
    if (source == NULL) {
        assert_int_equal(header->source.family, LS_ADDR_NONE);
        assert_int_equal(header->destination.family, LS_ADDR_NONE);
    } else {
        assert_string_equal(ls_addr_text(&header->source, text), source);
        assert_string_equal(ls_addr_text(&header->destination, text), destination);
    }
}

/* Refused, and as early as it can be told: from some prefix on, every longer one is refused as well. */
static void refused(const char *bytes, size_t len, const char *reason)
{
    ls_proxy_header header = {.bytes = 77};
    const char *why = NULL;
    bool before = false;
    for (size_t n = 0; n <= len; n++) {
        const int err = parse_copy(bytes, n, &header, &why);
        assert_true(err == LS_EPROTO || (err == LS_EAGAIN && !before));
        before = err == LS_EPROTO;
        assert_int_equal(header.bytes, 77);
    }
    assert_true(before);
    assert_string_equal(why, reason);
}

/* ---- version 1 ---------------------------------------------------------------------------------------------- */

TEST(lines_name_addresses)
{
    static const struct {
        const char *line, *source, *destination;
    } cases[] = {
        {"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324", "192.168.0.11:443"},
        {"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535",
         "255.255.255.255:65535"},
        {"PROXY TCP4 0.0.0.0 10.0.0.0 0 1\r\n", "0.0.0.0:0", "10.0.0.0:1"},
        {"PROXY TCP6 2001:db8::1 ::1 56324 443\r\n", "[2001:db8::1]:56324", "[::1]:443"},
        {"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
         "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
        {"PROXY TCP6 2001:DB8::A ::ffff:192.0.2.9 1 2\r\n", "[2001:db8::a]:1", "192.0.2.9:2"},
        {"PROXY UNKNOWN\r\n", NULL, NULL},
        {"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 "
         "65535\r\n",
         NULL, NULL}, /* 107 bytes: the limit */
        {"PROXY UNKNOWN any bytes \001\r\n", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_proxy_header header = parse_valid(cases[i].line, strlen(cases[i].line));
        expect_addrs(&header, cases[i].source, cases[i].destination);
    }
}

TEST(other_lines_are_refused)
{
    static const char no_header[] = "neither \"PROXY \" nor the signature of version 2";
    static const char protocol[] = "the protocol is not TCP4, TCP6 or UNKNOWN";
    static const char source[] = "invalid source address", destination[] = "invalid destination address";
    static const char source_port[] = "invalid source port", destination_port[] = "invalid destination port";
    static const struct {
        const char *line, *why;
    } cases[] = {
        /* clang-format off */
        {"GET / HTTP/1.1\r\n", no_header}, {"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n", no_header},
        {"PROXY\r\n", no_header}, {"PROXY\tTCP4 1.2.3.4 1.2.3.4 1 2\r\n", no_header},
        {" PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", no_header}, {"PROXY \r\n", protocol},
        {"PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", protocol}, {"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", protocol},
        {"PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n", protocol}, {"PROXY UNKNOWNS\r\n", protocol},
        {"PROXY TCP4\r\n", source}, {"PROXY TCP41.2.3.4 1.2.3.4 1 2\r\n", source},
        {"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n", source}, {"PROXY TCP4 ::1 ::1 1 2\r\n", source},
        {"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", source}, {"PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n", source},
        {"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", source}, {"PROXY TCP4 1.2.3.00 1.2.3.4 1 2\r\n", source},
        {"PROXY TCP4 localhost 1.2.3.4 1 2\r\n", source}, {"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", source},
        {"PROXY TCP6 * ::1 1 2\r\n", source}, {"PROXY TCP6 fe80::1%1 ::1 1 2\r\n", source},
        {"PROXY TCP6 unix:/a ::1 1 2\r\n", source}, {"PROXY TCP6 [::1] ::1 1 2\r\n", source},
        {"PROXY TCP6 11111:2222:3333:4444:5555:6666:7777:8888:9999 ::1 1 2\r\n", source},
        {"PROXY TCP4 1.2.3.4\r\n", destination}, {"PROXY TCP4 1.2.3.4 \r\n", destination},
        {"PROXY TCP4 1.2.3.4 1.2.3.4.5 1 2\r\n", destination}, {"PROXY TCP4 1.2.3.4 1.2.3.4\r\n", source_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", source_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n", source_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n", source_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", source_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", destination_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 \r\n", destination_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 123456\r\n", destination_port},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n", "bytes after the destination port"},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", "bytes after the destination port"},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", "the line ends with LF instead of CRLF"},
        {"PROXY TCP4 1.2.3.4\r1.2.3.4 1 2\r\n", "CR without LF"},
        {"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\r\n", "CR without LF"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].line, strlen(cases[i].line), cases[i].why);
}

TEST(the_longest_line_is_107_bytes)
{
    char line[120];
    for (int bytes = LS_PROXY_V1_BYTES_MAX; bytes <= LS_PROXY_V1_BYTES_MAX + 1; bytes++) {
        memset(line, 'x', sizeof line);
        memcpy(line, "PROXY UNKNOWN ", 14);
        memcpy(line + bytes - 2, "\r\n", 2);
        if (bytes == LS_PROXY_V1_BYTES_MAX)
            assert_false(parse_valid(line, (size_t)bytes).has_addrs);
        else
            refused(line, (size_t)bytes, "the line is longer than 107 bytes");
    }
}

/* ---- version 2 ---------------------------------------------------------------------------------------------- */

/* A header: `command` with the version, `family` with the transport, and `len` bytes behind the fixed part. */
static size_t v2(char *to, int command, int family, const void *rest, size_t len)
{
    memcpy(to, SIGNATURE, 12);
    to[12] = (char)command;
    to[13] = (char)family;
    to[14] = (char)(len >> 8);
    to[15] = (char)len;
    if (len > 0) memcpy(to + 16, rest, len);
    return 16 + len;
}

static const char ip4[] = "\xc0\x00\x02\x01\x0a\x00\x00\x01\xdc\x04\x01\xbb";
static const char ip6[] = "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01" /* source */
                          "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x09" /* destination: IPv4-mapped */
                          "\xff\xff\0\0";

TEST(blocks_name_addresses)
{
    char bytes[LS_PROXY_V2_BYTES_MAX], paths[2 * 108 + 8] = "/run/client.sock";
    ls_proxy_header header;
    header = parse_valid(bytes, v2(bytes, 0x21, 0x11, ip4, 12));
    expect_addrs(&header, "192.0.2.1:56324", "10.0.0.1:443");
    header = parse_valid(bytes, v2(bytes, 0x21, 0x21, ip6, 36));
    expect_addrs(&header, "[2001:db8::1]:65535", "192.0.2.9:0");

    memcpy(paths + 108, "\0abstract", 9);
    header = parse_valid(bytes, v2(bytes, 0x21, 0x31, paths, 216));
    expect_addrs(&header, "unix:/run/client.sock", "unix:@abstract");
    memset(paths, 0, 108);         /* a client without a name */
    memset(paths + 108, 'p', 108); /* a path without a terminator, as long as the field */
    header = parse_valid(bytes, v2(bytes, 0x21, 0x31, paths, 216));
    assert_true(header.has_addrs);
    assert_int_equal(header.source.bytes_len, 0);
    assert_int_equal(header.destination.bytes_len, 108);
}

TEST(blocks_without_an_address_that_counts)
{
    static const struct {
        int command, family;
        size_t len;
    } cases[] = {
        {0x20, 0x00, 0},  {0x20, 0x11, 12}, {0x20, 0x11, 3}, /* LOCAL: the family and the addresses are ignored */
        {0x20, 0xff, 12}, {0x21, 0x00, 0},  {0x21, 0x00, 12}, {0x21, 0x01, 12},
        {0x21, 0x10, 12}, {0x21, 0x12, 12}, {0x21, 0x22, 36}, {0x21, 0x32, 216}};
    char bytes[LS_PROXY_V2_BYTES_MAX], rest[216] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_proxy_header header =
            parse_valid(bytes, v2(bytes, cases[i].command, cases[i].family, rest, cases[i].len));
        expect_addrs(&header, NULL, NULL);
    }
}

/* TLVs, also those that are cut off, are part of the header; up to 4096 bytes. */
TEST(tlvs_are_skipped)
{
    static const size_t lens[] = {13, 15, 19, 100, LS_PROXY_V2_BYTES_MAX - 16};
    char bytes[LS_PROXY_V2_BYTES_MAX + 1], rest[LS_PROXY_V2_BYTES_MAX];
    memset(rest, 0xee, sizeof rest);
    memcpy(rest, ip4, 12);
    memcpy(rest + 12, "\x03\x00\x04\1\2\3\4", 7); /* a CRC32c, which is wrong */
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        const ls_proxy_header header = parse_valid(bytes, v2(bytes, 0x21, 0x11, rest, lens[i]));
        expect_addrs(&header, "192.0.2.1:56324", "10.0.0.1:443");
    }
    refused(bytes, v2(bytes, 0x21, 0x11, rest, LS_PROXY_V2_BYTES_MAX - 15), "longer than 4096 bytes");
}

TEST(other_blocks_are_refused)
{
    static const struct {
        int command, family;
        size_t len;
        const char *why;
    } cases[] = {
        /* clang-format off */
        {0x11, 0x11, 12, "the version is not 2"}, {0x31, 0x11, 12, "the version is not 2"},
        {0x01, 0x11, 12, "the version is not 2"}, {0x22, 0x11, 12, "the command is not LOCAL or PROXY"},
        {0x2f, 0x11, 12, "the command is not LOCAL or PROXY"},
        {0x21, 0x41, 12, "unknown address family or transport"},
        {0x21, 0xf1, 12, "unknown address family or transport"},
        {0x21, 0x13, 12, "unknown address family or transport"},
        {0x21, 0x1f, 12, "unknown address family or transport"},
        {0x21, 0x11, 11, "too short for its addresses"}, {0x21, 0x11, 0, "too short for its addresses"},
        {0x21, 0x21, 35, "too short for its addresses"}, {0x21, 0x31, 215, "too short for its addresses"},
        /* clang-format on */
    };
    char bytes[LS_PROXY_V2_BYTES_MAX], rest[216] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(bytes, v2(bytes, cases[i].command, cases[i].family, rest, cases[i].len), cases[i].why);
}

/* A signature with one wrong byte is refused at that byte. */
TEST(every_byte_of_the_signature_counts)
{
    for (size_t i = 0; i < 12; i++) {
        char bytes[16];
        ls_proxy_header header;
        const char *why = NULL;
        memcpy(bytes, SIGNATURE, 12);
        bytes[i] ^= 0x20;
        if (i > 0) assert_int_equal(parse_copy(bytes, i, &header, &why), LS_EAGAIN);
        assert_int_equal(parse_copy(bytes, i + 1, &header, &why), LS_EPROTO);
        assert_non_null(why);
    }
}
