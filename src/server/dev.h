/* dev.h - dev mode of a server: a thread watches the files that the site has loaded and reloads the site when one of
 * them has changed. */
#ifndef LS_SERVER_DEV_H
#define LS_SERVER_DEV_H

#include <stddef.h>

#include "luaserve.h"
#include "script/core/dev.h"

typedef struct ls_dev_server ls_dev_server;

/* LS_OK, or a negative code with the reason in `message`. The editor: see ls_server_options. */
int ls_dev_server_open(const char *editor, ls_dev_server **out, char *message, size_t message_bytes);
ls_dev *ls_dev_server_shared(ls_dev_server *dev); /* for the site */

/* A load begins. */
void ls_dev_server_load(ls_dev_server *dev);
/* It has ended, and a new site serves; failure: NULL, or the message. */
void ls_dev_server_loaded(ls_dev_server *dev, const char *failure);
/* The first load has failed with `message`: log it and wait for a change of a file. */
void ls_dev_server_await(ls_dev_server *dev, const char *message);

/* The server serves: log the files, and start the thread. LS_OK, or a negative code. */
int ls_dev_server_start(ls_dev_server *dev, ls_server *server);
/* End the thread, after a reload that runs. Before any part of the server is closed. */
void ls_dev_server_stop(ls_dev_server *dev);
void ls_dev_server_close(ls_dev_server *dev); /* after the last Lua state */

#endif
