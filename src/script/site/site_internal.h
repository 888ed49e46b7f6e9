/* site_internal.h - the struct of a site. */
#ifndef LS_SCRIPT_SITE_INTERNAL_H
#define LS_SCRIPT_SITE_INTERNAL_H

#include "script/bind/sock/tcp.h"
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
    ls_op init_op;                /* runs the functions of ls.init */
    bool init_reload;             /* their argument */
    ls_tcp_server control_server; /* of ls_site_control() */
    int argc;
    char **argv;
};

/* Move the listeners and UDP sockets that the site defines, those of http.sys excepted, to `text`, such as
 * "127.0.0.1:0" or "[::1]:0". LS_EINVAL, with a message: it is no such address. */
int ls_site_listen_on(ls_site *site, const char *text, char *message, size_t message_bytes);

#endif
