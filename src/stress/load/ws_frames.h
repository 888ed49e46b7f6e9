/* ws_frames.h - the WebSocket of a virtual user (RFC 6455): the texts of its handshake, the frames that it receives,
 * and those that it sends.
 *
 * Received messages are passed on in parts as they arrive (ls_stress_proto.message), so that a message costs no copy
 * and no memory; a compressed message is inflated first (deflate.h). Pings are answered. Frames that are prepared
 * before the run are masked with one key each; the key of other frames is random (section 5.3). */
#ifndef LS_STRESS_WS_H
#define LS_STRESS_WS_H

#include "codec/ws/ws_frame.h"
#include "codec/ws/ws_handshake.h"
#include "stress/load/vu.h"

struct ls_stress_ws {
    uint64_t begun_ns; /* when the handshake began */
    ls_ws_request request;
    const char *protocol; /* of its names the one that the server chose; NULL: none */
    bool deflate;         /* permessage-deflate was negotiated */
    bool close_sent;
    uint16_t code; /* of the server's Close frame; 0: none so far */

    bool in_frame, in_message;
    bool text, compressed; /* the message being received */
    uint8_t partial_len;   /* of a head of which more bytes are missing */
    char partial[LS_WS_HEAD_BYTES_MAX];
    ls_ws_head frame; /* being received */
    uint64_t at;      /* bytes of its payload received so far */
    char control[LS_WS_CONTROL_BYTES_MAX];
    ls_stress_bytes buf;    /* a frame to send */
    ls_stress_bytes packed; /* of a compressed message in several parts */
};

/* ---- the handshake ---------------------------------------------------------------------------------------------- */

/* Begin: make a key, and write the request in allocated memory. The list of its subprotocols must be valid until the
 * response has arrived. LS_OK or LS_ENOMEM. */
int ls_stress_ws_request(ls_stress_vu *u, const ls_ws_request *request, char **text, size_t *len);

/* The next bytes of the response. LS_DONE: counted, and *used bytes of these belong to the handshake; LS_EAGAIN: more
 * are needed; or an error, counted. */
int ls_stress_ws_response(ls_stress_vu *u, const char *bytes, size_t len, size_t *used);

int ls_stress_ws_upgrade(ls_stress_vu *u); /* of ls_stress_proto: the request of the plan */

/* ---- the protocol, after the handshake -------------------------------------------------------------------------- */

bool ls_stress_ws_received(ls_stress_vu *u, const char *bytes, size_t len); /* of ls_stress_proto */
void ls_stress_ws_peer_closed(ls_stress_vu *u);
void ls_stress_ws_closed(ls_stress_vu *u);

/* The length of a frame with that payload, and the frame, masked with a random key. Returns the length. */
size_t ls_stress_ws_frame_bytes(size_t len);
size_t ls_stress_ws_frame(enum ls_ws_opcode opcode, bool compressed, const char *payload, size_t len, char *out);

/* The frame of a message, compressed if that was negotiated and makes it shorter: at most
 * ls_stress_ws_frame_bytes(len) bytes. Returns the length. */
size_t ls_stress_ws_message(ls_stress_vu *u, enum ls_ws_opcode opcode, const char *data, size_t len, char *out);

/* Queue one frame and send it; also while a send is pending. False: the connection closes. */
bool ls_stress_ws_send(ls_stress_vu *u, enum ls_ws_opcode opcode, const char *payload, size_t len);

/* Send a Close frame, unless one was sent. False: the connection closes. */
bool ls_stress_ws_close(ls_stress_vu *u, unsigned code, const char *reason, size_t len);

void ls_stress_ws_free(ls_stress_vu *u);

#endif
