/* script.h - a script of the virtual user and its Lua states: wrk's dialect and our own.
 *
 * There is one state for each worker, used by its thread alone while the run lasts, and one for the main thread, in which
 * setup and done run. Which hooks exist is known when the file was loaded; what is not there costs nothing.
 *
 * An error in a hook ends the run: it is kept (with file and line) in ls_stress_script_error(), and the worker is told to stop.
 * A scenario that raises has failed once, and the run goes on. */
#ifndef LS_STRESS_SCRIPT_H
#define LS_STRESS_SCRIPT_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/plan.h"
#include "stress/result.h"
#include "stress/worker.h"

enum { LS_SCRIPT_ERROR_BYTES = 1024 };

/* Load the file into a fresh state. LS_OK; LS_ESCRIPT or LS_ENOMEM with one line for people in `why`. The dialect is the
 * plan's; with LS_DIALECT_TABLE what the file returns is on the state's stack for options.c (see ls_stress_script_state). */
int ls_stress_script_open(const ls_stress_plan *plan, ls_stress_script **out, char *why, size_t why_bytes);
void ls_stress_script_close(ls_stress_script *script); /* NULL is allowed */

lua_State *ls_stress_script_state(ls_stress_script *script);

/* The table that a file of our dialect returned is at index 1 of the state. */
enum { LS_SCRIPT_TABLE = 1 };

/* What a run's states need from each other before it starts, in the main thread, with all of them loaded: setup of the
 * main state for each thread, then init of each thread's. LS_OK; LS_ESCRIPT with `why`. */
int ls_stress_script_prepare(ls_stress_script *main, ls_stress_script *const *scripts, unsigned count, char *why,
                             size_t why_bytes);

/* After the run. Calls done(), if there is one. LS_OK; LS_ESCRIPT with `why`. */
int ls_stress_script_done(ls_stress_script *main, const ls_stress_result *result, char *why, size_t why_bytes);

/* The first error of a hook, or "". Read by others after the join. */
const char *ls_stress_script_error(const ls_stress_script *script);

/* ---- the worker's thread ------------------------------------------------------------------------------------------ */

void ls_stress_script_belongs(ls_stress_script *script, ls_stress_worker *worker);
bool ls_stress_script_has_response(const ls_stress_script *script);
bool ls_stress_script_wants_headers(const ls_stress_script *script);
bool ls_stress_script_wants_body(const ls_stress_script *script);
bool ls_stress_script_has_delay(const ls_stress_script *script);
uint32_t ls_stress_script_batch(
    const ls_stress_script *script); /* requests in one string of wrk's request(); at least 1 */

/* One of several requests in a text: a head up to its empty line, then Content-Length bytes. *at moves behind it. False:
 * the text ends in the middle of it. Pure. */
bool ls_stress_script_next_request(const char *bytes, size_t len, size_t *at, bool *to_head);

/* The request is always the same: its bytes, as many copies as the plan's pipeline, and the length of one. */
bool ls_stress_script_fixed(const ls_stress_script *script, const char **bytes, size_t *len);

/* The next request of a virtual user. The bytes stay until ls_stress_script_request_sent. False: the hook raised; the worker stops. */
bool ls_stress_script_request(ls_stress_script *script, ls_stress_vu *u, const char **bytes, size_t *len);
void ls_stress_script_request_sent(ls_stress_script *script);

/* An answer. `head` are the bytes of its head when headers are wanted, `body` its body when that is. False: as above. */
bool ls_stress_script_response(ls_stress_script *script, ls_stress_vu *u, const ls_http_response *response,
                               const char *head, const char *body, size_t body_len);
uint64_t ls_stress_script_delay_ns(ls_stress_script *script);

#endif
