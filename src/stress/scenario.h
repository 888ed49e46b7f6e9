/* scenario.h - the state of a scenario: shared by scenario.c (the coroutine, sock) and script_ws.c (vu:ws). */
#ifndef LS_STRESS_SCENARIO_H
#define LS_STRESS_SCENARIO_H

#include <lua.h>

#include "port/port.h"
#include "stress/vu.h"

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
                                LS_STRESS_SOCKET_ASKED, /* the handshake was sent */
                                LS_STRESS_SOCKET_OPEN,
                                LS_STRESS_SOCKET_FAILED
} ls_stress_socket;

typedef struct ls_stress_bytes {
    char *at;
    size_t len, room;
} ls_stress_bytes;

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
    bool round_done, failed;  /* the function returned; it raised an error */
    bool peer_closed, closed; /* the server closed; the script called sock:close() or ws:close() */
    bool round_posted;
    ls_op next_round;
    ls_stress_socket socket;
    ls_stress_bytes part; /* of a message that is not complete */
};

/* Append. False: out of memory, or past LS_STRESS_IN_BYTES_MAX. */
bool ls_stress_scenario_add(ls_stress_bytes *b, const void *data, size_t len);

/* Resume the coroutine if what it waits for is there. */
void ls_stress_scenario_wake(struct ls_stress_scenario *sc);

void ls_stress_scenario_consume(struct ls_stress_scenario *sc, size_t used); /* bytes of `in` */

/* The scenario whose coroutine L is running; else raises an error that begins with `what`. */
struct ls_stress_scenario *ls_stress_scenario_running(lua_State *L, const char *what);

/* ---- script_ws.c ------------------------------------------------------------------------------------------------ */

/* Define the methods of ws, and add vu:ws to the table on top of the stack. */
void ls_stress_script_ws_define(lua_State *L);

/* Whether what the coroutine waits for is there: of WANT_UPGRADE, WANT_MESSAGE and WANT_END. */
bool ls_stress_script_ws_ready(const struct ls_stress_scenario *sc);

/* Bytes after vu:ws, and parts of messages, as those of ls_stress_proto. */
bool ls_stress_script_ws_received(ls_stress_vu *u, const char *bytes, size_t len);
bool ls_stress_script_ws_message(ls_stress_vu *u, const char *bytes, size_t len, bool last);

#endif
