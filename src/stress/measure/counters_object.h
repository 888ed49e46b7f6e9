/* counters_object.h - the counters of all threads in Lua, for lua/luaserve/stress/sampler.lua.
 *
 *     c:read([all])      a table with the sum of each counter over all threads; late_ns and wanted_ns are the maximum.
 *                        errors: by kind; failed: the responses with status 400 and above; requests_of: the requests
 *                        of each thread. With `all` also status and codes: the counts that are not 0, by code
 *     c:merge(name)      a histogram of all threads: "sent", "due", ...; nil: the threads have none
 *     c:histogram()      an empty one
 *     c:checks()         of each thread the list of its checks: { name =, passed =, failed = }. After the join
 *     c.error_kinds, c.error_texts   the names of the errors, in their order; by name an explanation */
#ifndef LS_STRESS_COUNTERS_OBJECT_H
#define LS_STRESS_COUNTERS_OBJECT_H

#include <lua.h>

#include "stress/measure/checks.h"
#include "stress/measure/counters.h"

/* Push the object. The two arrays have `threads` entries and are copied; the counters and checks outlive the use of
 * the object. Raises when out of memory. */
void ls_stress_counters_push(lua_State *L, const ls_stress_counters *const *counters,
                             const ls_stress_checks *const *checks, size_t threads);

#endif
