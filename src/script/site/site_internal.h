/* site_internal.h - the struct of a site. */
#ifndef LS_SCRIPT_SITE_INTERNAL_H
#define LS_SCRIPT_SITE_INTERNAL_H

#include "script/bind/tcp.h"
#include "script/core/state.h"
#include "script/site/site.h"

struct ls_site {
    ls_generation generation;
    char *source; /* the text of the file */
    size_t source_bytes;
    bool from_file; /* else it was given by the program */
    int (*open)(lua_State *L, void *user);
    void *open_user;
    bool control;
    ls_tcp_server control_server; /* of ls_site_control() */
    int argc;
    char **argv;
};

#endif
