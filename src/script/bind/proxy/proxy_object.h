/* proxy_object.h - a request of app:proxy that is paused, for cache_object.c. */
#ifndef LS_SCRIPT_PROXY_OBJECT_H
#define LS_SCRIPT_PROXY_OBJECT_H

#include <lua.h>

#include "http/proxy/proxy.h"

/* The call at `index`, the result of core.proxy_send. Raises "bad argument" for another value, and for a call that has
 * ended or continues. */
ls_proxy *ls_proxy_check_paused(lua_State *L, int index);

#endif
