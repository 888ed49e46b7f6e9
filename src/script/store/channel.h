/* channel.h - ls.channel: a bounded queue of values, first in, first out, for all Lua states of a server.
 *
 * A value travels as an ls_message. Every message is delivered to exactly one receiver: the channel hands it to the
 * receiver that has waited longest, or keeps it until one comes. A receiver that no longer wants the message that it
 * was handed puts it back at the head of the queue, which needs no memory and cannot fail. A sender that waits for
 * room leaves its message with its waiter; the messages of waiting senders follow those in the queue.
 *
 *     a receiver waits  =>  the queue is empty and no sender waits
 *     a sender waits    =>  the queue holds at least `capacity` messages
 *
 * Messages that were put back may exceed the capacity. After ls_channel_close() the queue can still be received.
 * Any thread may call these functions. */
#ifndef LS_SCRIPT_CHANNEL_H
#define LS_SCRIPT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/shared.h"
#include "base/waiter.h"
#include "script/store/marshal.h"

typedef struct ls_message { /* one value on its way */
    ls_node node;
    ls_value *value;
} ls_message;

/* Get a message with this value, which it takes over. NULL: out of memory; the value is dropped. */
ls_message *ls_message_get(ls_value *value);
void ls_message_drop(ls_message *message);

typedef struct ls_channel ls_channel;

enum { LS_CHANNEL_WAITS = 1 };       /* the result of a call that has queued its waiter */
enum { LS_CHANNEL_CAPACITY = 1000 }; /* when the site gives none */

/* Of ls_shared_get(), which opens and closes channels. Its options are a size_t, the capacity. In one generation of
 * the site all calls that give a capacity give the same; the next generation may change it. */
extern const ls_shared_kind ls_channel_kind;
static inline ls_channel *ls_channel_of(ls_shared_object *object)
{
    return (ls_channel *)(void *)object; /* its first field */
}

/* Send the message. LS_OK: the channel has it. LS_ECLOSED: the message remains the caller's. Without room:
 * LS_CHANNEL_WAITS with a waiter, which takes the message over; without one LS_EAGAIN, the message remains the
 * caller's. */
int ls_channel_send(ls_channel *channel, ls_message *message, ls_waiter *waiter);

/* Receive the oldest message into *out. LS_OK, or LS_ECLOSED: the channel is closed and empty. While it is empty:
 * LS_CHANNEL_WAITS with a waiter, else LS_EAGAIN. */
int ls_channel_receive(ls_channel *channel, ls_waiter *waiter, ls_message **out);

/* Stop waiting. true: the waiter is off the queue and `wake` is not called; a sender owns its message again. false:
 * the channel has decided (`result` is set), and has called `wake` or is about to. The channel
 * is a void *, as for each ls_*_cancel: the function is that of an ls_wait_kind (bind/data/wait.h). */
bool ls_channel_cancel(void *channel, ls_waiter *waiter);

/* Return a message that was received but not used. It becomes the first of the queue, also after the close. */
void ls_channel_put_back(ls_channel *channel, ls_message *message);

/* Refuse further messages. Receivers and senders that wait get LS_ECLOSED. Again: no effect. */
void ls_channel_close(ls_channel *channel);

const char *ls_channel_name(const ls_channel *channel);
size_t ls_channel_len(ls_channel *channel); /* messages in the queue */
size_t ls_channel_capacity(ls_channel *channel);
bool ls_channel_is_closed(ls_channel *channel);

#endif
