/* engine.h - what main.lua of the load generator gets from engine.c, and the page of the HTML report. */
#ifndef LS_STRESS_ENGINE_H
#define LS_STRESS_ENGINE_H

#include <lua.h>
#include <stddef.h>

/* Push the terminal of lua/luaserve/stress/view.lua: standard error. A function of Lua: terminal() -> the table. */
int ls_stress_terminal_push(lua_State *L);

/* page/report.html with its style and its script, as bytes in the program. lua/embed.lua generates it at build time.
 * Read-only; any thread. report_files.lua replaces the marks in it. */
extern const unsigned char ls_stress_page[]; /* followed by a zero */
extern const size_t ls_stress_page_len;

#endif
