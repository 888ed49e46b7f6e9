/* posts.c - see posts.h. */
#include "server/posts.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char closed[] = "the server was closed";

void ls_posts_open(ls_posts *posts, ls_posts_deliver_fn *deliver, void *server)
{
    *posts = (ls_posts){.deliver = deliver, .server = server};
    ls_node_init(&posts->waiting);
    ls_node_init(&posts->delivered);
    ls_mutex_open(&posts->mutex);
}

/* Only the first answer counts. */
static void post_answer(ls_host_post *post, int result, const char *data, size_t bytes)
{
    ls_posts *posts = post->owner;
    if (post->answered == NULL) return;
    ls_mutex_lock(&posts->mutex);
    const bool first = !post->is_answered;
    post->is_answered = true;
    ls_mutex_unlock(&posts->mutex);
    if (first) post->answered(post->user, result, data, bytes);
}

/* Nothing is delivered any more, but a function may still run, and its post end meanwhile. */
static bool cancel_one(ls_posts *posts, ls_node *list)
{
    ls_host_post found = {.answered = NULL};
    ls_mutex_lock(&posts->mutex);
    for (ls_node *node = list->next; node != list && found.answered == NULL; node = node->next) {
        ls_host_post *post = LS_CONTAINER(node, ls_host_post, node);
        if (post->answered == NULL || post->is_answered) continue;
        post->is_answered = true;
        found = *post;
    }
    ls_mutex_unlock(&posts->mutex);
    if (found.answered != NULL) found.answered(found.user, LS_ECANCELED, closed, sizeof closed - 1);
    return found.answered != NULL;
}

void ls_posts_cancel(ls_posts *posts)
{
    while (cancel_one(posts, &posts->delivered) || cancel_one(posts, &posts->waiting)) continue;
}

static void free_posts(ls_node *list)
{
    while (!ls_list_empty(list)) {
        ls_host_post *post = LS_CONTAINER(list->next, ls_host_post, node);
        ls_list_remove(&post->node);
        free(post);
    }
}

void ls_posts_close(ls_posts *posts)
{
    ls_posts_cancel(posts);
    free_posts(&posts->delivered);
    free_posts(&posts->waiting);
    ls_mutex_close(&posts->mutex);
}

void ls_posts_set_has_hooks(ls_posts *posts, bool has_hooks)
{
    ls_mutex_lock(&posts->mutex);
    posts->has_hooks = has_hooks;
    ls_mutex_unlock(&posts->mutex);
}

/* The caller holds the mutex. */
static void deliver_next(ls_posts *posts)
{
    if (posts->port == NULL || posts->begins || ls_list_empty(&posts->waiting)) return;
    ls_host_post *post = LS_CONTAINER(posts->waiting.next, ls_host_post, node);
    ls_list_remove(&post->node);
    ls_list_push(&posts->delivered, &post->node);
    posts->begins = true;
    ls_port_post(posts->port, &post->op, 0);
}

static void post_begun(ls_host_post *post)
{
    ls_posts *posts = post->owner;
    ls_mutex_lock(&posts->mutex);
    posts->begins = false;
    deliver_next(posts);
    ls_mutex_unlock(&posts->mutex);
}

static void post_ended(ls_host_post *post)
{
    ls_posts *posts = post->owner;
    post_answer(post, LS_OK, NULL, 0);
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
    deliver_next(posts);
    ls_mutex_unlock(&posts->mutex);
}

void ls_posts_stop(ls_posts *posts)
{
    ls_mutex_lock(&posts->mutex);
    posts->stopped = true;
    ls_mutex_unlock(&posts->mutex);
}

int ls_posts_add(ls_posts *posts, const void *data, size_t bytes, ls_server_answer_fn *answered, void *user)
{
    static const ls_host_post_ops ops = {.begun = post_begun, .answer = post_answer, .ended = post_ended};
    int err = LS_OK;
    ls_host_post *post = bytes <= SIZE_MAX - sizeof *post ? malloc(sizeof *post + bytes) : NULL;
    if (post == NULL) return LS_ENOMEM;
    *post = (ls_host_post){
        .op = {.done = post_arrived}, .ops = &ops, .owner = posts, .answered = answered, .user = user, .bytes = bytes};
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
        ls_list_push(&posts->waiting, &post->node);
        deliver_next(posts);
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
