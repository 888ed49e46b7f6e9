/* ws_frame.h - the frames of WebSocket: bytes in, a head out, and back (RFC 6455 section 5).
 *
 * Pure: no allocation, no socket, no clock. The parser checks what one frame shows: reserved bits and opcodes, the
 * mask, the minimal form of the length, and control frames that are too long or fragmented. The order of the frames of
 * a message is checked by the connection (websocket.h). */
#ifndef LS_CODEC_WS_WS_FRAME_H
#define LS_CODEC_WS_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_ws_opcode { /* section 5.2 */
                    LS_WS_CONTINUATION = 0,
                    LS_WS_TEXT = 1,
                    LS_WS_BINARY = 2,
                    LS_WS_CLOSE = 8,
                    LS_WS_PING = 9,
                    LS_WS_PONG = 10
};

enum ls_ws_code { /* section 7.4.1; the registry of IANA */
                  LS_WS_NORMAL = 1000,
                  LS_WS_GOING_AWAY = 1001,
                  LS_WS_PROTOCOL_ERROR = 1002,
                  LS_WS_UNSUPPORTED = 1003,
                  LS_WS_NO_CODE = 1005,  /* never sent: the Close frame had no code */
                  LS_WS_ABNORMAL = 1006, /* never sent: the connection ended without a Close frame */
                  LS_WS_BAD_DATA = 1007,
                  LS_WS_POLICY = 1008,
                  LS_WS_TOO_BIG = 1009,
                  LS_WS_EXTENSION = 1010,
                  LS_WS_INTERNAL = 1011,
                  LS_WS_RESTART = 1012,
                  LS_WS_TRY_LATER = 1013
};

enum { LS_WS_HEAD_BYTES_MAX = 14, LS_WS_CONTROL_BYTES_MAX = 125, LS_WS_REASON_BYTES_MAX = 123 };

typedef struct ls_ws_head {
    uint64_t length; /* of the payload */
    uint8_t opcode;
    bool fin, compressed; /* compressed: RSV1 (RFC 7692 section 6) */
    bool masked;
    uint8_t key[4];
} ls_ws_head;

/* What a frame may have. */
typedef struct ls_ws_rules {
    bool masked;     /* frames must be masked, those to a server; else they must not be */
    bool compressed; /* RSV1 is allowed in the first frame of a message */
} ls_ws_rules;

/* Parse the head of one frame from bytes[0..len). Returns its length (2 to LS_WS_HEAD_BYTES_MAX), 0: more bytes are
 * needed, or -LS_WS_PROTOCOL_ERROR as soon as a byte breaks a rule; then *why receives a short static text. */
int ls_ws_head_parse(const char *bytes, size_t len, const ls_ws_rules *rules, ls_ws_head *out, const char **why);

/* Write the head; returns its length. `head->key` is written if head->masked. */
size_t ls_ws_head_write(const ls_ws_head *head, char out[LS_WS_HEAD_BYTES_MAX]);

/* Mask or unmask bytes of a payload in place; `at` is the position of bytes[0] in the payload (section 5.3). Eight
 * bytes at a time. */
void ls_ws_mask(char *bytes, size_t len, const uint8_t key[4], uint64_t at);
/* The same from `from` to `to`, which do not overlap. */
void ls_ws_mask_copy(char *to, const char *from, size_t len, const uint8_t key[4], uint64_t at);

/* Whether a code may stand in a Close frame: 1000 to 1003, 1007 to 1014, 3000 to 4999 (section 7.4). */
bool ls_ws_code_valid(unsigned code);

/* Read the payload of a Close frame. LS_OK, or -LS_WS_PROTOCOL_ERROR (one byte, or an invalid code), -LS_WS_BAD_DATA
 * (the reason is not UTF-8). *code is LS_WS_NO_CODE without a payload. The reason lies in `payload`. */
int ls_ws_close_parse(const char *payload, size_t len, unsigned *code, const char **reason, size_t *reason_len);

#endif
