/* script_internal.h - what script.c (states, hooks, errors), script_wrk.c and script_table.c (the dialects) share. */
#ifndef LS_STRESS_SCRIPT_INTERNAL_H
#define LS_STRESS_SCRIPT_INTERNAL_H

#include <lauxlib.h>
#include <lualib.h>

#include "stress/script.h"

/* The state's stack, bottom up, for as long as the script is open: the hot calls need no look into the registry. */
enum {
    AT_TABLE = LS_SCRIPT_TABLE, /* our dialect: what the file returned; wrk's: the table `wrk` */
    AT_REQUEST,                 /* our dialect: the C closure that calls request(vu); else nil */
    AT_RESPONSE,                /* the C closure that calls response(); nil: there is none */
    AT_SCENARIO,                /* our dialect: scenario(vu, sock), or nil */
    AT_USERS,                   /* our dialect: the vu of each virtual user, by its number in this worker from 1 */
    AT_META,                    /* our dialect: the metatable of vus */
    AT_TOP = AT_META
};

struct ls_stress_script {
    lua_State *L;
    const ls_stress_plan *plan;
    ls_stress_worker *worker; /* NULL in the main thread's */
    unsigned index;           /* of the thread */
    bool has_request, has_response, has_delay, wants_headers, wants_body;
    uint32_t batch;
    ls_addr addr; /* wrk: thread.addr */
    bool aimed;   /* it was set */
    char *fixed;  /* wrk: the request when there is no request() of the script: plan.pipeline copies */
    size_t fixed_len;
    char *out; /* the request that is being made */
    size_t out_len, out_room;
    char *base; /* our dialect: Host and the options' headers, as lines */
    size_t base_len;
    ls_stress_script *const *others; /* wrk, main thread's: the threads' scripts */
    const ls_stress_result *result;
    struct ls_stress_scenario *running; /* the scenario whose coroutine runs now */
    char error[LS_SCRIPT_ERROR_BYTES];
};

ls_stress_script *ls_stress_script_of(lua_State *L);

/* Append to script->out; raises when there is no memory. */
void ls_stress_script_put(lua_State *L, ls_stress_script *s, const char *bytes, size_t len);
void ls_stress_script_put_text(lua_State *L, ls_stress_script *s, const char *text);

/* The end of a request's head, with a Content-Length unless it has one, and its body, which is at `index`: a text, or nil or
 * false for none. Raises, as `who`, when it is another thing. */
void ls_stress_script_put_body(lua_State *L, ls_stress_script *s, int index, const char *who);

/* Call what is on the stack (function and n arguments) for r results. False: it raised; the error is kept, the worker, if
 * there is one, is told to stop, and nothing of the call is left on the stack. */
bool ls_stress_script_call(ls_stress_script *s, int n, int r);

/* Copy the value at `index` (nil, boolean, number, string, table of these) onto the other state's stack. Raises in `from`
 * for others, and for tables nested too deeply. */
void ls_stress_script_copy(lua_State *from, int index, lua_State *to);

/* These run protected: the script is a light userdata at index 1, what lies at AT_TABLE at index 2. */

/* script_wrk.c */
int ls_stress_wrk_define(lua_State *L);   /* before the file: returns the table `wrk` */
int ls_stress_wrk_response(lua_State *L); /* light userdata: an ls_stress_script_answer */
int ls_stress_wrk_setup(lua_State *L);    /* the main thread's */
int ls_stress_wrk_init(lua_State *L);     /* each thread's */
int ls_stress_wrk_done(lua_State *L);     /* the main thread's, with script->result */

/* script_table.c */
int ls_table_define(lua_State *L); /* after the file: returns what goes to AT_REQUEST and on */
int ls_table_setup(lua_State *L);
int ls_table_done(lua_State *L);

typedef struct ls_stress_script_answer {
    ls_stress_vu *user;
    const ls_http_response *response;
    const char *head, *body;
    size_t body_len;
} ls_stress_script_answer;

/* Push the summary that done() gets: our dialect's is a little richer. */
void ls_stress_script_push_summary(lua_State *L, const ls_stress_result *result);

/* script_stats.c: push a histogram as the object that done() gets, wrk's `latency`; `unit`: what it counts in one told. */
void ls_stress_script_push_stats(lua_State *L, const ls_histogram *h, double unit);

/* scenario.c: the methods of sock, and those of a vu that wait, which go into the table on top of the stack. */
void ls_stress_scenario_define(lua_State *L);

/* Push the vu of a virtual user, its iteration counted. On the script's own stack, whose AT_... are in place. */
void ls_stress_script_push_vu(lua_State *L, ls_stress_script *s, const ls_stress_vu *u);

/* How many arguments the function at the top of the stack takes; many when it takes any number. Pops it. */
int ls_stress_script_arguments(lua_State *L);

#endif
