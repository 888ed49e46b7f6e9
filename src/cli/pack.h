/* pack.h - packed programs (port/file/image.h): to make one, and to be one. */
#ifndef LS_CLI_PACK_H
#define LS_CLI_PACK_H

#include <lauxlib.h>

/* Functions of lua/luaserve/command/pack.lua; pack.c describes them. */
extern const luaL_Reg ls_pack_functions[];

/* Whether this program is packed: 1, 0, or -1: it is damaged, and the reason is printed. Before other threads start. */
int ls_pack_open(void);

#endif
