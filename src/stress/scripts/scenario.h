/* scenario.h - a scenario: its coroutine and its connection. script_sock.c and script_ws.c have the functions that it
 * calls. */
#ifndef LS_STRESS_SCENARIO_H
#define LS_STRESS_SCENARIO_H

#include <lua.h>

#include "port/port.h"
#include "stress/load/protocol.h"

enum { LS_STRESS_IN_BYTES_MAX = 64 << 20, LS_STRESS_UNTIL_BYTES_MAX = 64 };

/* What the coroutine waits for. */
typedef enum ls_stress_want {
    LS_STRESS_WANT_NOTHING,
    LS_STRESS_WANT_BYTES,
    LS_STRESS_WANT_LINE,
    LS_STRESS_WANT_ALL,
    LS_STRESS_WANT_ANY,
    LS_STRESS_WANT_UNTIL,
    LS_STRESS_WANT_TIME,
    LS_STRESS_WANT_UPGRADE, /* the response of the handshake of WebSocket */
    LS_STRESS_WANT_MESSAGE,
    LS_STRESS_WANT_END /* of the WebSocket */
} ls_stress_want;

typedef enum ls_stress_socket { /* the connection as a WebSocket */
                                LS_STRESS_SOCKET_NONE,
                                LS_STRESS_SOCKET_OPENING, /* the handshake was sent */
                                LS_STRESS_SOCKET_OPEN,
                                LS_STRESS_SOCKET_FAILED
} ls_stress_socket;

struct ls_stress_scenario {
    ls_stress_vu *u;
    lua_State *co;
    int co_ref, sock_ref, ws_ref; /* in the registry of the script's state */
    ls_stress_bytes in, out;      /* datagrams: each follows its length, a uint32_t; messages: script_ws.c */
    size_t in_at;                 /* bytes of `in` already consumed */
    ls_stress_want want;
    size_t want_bytes;
    char until[LS_STRESS_UNTIL_BYTES_MAX];
    bool running;             /* the coroutine runs */
    bool suspended;           /* the coroutine has yielded */
    bool round_done;          /* the function has returned */
    bool peer_closed, closed; /* the server closed; the script called sock:close() or ws:close() */
    bool round_posted;
    bool first_receive, unreceived; /* of this round: no receive has ended; the first one has failed */
    bool asked;                     /* ws:send has sent a message after the last one that ws:receive has returned */
    ls_op next_round;
    ls_stress_socket socket;
    ls_stress_bytes part; /* of a message that is not complete */
};

extern const ls_stress_proto ls_stress_scenario_proto;
extern const char ls_stress_sock_meta[];

/* Append; of a datagram its length first. False: out of memory, or past LS_STRESS_IN_BYTES_MAX. */
bool ls_stress_scenario_add(ls_stress_bytes *b, const void *data, size_t len);
bool ls_stress_scenario_add_datagram(ls_stress_bytes *b, const void *data, size_t len);

/* True if the input satisfies what the coroutine wants of a stream: *len bytes are the result, *used are consumed. */
bool ls_stress_scenario_has_input(const struct ls_stress_scenario *sc, size_t *len, size_t *used);
void ls_stress_scenario_consume(struct ls_stress_scenario *sc, size_t used); /* bytes of `in` */

void ls_stress_scenario_resume(struct ls_stress_scenario *sc, int arguments);

/* Push nil, message, code. Returns 3. */
int ls_stress_scenario_failure(lua_State *L, const char *message, const char *code);

/* The scenario whose coroutine L is running; else raises an error that begins with `what`. */
struct ls_stress_scenario *ls_stress_scenario_running(lua_State *L, const char *what);

#endif
