/* posts.h - ls_server_post and ls_server_call: bytes on their way from threads of the program to Lua.
 *
 *     add --> waiting --> (the server serves) --> an operation at the port --> delivered by a worker --> begun --> ended
 *
 * One post at a time is between `waiting` and `begun`, so that they begin in the order of the calls. A post is
 * unfinished until all functions that received it have ended. A server that drains accepts no further posts and waits
 * for the unfinished ones.
 *
 * Any thread may call these functions, except where a comment names another time. */
#ifndef LS_SERVER_POSTS_H
#define LS_SERVER_POSTS_H

#include "base/os/thread.h"
#include "luaserve.h"
#include "script/site/site.h"

/* Passes a post to the site. Runs on a worker inside no actor. */
typedef void ls_posts_deliver_fn(void *server, ls_thread_ctx *ctx, ls_host_post *post);

typedef struct ls_posts {
    ls_posts_deliver_fn *deliver;
    void *server;
    ls_mutex mutex;             /* guards the fields below */
    ls_port *port;              /* NULL: the server does not serve yet */
    ls_node waiting, delivered; /* the unfinished posts */
    unsigned unfinished;
    bool begins;    /* the last one that was delivered has not begun */
    bool has_hooks; /* the site has functions of ls.on("host") */
    bool stopped;
} ls_posts;

void ls_posts_open(ls_posts *posts, ls_posts_deliver_fn *deliver, void *server);
/* Answer the posts that are unfinished with LS_ECANCELED: never delivered, or their tasks were dropped, or (the server
 * is abandoned) they may still run. */
void ls_posts_cancel(ls_posts *posts);
void ls_posts_close(ls_posts *posts); /* the same, and free them. No worker runs */

/* Whether the site that is loaded now has functions of ls.on("host"); after each load. */
void ls_posts_set_has_hooks(ls_posts *posts, bool has_hooks);
/* The server serves: deliver what was added before, and from now on at once. */
void ls_posts_start(ls_posts *posts, ls_port *port);
/* The server drains: accept no more. */
void ls_posts_stop(ls_posts *posts);

/* Copy the bytes. `answered` may be NULL. LS_OK; LS_EAGAIN: LS_SERVER_POSTS_MAX posts are unfinished; LS_ECLOSED: stopped; LS_ENOENT: the site
 * has no "host" hook; LS_ENOMEM. */
int ls_posts_add(ls_posts *posts, const void *data, size_t bytes, ls_server_answer_fn *answered, void *user);

unsigned ls_posts_unfinished(ls_posts *posts);

#endif
