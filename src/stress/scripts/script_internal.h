/* script_internal.h - shared by the files of scripts: script_state.c, below all others; script_wrk.c (scripts for
 * wrk); scenario.c, script_sock.c and script_ws.c (scenarios); script_table.c (native scripts); script.c, above
 * them. */
#ifndef LS_STRESS_SCRIPT_INTERNAL_H
#define LS_STRESS_SCRIPT_INTERNAL_H

#include <lauxlib.h>
#include <lualib.h>

#include "stress/load/bytes.h"
#include "stress/scripts/script.h"

/* The stack of the state, from the bottom, while the script is open. Hot calls find their values here without a
 * look-up in the registry. */
enum {
    AT_TABLE = 1, /* native: the script's table; wrk: the table `wrk` */
    AT_REQUEST,   /* native: the C closure that calls request(vu); else nil */
    AT_RESPONSE,  /* the C closure that calls response(), or nil */
    AT_SCENARIO,  /* native: scenario(vu, sock), or nil */
    AT_VUS,       /* native: the vu table of each virtual user, by its number in this worker from 1 */
    AT_META,      /* native: the metatable of vu tables */
    AT_TOP = AT_META
};

struct ls_stress_script {
    lua_State *L;
    const ls_stress_plan *plan;
    ls_stress_worker *worker; /* NULL in the main state */
    unsigned index;           /* of the thread; in the main state the number of threads */
    ls_stress_script_traits traits;
    bool has_request;
    ls_addr addr;                            /* wrk: thread.addr */
    bool addr_set;                           /* the script has set `addr` */
    ls_stress_bytes out;                     /* the request being composed */
    ls_stress_script *const *thread_scripts; /* main state: the scripts of the threads */
    ls_stress_request *request;              /* whose hook runs, or ran last; NULL before the first */
    struct ls_stress_scenario *running;      /* the scenario whose coroutine is running */
    char error[LS_STRESS_SCRIPT_ERROR_BYTES];
};

ls_stress_script *ls_stress_script_of(lua_State *L);

/* In the registry: the list of the arguments after "--"; of a native script the function of
 * lua/luaserve/stress/vu_ws.lua, and the value of setup(). */
extern const char ls_stress_script_arguments[], ls_stress_script_vu_ws[], ls_stress_script_data[];

/* Append to s->out. Raises when out of memory. */
void ls_stress_script_put(lua_State *L, ls_stress_script *s, const char *bytes, size_t len);
void ls_stress_script_put_text(lua_State *L, ls_stress_script *s, const char *text);
bool ls_stress_script_field(lua_State *L, ls_pair *out); /* the key and the value on top; false: not strings */
void ls_stress_script_put_field(lua_State *L, ls_stress_script *s, const ls_pair *field); /* a header line */

/* Append the end of a head, with a Content-Length unless the head has one, and the body at `index`: a string, or nil
 * or false for no body. Raises an error that begins with `caller` for another type. */
void ls_stress_script_put_body(lua_State *L, ls_stress_script *s, int index, const char *caller);

/* Call the function and its n arguments on the stack, for r results. False: an error was raised; s->error has it, the
 * worker (if any) stops, and the call leaves nothing on the stack. */
bool ls_stress_script_call(ls_stress_script *s, int n, int r);

/* The same for an error that is on top of the stack. */
void ls_stress_script_failed(ls_stress_script *s);

/* Copy the value at `index` of a state to the stack of another one. One of them is L, which runs, protected. Raises in
 * L for a value without a copy (store/marshal.h), and without memory. */
void ls_stress_script_copy(lua_State *L, lua_State *from, int index, lua_State *to);

/* Call the function and its n arguments on the stack of `other`, protected, for r results; its error is raised in
 * L. */
void ls_stress_script_call_in(lua_State *L, lua_State *other, int n, int r);

/* These functions run protected. Arguments: the script as a light userdata, and the value at AT_TABLE, of
 * ls_stress_wrk_define a copy of the table `wrk` of the plan. */

/* script_wrk.c */
int ls_stress_wrk_define(lua_State *L);   /* before the file is loaded: completes and returns the table `wrk` */
int ls_stress_wrk_response(lua_State *L); /* argument: a light userdata, an ls_stress_script_response_args */
int ls_stress_wrk_setup(lua_State *L);    /* in the main state */
int ls_stress_wrk_init(lua_State *L);     /* in the state of each thread */

/* script_table.c */
int ls_stress_table_define(lua_State *L); /* after the file is loaded: returns the values from AT_REQUEST on */
int ls_stress_table_setup(lua_State *L);

typedef struct ls_stress_script_response_args {
    ls_stress_vu *u;
    const ls_http_response *response;
    const char *head, *body;
    size_t body_len;
} ls_stress_script_response_args;

/* script_sock.c, script_ws.c: define the methods of sock and of ws, and add those of vu that wait to the table on top
 * of the stack. */
void ls_stress_script_sock_define(lua_State *L);
void ls_stress_script_ws_define(lua_State *L);

/* Push the vu table of a virtual user, which is created on first use. `vus` and `meta`: the indices of the values that
 * the script has at AT_VUS and AT_META. May raise. */
void ls_stress_script_push_vu(lua_State *L, ls_stress_script *s, const ls_stress_vu *u, int vus, int meta);

/* Increment the iteration of the vu table on top of the stack. */
void ls_stress_script_count_iteration(lua_State *L);

/* The number of parameters of the function on top of the stack, 255 for a vararg function. Pops the function. */
int ls_stress_script_parameter_count(lua_State *L);

#endif
