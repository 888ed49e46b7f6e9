/* proxy_header.c - see proxy_header.h. Any thread.
 *
 *     version 1: "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", TCP6, or "PROXY UNKNOWN ...\r\n"
 *     version 2: signature (12), version and command, family and transport, length (2), addresses, TLVs */
#include "net/proxy_header.h"

#include <string.h>

#include "base/err.h"

enum {
    SIGNATURE_BYTES = 12,
    FIXED_BYTES = 16,    /* of version 2, before the addresses */
    PATH_BYTES = 108,    /* of one Unix address of version 2 */
    HOST_BYTES = 39 + 1, /* the longest IPv6 address without an IPv4 part, and a terminator */
    COMMAND_LOCAL = 0,
    COMMAND_PROXY = 1,
    TRANSPORT_STREAM = 1, /* 0: unspecified, 2: datagrams */
    TRANSPORT_MAX = 2
};
enum v2_family { V2_UNSPEC, V2_INET, V2_INET6, V2_UNIX };

static const char signature[SIGNATURE_BYTES + 1] = "\r\n\r\n\0\r\nQUIT\n";
static const char v1_begin[] = "PROXY ";

static int invalid(const char **why, const char *reason)
{
    *why = reason;
    return LS_EPROTO;
}

/* ---- version 1 ---------------------------------------------------------------------------------------------- */

/* The part of the line that is not parsed yet. */
typedef struct text {
    const char *at, *end;
} text;

/* Consume `word` at the start of the line. */
static bool take_word(text *line, const char *word)
{
    const size_t len = strlen(word);
    if ((size_t)(line->end - line->at) < len || memcmp(line->at, word, len) != 0) return false;
    line->at += len;
    return true;
}

/* A space and the field after it, which ends at the next space or at the end of the line. Its length; 0: none. */
static size_t take_field(text *line, const char **field)
{
    if (!take_word(line, " ")) return 0;
    *field = line->at;
    while (line->at < line->end && *line->at != ' ') line->at++;
    return (size_t)(line->at - *field);
}

/* Only the characters of a numeric address: ls_addr_parse also takes zones, paths and "*". */
static bool take_host(text *line, uint8_t family, ls_addr *out)
{
    const char *field;
    char host[HOST_BYTES];
    const size_t len = take_field(line, &field);
    if (len == 0 || len >= sizeof host) return false;
    memcpy(host, field, len);
    host[len] = '\0';
    const char *const allowed = family == LS_ADDR_IP4 ? "0123456789." : "0123456789abcdefABCDEF:.";
    if (strspn(host, allowed) != len) return false;
    if (ls_addr_parse(host, 0, out) < 0 || out->family != family) return false;
    /* The C libraries differ on leading zeros, which the protocol forbids in IPv4: they may mean octal. */
    for (size_t i = 0; family == LS_ADDR_IP4 && i + 1 < len; i++)
        if (host[i] == '0' && (i == 0 || host[i - 1] == '.') && host[i + 1] != '.') return false;
    return true;
}

static bool take_port(text *line, uint16_t *out)
{
    const char *field;
    uint32_t port = 0;
    const size_t len = take_field(line, &field);
    if (len == 0 || len > 5 || (len > 1 && field[0] == '0')) return false;
    for (size_t i = 0; i < len; i++) {
        if (field[i] < '0' || field[i] > '9') return false;
        port = port * 10 + (uint32_t)(field[i] - '0');
    }
    if (port > UINT16_MAX) return false;
    *out = (uint16_t)port;
    return true;
}

/* The line between "PROXY " and its CRLF. */
static int parse_line(text line, ls_proxy_header *header, const char **why)
{
    uint8_t family = LS_ADDR_NONE;
    if (take_word(&line, "TCP4"))
        family = LS_ADDR_IP4;
    else if (take_word(&line, "TCP6"))
        family = LS_ADDR_IP6;
    else if (take_word(&line, "UNKNOWN") && (line.at == line.end || *line.at == ' '))
        return LS_OK; /* the receiver ignores the rest */
    else
        return invalid(why, "the protocol is not TCP4, TCP6 or UNKNOWN");
    if (!take_host(&line, family, &header->source)) return invalid(why, "invalid source address");
    if (!take_host(&line, family, &header->destination)) return invalid(why, "invalid destination address");
    if (!take_port(&line, &header->source.port)) return invalid(why, "invalid source port");
    if (!take_port(&line, &header->destination.port)) return invalid(why, "invalid destination port");
    if (line.at != line.end) return invalid(why, "bytes after the destination port");
    header->has_addrs = true;
    return LS_OK;
}

static int parse_v1(const char *bytes, size_t len, ls_proxy_header *header, const char **why)
{
    const size_t seen = len < LS_PROXY_V1_BYTES_MAX ? len : LS_PROXY_V1_BYTES_MAX;
    size_t end = 0; /* of the line; its first CR or LF */
    while (end < seen && bytes[end] != '\r' && bytes[end] != '\n') end++;
    if (end < seen && bytes[end] == '\n') return invalid(why, "the line ends with LF instead of CRLF");
    if (end + 1 < seen && bytes[end + 1] != '\n') return invalid(why, "CR without LF");
    if (end + 1 >= seen)
        return seen < LS_PROXY_V1_BYTES_MAX ? LS_EAGAIN : invalid(why, "the line is longer than 107 bytes");
    header->bytes = end + 2;
    return parse_line((text){bytes + sizeof v1_begin - 1, bytes + end}, header, why);
}

