/* script_internal.h - shared by script.c (states, hooks, errors), script_wrk.c (scripts for wrk), script_table.c
 * (native scripts), script_stats.c and scenario.c. */
#ifndef LS_STRESS_SCRIPT_INTERNAL_H
#define LS_STRESS_SCRIPT_INTERNAL_H

#include <lauxlib.h>
#include <lualib.h>

#include "stress/script.h"

/* The stack of the state, from the bottom, while the script is open. Hot calls find their values here without a
 * look-up in the registry. */
enum {
    AT_TABLE = LS_STRESS_SCRIPT_TABLE, /* native: the script's table; wrk: the table `wrk` */
    AT_REQUEST,                        /* native: the C closure that calls request(vu); else nil */
    AT_RESPONSE,                       /* the C closure that calls response(), or nil */
    AT_SCENARIO,                       /* native: scenario(vu, sock), or nil */
    AT_VUS,  /* native: the vu table of each virtual user, by its number in this worker from 1 */
    AT_META, /* native: the metatable of vu tables */
    AT_TOP = AT_META
};

struct ls_stress_script {
    lua_State *L;
    const ls_stress_plan *plan;
    ls_stress_worker *worker; /* NULL in the main state */
    unsigned index;           /* of the thread; in the main state the number of threads */
    bool has_request, has_response, has_delay, wants_headers, wants_body;
    uint32_t batch;
    ls_addr addr;  /* wrk: thread.addr */
    bool addr_set; /* the script has set `addr` */
    char *fixed;   /* the request if it is always the same: config.pipeline copies; else NULL */
    size_t fixed_len;
    char *out; /* the request being composed */
    size_t out_len, out_room;
    char *base; /* native: the bytes of every request behind its path, up to the empty line */
    size_t base_len;
    ls_stress_script *const *thread_scripts; /* main state: the scripts of the threads */
    const ls_stress_result *result;
    ls_stress_request *request;         /* whose hook runs, or ran last; NULL before the first */
    struct ls_stress_scenario *running; /* the scenario whose coroutine is running */
    char error[LS_STRESS_SCRIPT_ERROR_BYTES];
};

ls_stress_script *ls_stress_script_of(lua_State *L);

/* Append to s->out. Raises when out of memory. */
void ls_stress_script_put(lua_State *L, ls_stress_script *s, const char *bytes, size_t len);
void ls_stress_script_put_text(lua_State *L, ls_stress_script *s, const char *text);

/* Append the end of a head, with a Content-Length unless the head has one, and the body at `index`: a string, or nil
 * or false for no body. Raises an error that begins with `caller` for another type. */
void ls_stress_script_put_body(lua_State *L, ls_stress_script *s, int index, const char *caller);

/* Call the function and its n arguments on the stack, for r results. False: an error was raised; it is kept, the
 * worker (if any) stops, and the call leaves nothing on the stack. */
bool ls_stress_script_call(ls_stress_script *s, int n, int r);

/* Copy the value at `index` of a state (nil, boolean, number, string, or a table of these) to the stack of another one.
 * One of them is L, which runs, protected. Raises in L for other types, for tables nested too deeply, and without
 * memory. */
void ls_stress_script_copy(lua_State *L, lua_State *from, int index, lua_State *to);

/* Call the function and its n arguments on the stack of `other`, protected, for r results; its error is raised in L. */
void ls_stress_script_call_in(lua_State *L, lua_State *other, int n, int r);

/* These functions run protected. Arguments: the script as a light userdata, and the value at AT_TABLE. */

/* script_wrk.c */
int ls_stress_wrk_define(lua_State *L);   /* before the file is loaded: returns the table `wrk` */
int ls_stress_wrk_response(lua_State *L); /* argument: a light userdata, an ls_stress_script_response_args */
int ls_stress_wrk_setup(lua_State *L);    /* in the main state */
int ls_stress_wrk_init(lua_State *L);     /* in the state of each thread */
int ls_stress_wrk_done(lua_State *L);     /* in the main state, with script->result */

/* script_table.c */
int ls_stress_table_define(lua_State *L); /* after the file is loaded: returns the values from AT_REQUEST on */
int ls_stress_table_setup(lua_State *L);
int ls_stress_table_done(lua_State *L);

typedef struct ls_stress_script_response_args {
    ls_stress_vu *u;
    const ls_http_response *response;
    const char *head, *body;
    size_t body_len;
} ls_stress_script_response_args;

/* Push the summary table, the first argument of done(). */
void ls_stress_script_push_summary(lua_State *L, const ls_stress_result *result);

/* Push a histogram as an argument of done(). One unit of the object is `unit` units of the histogram. */
void ls_stress_script_push_stats(lua_State *L, const ls_histogram *h, double unit);

/* Define the methods of sock, and add the waiting methods of vu to the table on top of the stack. */
void ls_stress_scenario_define(lua_State *L);

/* Push the vu table of a virtual user and increment its iteration. `vus` and `meta`: the indices of the values that the
 * script has at AT_VUS and AT_META. May raise. */
void ls_stress_script_push_vu(lua_State *L, ls_stress_script *s, const ls_stress_vu *u, int vus, int meta);

/* The number of parameters of the function on top of the stack, 255 for a vararg function. Pops the function. */
int ls_stress_script_parameter_count(lua_State *L);

#endif
