/* histogram_object.h - a histogram in Lua, for the sampler, the reports and the done() hook of scripts.
 *
 *     h.count, h.min, h.max, h.mean, h.stdev, h.clipped      clipped: values above one hour
 *     h:percentile(p)    h:within(n): percentage of the values within n standard deviations of the mean
 *     h:below(value)     percentage of the values that are at most this one
 *     #h, h(i)           the number of different values; value i and its count, in ascending order
 *     h:record(value)    h:between(before) -> a new histogram of what was recorded since `before`, an older copy of h
 *
 * min, max, mean, stdev, :percentile(p), #h and h(i) are those of wrk's scripts. */
#ifndef LS_STRESS_HISTOGRAM_OBJECT_H
#define LS_STRESS_HISTOGRAM_OBJECT_H

#include <lua.h>

#include "stress/measure/histogram.h"

/* Push a new, empty histogram, which the object owns. Raises when out of memory. */
ls_histogram *ls_histogram_push(lua_State *L);

/* Push an object for a histogram that outlives its use and that it does not change. One unit of the object is `unit`
 * units of the histogram. Raises when out of memory. */
void ls_histogram_push_view(lua_State *L, const ls_histogram *h, double unit);

/* The histogram at `index`; raises for another value. */
const ls_histogram *ls_histogram_check(lua_State *L, int index);

#endif
