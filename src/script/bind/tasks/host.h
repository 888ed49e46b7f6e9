/* host.h - bytes that the embedding program posts to the functions of ls.on("host"). */
#ifndef LS_SCRIPT_BIND_HOST_H
#define LS_SCRIPT_BIND_HOST_H

#include "base/list.h"
#include "script/core/generation.h"

typedef struct ls_host_post ls_host_post;

typedef struct ls_host_post_ops {
    void (*begun)(ls_host_post *post); /* called once: each function has ended, or waits */
    /* A function has returned a value, which is a text, or has failed: then `data` is the reason. */
    void (*answer)(ls_host_post *post, int result, const char *data, size_t bytes);
    void (*ended)(ls_host_post *post); /* called once, after `begun`: every function has ended. May free the post */
} ls_host_post_ops;

struct ls_host_post {
    ls_op op; /* of the owner, and for a wait until a state is free */
    ls_node node;
    const ls_host_post_ops *ops;
    void *owner;
    ls_server_answer_fn *answered; /* NULL: a post, without an answer */
    void *user;                    /* of `answered` */
    bool is_answered;              /* of the owner */
    unsigned unfinished;           /* tasks of the post, in one state */
    size_t bytes;
    char data[];
};

/* Whether the site has called ls.on("host"). Any thread. */
bool ls_host_has_hooks(const ls_generation *generation);

/* Run the functions of ls.on("host") in an idle state, each in its own task, with the bytes of the post as a string.
 * Thread: a worker inside no actor. */
void ls_host_deliver(ls_generation *generation, ls_thread_ctx *ctx, ls_host_post *post);

#endif
