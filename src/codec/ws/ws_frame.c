/* ws_frame.c - see ws_frame.h. */
#include "codec/ws/ws_frame.h"

#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/utf8.h"

/* The bits of the first two bytes (RFC 6455 section 5.2). */
enum { FIN = 0x80, RSV1 = 0x40, RSV2_RSV3 = 0x30, OPCODE = 0x0f, MASK = 0x80, LENGTH = 0x7f };
enum { LENGTH_16 = 126, LENGTH_64 = 127 }; /* values of LENGTH: a longer length follows */

static int refuse(const char **why, const char *text)
{
    *why = text;
    return -LS_WS_PROTOCOL_ERROR;
}

static bool is_control(unsigned opcode)
{
    return (opcode & 0x8) != 0;
}

/* The number of `n` bytes in network byte order. */
static uint64_t number_at(const unsigned char *b, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value = value << 8 | b[i];
    return value;
}

/* ---- the head -------------------------------------------------------------------------------------------------- */

static int check_first(unsigned first, const ls_ws_rules *rules, const char **why)
{
    const unsigned opcode = first & OPCODE;
    if (first & RSV2_RSV3) return refuse(why, "a reserved bit is set (RSV2 or RSV3)");
    if ((opcode > LS_WS_BINARY && opcode < LS_WS_CLOSE) || opcode > LS_WS_PONG) return refuse(why, "reserved opcode");
    if (first & RSV1) {
        if (!rules->compressed) return refuse(why, "RSV1 is set, but no extension was negotiated");
        if (opcode != LS_WS_TEXT && opcode != LS_WS_BINARY)
            return refuse(why, "RSV1 is set in a frame that does not begin a message");
    }
    if (is_control(opcode) && !(first & FIN)) return refuse(why, "fragmented control frame");
    return LS_OK;
}

static int check_second(unsigned first, unsigned second, const ls_ws_rules *rules, const char **why)
{
    if (rules->masked && !(second & MASK)) return refuse(why, "the frame of a client must be masked");
    if (!rules->masked && (second & MASK)) return refuse(why, "the frame of a server must not be masked");
    if (is_control(first & OPCODE) && (second & LENGTH) > LS_WS_CONTROL_BYTES_MAX)
        return refuse(why, "control frame longer than 125 bytes");
    return LS_OK;
}

/* The length that follows the first two bytes, as far as it was received. */
static int check_length(const unsigned char *b, size_t have, size_t size, const char **why)
{
    if (size == 8 && have > 0 && (b[0] & 0x80)) return refuse(why, "a length of 2^63 bytes or more");
    if (size == 2 && have == 2 && number_at(b, 2) < LENGTH_16)
        return refuse(why, "a length in more bytes than it needs");
    if (size == 8 && have >= 6 && number_at(b, 6) == 0) return refuse(why, "a length in more bytes than it needs");
    return LS_OK;
}

int ls_ws_head_parse(const char *bytes, size_t len, const ls_ws_rules *rules, ls_ws_head *out, const char **why)
{
    const unsigned char *const b = (const unsigned char *)bytes;
    int err;
    if (len < 1) return 0;
    if ((err = check_first(b[0], rules, why)) < 0) return err;
    if (len < 2) return 0;
    if ((err = check_second(b[0], b[1], rules, why)) < 0) return err;

    const unsigned length = b[1] & LENGTH;
    const size_t size = length == LENGTH_64 ? 8 : length == LENGTH_16 ? 2 : 0;
    const bool masked = (b[1] & MASK) != 0;
    const size_t need = 2 + size + (masked ? 4 : 0);
    if (size > 0 && (err = check_length(b + 2, len - 2 < size ? len - 2 : size, size, why)) < 0) return err;
    if (len < need) return 0;

    *out = (ls_ws_head){.length = size > 0 ? number_at(b + 2, size) : length,
                        .opcode = b[0] & OPCODE,
                        .fin = (b[0] & FIN) != 0,
                        .compressed = (b[0] & RSV1) != 0,
                        .masked = masked};
    if (masked) memcpy(out->key, b + 2 + size, sizeof out->key);
    return (int)need;
}

