/* dev_object.h - dev mode (dev_mode.h) for a server and its sites. */
#ifndef LS_SCRIPT_DEV_OBJECT_H
#define LS_SCRIPT_DEV_OBJECT_H

#include <lua.h>

#include "script/bind/dev_mode.h"

/* Before the first site is loaded; the runtime closes it. */
void ls_dev_attach(ls_runtime *runtime, ls_dev *dev);

/* lua_CFunctions without arguments: begin dev mode in a state, before its site is loaded; the site has loaded. */
int ls_dev_begin(lua_State *L);
int ls_dev_loaded(lua_State *L);

#endif