/* ---- version 2 ---------------------------------------------------------------------------------------------- */

static uint16_t be16(const char *at)
{
    return (uint16_t)((unsigned char)at[0] << 8 | (unsigned char)at[1]);
}

static ls_addr ip_of(uint8_t family, const char *bytes, size_t len, const char *port)
{
    ls_addr addr = {.family = family, .bytes_len = (uint8_t)len, .port = be16(port)};
    memcpy(addr.bytes, bytes, len);
    return addr;
}

/* Source, destination, source port, destination port. */
static int ip_pair(uint8_t family, size_t addr_bytes, const char *at, size_t len, ls_proxy_header *header)
{
    if (len < 2 * addr_bytes + 4) return LS_EPROTO;
    const char *const ports = at + 2 * addr_bytes;
    header->source = ip_of(family, at, addr_bytes, ports);
    header->destination = ip_of(family, at + addr_bytes, addr_bytes, ports + 2);
    header->has_addrs = true;
    return LS_OK;
}

/* A path ends at its NUL. An abstract name begins with one; the zeros after it fill the field. */
static ls_addr path_of(const char *bytes)
{
    const char *const nul = memchr(bytes, '\0', PATH_BYTES);
    size_t len = nul != NULL && nul > bytes ? (size_t)(nul - bytes) : PATH_BYTES;
    while (len > 0 && bytes[len - 1] == '\0') len--;
    ls_addr addr = {.family = LS_ADDR_UNIX, .bytes_len = (uint8_t)len};
    memcpy(addr.bytes, bytes, len);
    return addr;
}

static int path_pair(const char *at, size_t len, ls_proxy_header *header)
{
    if (len < 2 * PATH_BYTES) return LS_EPROTO;
    header->source = path_of(at);
    header->destination = path_of(at + PATH_BYTES);
    header->has_addrs = true;
    return LS_OK;
}

static int parse_v2(const char *bytes, size_t len, ls_proxy_header *header, const char **why)
{
    if (len <= SIGNATURE_BYTES) return LS_EAGAIN;
    const unsigned version = (unsigned char)bytes[12] >> 4, command = (unsigned char)bytes[12] & 15;
    if (version != 2) return invalid(why, "the version is not 2");
    if (command > COMMAND_PROXY) return invalid(why, "the command is not LOCAL or PROXY");
    if (len < FIXED_BYTES) return LS_EAGAIN;
    const unsigned family = (unsigned char)bytes[13] >> 4, transport = (unsigned char)bytes[13] & 15;
    const size_t rest = be16(bytes + 14);
    header->bytes = FIXED_BYTES + rest;
    if (header->bytes > LS_PROXY_V2_BYTES_MAX) return invalid(why, "longer than 4096 bytes");
    if (command == COMMAND_PROXY && (family > V2_UNIX || transport > TRANSPORT_MAX))
        return invalid(why, "unknown address family or transport");
    if (len < header->bytes) return LS_EAGAIN;
    if (command == COMMAND_LOCAL || transport != TRANSPORT_STREAM) return LS_OK;

    int err = LS_OK;
    if (family == V2_INET) err = ip_pair(LS_ADDR_IP4, 4, bytes + FIXED_BYTES, rest, header);
    if (family == V2_INET6) err = ip_pair(LS_ADDR_IP6, 16, bytes + FIXED_BYTES, rest, header);
    if (family == V2_UNIX) err = path_pair(bytes + FIXED_BYTES, rest, header);
    return err < 0 ? invalid(why, "too short for its addresses") : LS_OK;
}

/* ---- both --------------------------------------------------------------------------------------------------- */

/* The bytes are the start of `text`, or begin with it. */
static bool begins(const char *bytes, size_t len, const char *word, size_t word_len)
{
    return memcmp(bytes, word, len < word_len ? len : word_len) == 0;
}

int ls_proxy_header_parse(const void *bytes, size_t len, ls_proxy_header *out, const char **why)
{
    ls_proxy_header header = {.has_addrs = false};
    int err;
    if (len == 0) return LS_EAGAIN;
    if (begins(bytes, len, signature, SIGNATURE_BYTES))
        err = parse_v2(bytes, len, &header, why);
    else if (begins(bytes, len, v1_begin, sizeof v1_begin - 1))
        err = len < sizeof v1_begin - 1 ? LS_EAGAIN : parse_v1(bytes, len, &header, why);
    else
        err = invalid(why, "neither \"PROXY \" nor the signature of version 2");
    if (err < 0) return err;
    ls_addr_unmap(&header.source);
    ls_addr_unmap(&header.destination);
    *out = header;
    return LS_OK;
}
