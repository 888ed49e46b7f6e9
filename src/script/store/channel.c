/* channel.c - see channel.h. */
#include "script/store/channel.h"

#include <assert.h>
#include <stdlib.h>

#include "base/invariant.h"
#include "base/os/thread.h"

struct ls_channel {
    ls_shared_object shared;
    bool capacity_given; /* by the site; guarded by the registry */
    ls_mutex mutex;      /* guards the fields below */
    ls_node messages;
    size_t len, capacity;
    ls_node senders, receivers; /* waiters, the one that has waited longest first */
    bool closed;
};

ls_message *ls_message_get(ls_value *value)
{
    ls_message *message = malloc(sizeof *message);
    if (message == NULL) {
        ls_value_drop(value);
        return NULL;
    }
    message->value = value;
    ls_node_init(&message->node);
    return message;
}

void ls_message_drop(ls_message *message)
{
    ls_value_drop(message->value);
    free(message);
}

/* Give the message to the receiver that has waited longest, if one waits. */
static bool hand_over(ls_channel *channel, ls_message *message, ls_node *woken)
{
    if (ls_list_empty(&channel->receivers)) return false;
    ls_waiter *receiver = LS_CONTAINER(channel->receivers.next, ls_waiter, node);
    receiver->message = message;
    ls_waiter_decide(receiver, LS_OK, woken);
    return true;
}

/* Queue the messages of waiting senders while there is room. */
static void let_in(ls_channel *channel, ls_node *woken)
{
    while (channel->len < channel->capacity && !ls_list_empty(&channel->senders)) {
        ls_waiter *sender = LS_CONTAINER(channel->senders.next, ls_waiter, node);
        ls_list_push(&channel->messages, &sender->message->node);
        channel->len++;
        sender->message = NULL;
        ls_waiter_decide(sender, LS_OK, woken);
    }
}

static bool check(const ls_channel *channel)
{
    const bool senders = !ls_list_empty(&channel->senders), receivers = !ls_list_empty(&channel->receivers);
    return (channel->len == 0) == ls_list_empty(&channel->messages) && !(receivers && (channel->len > 0 || senders)) &&
           !(senders && channel->len < channel->capacity) && !(channel->closed && (senders || receivers));
}

static void unlock(ls_channel *channel)
{
    LS_INVARIANT(check(channel));
    ls_mutex_unlock(&channel->mutex);
}

int ls_channel_send(ls_channel *channel, ls_message *message, ls_waiter *waiter)
{
    int result = LS_OK;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&channel->mutex);
    if (channel->closed) {
        result = LS_ECLOSED;
    } else if (channel->len >= channel->capacity) {
        result = waiter != NULL ? LS_CHANNEL_WAITS : LS_EAGAIN;
        if (waiter != NULL) {
            waiter->message = message;
            ls_list_push(&channel->senders, &waiter->node);
        }
    } else if (!hand_over(channel, message, &woken)) {
        ls_list_push(&channel->messages, &message->node);
        channel->len++;
    }
    unlock(channel);
    ls_waiters_wake(&woken);
    return result;
}

int ls_channel_receive(ls_channel *channel, ls_waiter *waiter, ls_message **out)
{
    int result = LS_OK;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&channel->mutex);
    if (channel->len > 0) {
        ls_message *message = LS_CONTAINER(channel->messages.next, ls_message, node);
        ls_list_remove(&message->node);
        channel->len--;
        let_in(channel, &woken);
        *out = message;
    } else if (channel->closed) {
        result = LS_ECLOSED;
    } else {
        result = waiter != NULL ? LS_CHANNEL_WAITS : LS_EAGAIN;
        if (waiter != NULL) ls_list_push(&channel->receivers, &waiter->node);
    }
    unlock(channel);
    ls_waiters_wake(&woken);
    return result;
}

bool ls_channel_cancel(void *channel, ls_waiter *waiter)
{
    return ls_waiter_cancel(&((ls_channel *)channel)->mutex, waiter);
}

void ls_channel_put_back(ls_channel *channel, ls_message *message)
{
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&channel->mutex);
    if (!hand_over(channel, message, &woken)) {
        ls_list_push(channel->messages.next, &message->node); /* before the first one */
        channel->len++;
    }
    unlock(channel);
    ls_waiters_wake(&woken);
}

static void refuse_all(ls_node *waiters, ls_node *woken)
{
    while (!ls_list_empty(waiters)) ls_waiter_decide(LS_CONTAINER(waiters->next, ls_waiter, node), LS_ECLOSED, woken);
}

void ls_channel_close(ls_channel *channel)
{
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&channel->mutex);
    channel->closed = true;
    refuse_all(&channel->receivers, &woken);
    refuse_all(&channel->senders, &woken);
    unlock(channel);
    ls_waiters_wake(&woken);
}

size_t ls_channel_len(ls_channel *channel)
{
    ls_mutex_lock(&channel->mutex);
    const size_t len = channel->len;
    unlock(channel);
    return len;
}

size_t ls_channel_capacity(ls_channel *channel)
{
    ls_mutex_lock(&channel->mutex);
    const size_t capacity = channel->capacity;
    unlock(channel);
    return capacity;
}

bool ls_channel_is_closed(ls_channel *channel)
{
    ls_mutex_lock(&channel->mutex);
    const bool closed = channel->closed;
    unlock(channel);
    return closed;
}

const char *ls_channel_name(const ls_channel *channel)
{
    return channel->shared.name;
}

/* ---- the kind ----------------------------------------------------------------------------------------------- */

static int channel_open(const void *options, ls_shared_object **out)
{
    const size_t *capacity = options;
    ls_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) return LS_ENOMEM;
    ls_mutex_open(&channel->mutex);
    channel->capacity_given = capacity != NULL;
    channel->capacity = capacity != NULL ? *capacity : LS_CHANNEL_CAPACITY;
    ls_node_init(&channel->messages);
    ls_node_init(&channel->senders);
    ls_node_init(&channel->receivers);
    *out = &channel->shared;
    return LS_OK;
}

/* Drop the messages and free the channel. */
static void channel_close(ls_shared_object *object)
{
    ls_channel *channel = ls_channel_of(object);
    assert(ls_list_empty(&channel->senders) && ls_list_empty(&channel->receivers));
    LS_LIST_TAKE (ls_message, message, &channel->messages, node) ls_message_drop(message);
    ls_mutex_close(&channel->mutex);
    free(channel);
}

/* Change the capacity. A larger one lets senders in that wait; a smaller one drops nothing. */
static bool channel_redefine(ls_shared_object *object, const void *options, bool reloaded)
{
    const size_t *capacity = options;
    ls_channel *channel = ls_channel_of(object);
    ls_node woken = LS_LIST_INIT(woken);
    if (!reloaded && channel->capacity_given) return *capacity == channel->capacity;
    ls_mutex_lock(&channel->mutex);
    channel->capacity = *capacity;
    let_in(channel, &woken);
    unlock(channel);
    channel->capacity_given = true;
    ls_waiters_wake(&woken);
    return true;
}

static void channel_look(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX])
{
    figures[0] = ls_channel_len(ls_channel_of(object));
}

const ls_shared_kind ls_channel_kind = {.name = "channel",
                                        .open = channel_open,
                                        .close = channel_close,
                                        .redefine = channel_redefine,
                                        .look = channel_look,
                                        .figures = {"values"}};
