/* script.h - scripts and their Lua states: scripts for wrk, and native scripts.
 *
 * Each worker has one state, used by its thread alone during the run; the main thread has one more, in which setup()
 * and done() run. The hooks of a script are known once its file is loaded; absent hooks cost nothing.
 *
 * An error in a hook ends the run: ls_stress_script_error() keeps its message, with file and line, and the worker
 * stops. An error in a scenario is one failed request, and the run continues. */
#ifndef LS_STRESS_SCRIPT_H
#define LS_STRESS_SCRIPT_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/load/worker.h"
#include "stress/plan/plan.h"

enum { LS_STRESS_SCRIPT_ERROR_BYTES = 1024 };

/* What the worker has to know about a script; complete after ls_stress_script_prepare(). */
typedef struct ls_stress_script_traits {
    bool has_response, has_delay, wants_headers, wants_body; /* the hook response() and its parameters, delay() */
    uint32_t batch;    /* requests in one string of wrk's request(); at least 1 */
    const char *fixed; /* the request if it is always the same: plan.pipeline copies; else NULL */
    size_t fixed_len;  /* of one */
} ls_stress_script_traits;

/* Load the file into a new state. The table of the plan is at `index` of L: its fields `arguments` and, of a script
 * for wrk, `wrk` are copied to the script. Raises in L a message of one line; *out must then be closed as well. */
void ls_stress_script_open(lua_State *L, int index, const ls_stress_plan *plan, ls_stress_script **out);
void ls_stress_script_close(ls_stress_script *script); /* NULL is allowed */

/* Push a copy of the table that a native script has returned. Values that no other state can have become values of the
 * same type without a use. Raises in L. */
void ls_stress_script_push_table(ls_stress_script *script, lua_State *L);

/* Prepare the states of all threads for the run, in the main thread: the setup hook in the main state, for wrk once
 * per thread, then wrk's init in the state of each thread. Raises in L. */
void ls_stress_script_prepare(lua_State *L, ls_stress_script *main, ls_stress_script *const *scripts, unsigned count);

/* After the run: call the done hook, if the script has one, with what is on top of L: a copy of the summary, and the
 * histograms of the latencies and of the rates. Raises in L. */
void ls_stress_script_done(lua_State *L, ls_stress_script *main);

/* The first error of a hook, or "". Other threads read it after the join. */
const char *ls_stress_script_error(const ls_stress_script *script);

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

const ls_stress_script_traits *ls_stress_script_traits_of(const ls_stress_script *script);

/* After ls_stress_worker_open(). */
void ls_stress_script_attach(ls_stress_script *script, ls_stress_worker *worker);

/* Find the end of a request in a text of several: the head up to its empty line, then Content-Length bytes. *at moves
 * after it. False: the text ends inside the request. Pure. */
bool ls_stress_script_next_request(const char *bytes, size_t len, size_t *at, bool *is_head);

/* The bytes of a request of a virtual user. They are valid until ls_stress_script_request_sent(). False: the hook
 * raised an error, and the worker stops. */
bool ls_stress_script_request(ls_stress_script *script, ls_stress_vu *u, ls_stress_request *request,
                              const char **bytes, size_t *len);
void ls_stress_script_request_sent(ls_stress_script *script);

/* Call the response hook. `head` has the bytes of the head if headers are wanted, `body` the body if that is wanted.
 * False: the hook raised an error, and the worker stops. */
bool ls_stress_script_response(ls_stress_script *script, ls_stress_vu *u, const ls_http_response *response,
                               const char *head, const char *body, size_t body_len);
uint64_t ls_stress_script_delay_ns(ls_stress_script *script);

#endif