size_t ls_ws_head_write(const ls_ws_head *head, char out[LS_WS_HEAD_BYTES_MAX])
{
    unsigned char *const b = (unsigned char *)out;
    const unsigned mask = head->masked ? MASK : 0;
    size_t size = 0;
    b[0] = (unsigned char)((head->fin ? FIN : 0) | (head->compressed ? RSV1 : 0) | head->opcode);
    if (head->length < LENGTH_16) {
        b[1] = (unsigned char)(mask | head->length);
    } else {
        size = head->length <= UINT16_MAX ? 2 : 8;
        b[1] = (unsigned char)(mask | (size == 2 ? LENGTH_16 : LENGTH_64));
        for (size_t i = 0; i < size; i++) b[2 + i] = (unsigned char)(head->length >> (8 * (size - 1 - i)));
    }
    if (!head->masked) return 2 + size;
    memcpy(b + 2 + size, head->key, sizeof head->key);
    return 2 + size + sizeof head->key;
}

/* ---- the mask -------------------------------------------------------------------------------------------------- */

/* `to` is `from`, or does not overlap it. Whole blocks are read before they are written, and memcpy reads at any
 * address, so that the compiler may use vector registers. */
static inline void mask_bytes(char *to, const char *from, size_t len, const uint8_t key[4], uint64_t at)
{
    enum { WORDS = 4 };
    unsigned char turned[8];
    uint32_t half;
    uint64_t mask, words[WORDS];
    memcpy(&half, key, sizeof half);
    mask = half * UINT64_C(0x100000001);
    memcpy(turned, &mask, sizeof turned);
    if ((at & 3) != 0) {
        for (unsigned i = 0; i < sizeof turned; i++) turned[i] = key[(at + i) & 3];
        memcpy(&mask, turned, sizeof mask);
    }
    for (; len >= sizeof words; len -= sizeof words, to += sizeof words, from += sizeof words) {
        memcpy(words, from, sizeof words);
        for (unsigned i = 0; i < WORDS; i++) words[i] ^= mask;
        memcpy(to, words, sizeof words);
    }
    for (; len >= sizeof mask; len -= sizeof mask, to += sizeof mask, from += sizeof mask) {
        memcpy(words, from, sizeof mask);
        words[0] ^= mask;
        memcpy(to, words, sizeof mask);
    }
    for (size_t i = 0; i < len; i++) to[i] = (char)(from[i] ^ turned[i]);
}

/* Not inlined: between other code gcc 12 uses no vector registers. */
LS_NOINLINE void ls_ws_mask(char *bytes, size_t len, const uint8_t key[4], uint64_t at)
{
    mask_bytes(bytes, bytes, len, key, at);
}

LS_NOINLINE void ls_ws_mask_copy(char *to, const char *from, size_t len, const uint8_t key[4], uint64_t at)
{
    mask_bytes(to, from, len, key, at);
}

/* ---- the Close frame -------------------------------------------------------------------------------------------- */

bool ls_ws_code_valid(unsigned code)
{
    return (code >= LS_WS_NORMAL && code <= LS_WS_UNSUPPORTED) || (code >= LS_WS_BAD_DATA && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

int ls_ws_close_parse(const char *payload, size_t len, unsigned *code, const char **reason, size_t *reason_len)
{
    unsigned found = LS_WS_NO_CODE;
    size_t used = 0;
    if (len == 1) return -LS_WS_PROTOCOL_ERROR;
    if (len >= 2) {
        used = 2;
        found = (unsigned)number_at((const unsigned char *)payload, used);
        if (!ls_ws_code_valid(found)) return -LS_WS_PROTOCOL_ERROR;
        if (!ls_utf8_valid(payload + used, len - used)) return -LS_WS_BAD_DATA;
    }
    *code = found;
    *reason = payload + used;
    *reason_len = len - used;
    return LS_OK;
}
