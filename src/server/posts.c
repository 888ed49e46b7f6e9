/* posts.c - see posts.h. */
#include "server/posts.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void ls_posts_open(ls_posts *posts, ls_posts_deliver_fn *deliver, void *server)
{
    *posts = (ls_posts){.deliver = deliver, .server = server};
    ls_node_init(&posts->list);
    ls_mutex_open(&posts->mutex);
}

void ls_posts_close(ls_posts *posts)
{
    while (!ls_list_empty(&posts->list)) {
        ls_host_post *post = LS_CONTAINER(posts->list.next, ls_host_post, node);
        ls_list_remove(&post->node);
        free(post);
    }
    ls_mutex_close(&posts->mutex);
}

void ls_posts_set_has_hooks(ls_posts *posts, bool has_hooks)
{
    ls_mutex_lock(&posts->mutex);
    posts->has_hooks = has_hooks;
    ls_mutex_unlock(&posts->mutex);
}

static void post_ended(ls_host_post *post)
{
    ls_posts *posts = post->owner;
    ls_mutex_lock(&posts->mutex);
    posts->unfinished--;
    ls_list_remove(&post->node);
    ls_mutex_unlock(&posts->mutex);
    free(post);
}

static void post_arrived(ls_thread_ctx *ctx, ls_op *op)
{
    ls_host_post *post = LS_CONTAINER(op, ls_host_post, op);
    const ls_posts *posts = post->owner;
    posts->deliver(posts->server, ctx, post);
}

void ls_posts_start(ls_posts *posts, ls_port *port)
{
    ls_mutex_lock(&posts->mutex);
    posts->port = port;
    for (ls_node *node = posts->list.next; node != &posts->list; node = node->next)
        ls_port_post(port, &LS_CONTAINER(node, ls_host_post, node)->op, 0);
    ls_mutex_unlock(&posts->mutex);
}

void ls_posts_stop(ls_posts *posts)
{
    ls_mutex_lock(&posts->mutex);
    posts->stopped = true;
    ls_mutex_unlock(&posts->mutex);
}

int ls_posts_add(ls_posts *posts, const void *data, size_t bytes)
{
    int err = LS_OK;
    ls_host_post *post = bytes <= SIZE_MAX - sizeof *post ? malloc(sizeof *post + bytes) : NULL;
    if (post == NULL) return LS_ENOMEM;
    *post = (ls_host_post){.op = {.done = post_arrived}, .ended = post_ended, .owner = posts, .bytes = bytes};
    if (bytes > 0) memcpy(post->data, data, bytes);
    ls_mutex_lock(&posts->mutex);
    if (posts->stopped)
        err = LS_ECLOSED;
    else if (!posts->has_hooks)
        err = LS_ENOENT;
    else if (posts->unfinished == LS_SERVER_POSTS_MAX)
        err = LS_EAGAIN;
    if (err == LS_OK) {
        posts->unfinished++;
        ls_list_push(&posts->list, &post->node);
        if (posts->port != NULL) ls_port_post(posts->port, &post->op, 0);
    }
    ls_mutex_unlock(&posts->mutex);
    if (err < 0) free(post);
    return err;
}

unsigned ls_posts_unfinished(ls_posts *posts)
{
    ls_mutex_lock(&posts->mutex);
    const unsigned unfinished = posts->unfinished;
    ls_mutex_unlock(&posts->mutex);
    return unfinished;
}
