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

#include "stress/plan.h"
#include "stress/result.h"
#include "stress/worker.h"

enum { LS_STRESS_SCRIPT_ERROR_BYTES = 1024 };

/* Load the file into a new state. The plan has the dialect; the table that a native script returns is at
 * LS_STRESS_SCRIPT_TABLE. LS_OK; LS_ESCRIPT or LS_ENOMEM with a one-line message in `why`. */
int ls_stress_script_open(const ls_stress_plan *plan, ls_stress_script **out, char *why, size_t why_bytes);
void ls_stress_script_close(ls_stress_script *script); /* NULL is allowed */

lua_State *ls_stress_script_state(ls_stress_script *script);

/* The index of a native script's table in its state. */
enum { LS_STRESS_SCRIPT_TABLE = 1 };

/* Prepare the states of all threads for the run, in the main thread: the setup hook in the main state, for wrk once
 * per thread, then wrk's init in the state of each thread. LS_OK; LS_ESCRIPT with a message in `why`. */
int ls_stress_script_prepare(ls_stress_script *main, ls_stress_script *const *scripts, unsigned count, char *why,
                             size_t why_bytes);

/* After the run: call the done hook, if the script has one. LS_OK; LS_ESCRIPT with a message in `why`. */
int ls_stress_script_done(ls_stress_script *main, const ls_stress_result *result, char *why, size_t why_bytes);

/* The first error of a hook, or "". Other threads read it after the join. */
const char *ls_stress_script_error(const ls_stress_script *script);

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

void ls_stress_script_attach(ls_stress_script *script, ls_stress_worker *worker);
bool ls_stress_script_has_response(const ls_stress_script *script);
bool ls_stress_script_wants_headers(const ls_stress_script *script);
bool ls_stress_script_wants_body(const ls_stress_script *script);
bool ls_stress_script_has_delay(const ls_stress_script *script);
uint32_t ls_stress_script_batch(
    const ls_stress_script *script); /* requests in one string of wrk's request(); at least 1 */

/* Find the end of a request in a text of several: the head up to its empty line, then Content-Length bytes. *at moves
 * behind it. False: the text ends inside the request. Pure. */
bool ls_stress_script_next_request(const char *bytes, size_t len, size_t *at, bool *is_head);

/* True if the request is always the same: its bytes, config.pipeline copies, and the length of one. */
bool ls_stress_script_fixed(const ls_stress_script *script, const char **bytes, size_t *len);

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
