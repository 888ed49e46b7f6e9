/* topic.h - topics: a message that is published reaches every subscriber of its topic, in all Lua states of a server.
 *
 * A subscriber is anything that can take a message: a WebSocket, a response with server-sent events, a TCP connection, a
 * function of Lua. It lives in one Lua state, and its function `deliver` runs inside that state's actor.
 *
 * A publisher makes one immutable ls_publication and appends it to the *inbox* of every state that has subscribers of the
 * topic; the first one in an inbox posts one operation to the actor of the state. That operation takes what is in the inbox
 * by then, calls `deliver` for each subscriber and publication, and at the end `flush` of the state once. So many
 * publications make one send per connection, and the messages of one publisher stay in order.
 *
 * What a kind of subscriber sends (a frame, an event, a line) is the same for all of its kind: the first subscriber that
 * needs a form encodes it and stores it in the publication for all others.
 *
 * Threads: ls_topics_publish, ls_topics_list: any. Subscriptions: inside the actor of the subscriber's state. */
#ifndef LS_SCRIPT_SHARED_TOPIC_H
#define LS_SCRIPT_SHARED_TOPIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "port/port.h"

typedef struct ls_topics ls_topics;           /* of a server; owned by ls_runtime; survives reloads */
typedef struct ls_topic ls_topic;             /* one name */
typedef struct ls_topic_inbox ls_topic_inbox; /* of a Lua state */
typedef struct ls_publication ls_publication; /* one message, refcounted */
typedef struct ls_subscriber ls_subscriber;   /* what gets messages: embedded in its owner */
typedef struct ls_subscription ls_subscription;

enum {
    LS_TOPIC_NAME_BYTES_MAX = 1024,
    LS_TOPIC_SUBSCRIPTIONS_MAX = 1000,      /* of one subscriber */
    LS_TOPIC_RETAINED_BYTES_MAX = 16777216, /* all retained messages together */
    LS_TOPIC_INBOX_BYTES_MAX = 67108864     /* publications that wait in one inbox: the publisher gets LS_ELIMIT */
};

/* The forms of a publication that are encoded once. */
enum ls_topic_form {
    LS_FORM_WS,         /* a frame of a WebSocket server */
    LS_FORM_WS_DEFLATE, /* the same, compressed without context takeover */
    LS_FORM_SSE,        /* an event with the framing of a chunk of HTTP/1.1, see bind/sse.c */
    LS_FORM_LINE,       /* data and a line feed */
    LS_FORMS
};

struct ls_publication {
    _Atomic uint32_t refs;
    bool text; /* else binary */
    const char *topic;
    size_t topic_len;
    ls_slice data;                              /* with its reference */
    _Atomic(struct ls_block *) forms[LS_FORMS]; /* use ls_publication_form */
};

/* The form of the publication as a slice without a reference of its own; `encode` makes it when it is missing: a block with
 * one reference whose used length it stores. Two threads may encode at the same time, then one result is dropped. LS_OK or
 * LS_ENOMEM. */
typedef int ls_topic_encode_fn(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out);
int ls_publication_form(ls_thread_ctx *ctx, ls_publication *p, enum ls_topic_form form, ls_topic_encode_fn *encode,
                        ls_slice *out);

struct ls_subscriber {
    ls_node subscriptions;
    unsigned count;
    ls_topic_inbox *inbox;
    /* Take the message: queue it, flush later. It may unsubscribe and end any subscriber. */
    void (*deliver)(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p);
};

/* LS_OK or LS_ENOMEM. Close: no inbox is left. */
int ls_topics_open(ls_topics **out);
void ls_topics_close(ls_topics *topics);

/* The inbox of a state. `flush` runs in the actor after the deliveries of a batch. LS_OK or LS_ENOMEM. */
int ls_topic_inbox_open(ls_topics *topics, ls_actor *actor, void (*flush)(ls_thread_ctx *ctx, void *user), void *user,
                        ls_topic_inbox **out);
/* Refuse further publications and drop those that wait. No subscriber is left. Then ls_topic_inbox_closed: whether its
 * operation is not on its way any more, so that it can be freed. */
void ls_topic_inbox_close(ls_topic_inbox *inbox);
bool ls_topic_inbox_closed(const ls_topic_inbox *inbox);
void ls_topic_inbox_free(ls_topic_inbox *inbox);

/* Prepare an embedded subscriber. */
void ls_subscriber_init(ls_subscriber *subscriber, ls_topic_inbox *inbox,
                        void (*deliver)(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p));
/* Subscribe. *retained receives the retained message with a reference, or NULL; the caller delivers it. LS_OK; LS_EEXIST:
 * it has subscribed already; LS_ELIMIT: LS_TOPIC_SUBSCRIPTIONS_MAX; LS_EINVAL: an empty or too long name; LS_ENOMEM. */
int ls_topic_subscribe(ls_subscriber *subscriber, const char *name, size_t len, ls_publication **retained);
/* LS_OK, or LS_ENOENT: it has not subscribed. */
int ls_topic_unsubscribe(ls_subscriber *subscriber, const char *name, size_t len);
/* End all subscriptions: the subscriber may be freed. */
void ls_subscriber_end(ls_subscriber *subscriber);

/* Publish `data`, whose reference it takes in every case; bytes without a block are copied by the caller before. `retain`:
 * keep it as the last message of the topic; with empty data the retained message is removed. Returns the number of
 * subscribers (>= 0), or LS_EINVAL (name), LS_ELIMIT (an inbox or the retained messages are full), LS_ENOMEM: then no
 * subscriber gets it. */
int64_t ls_topics_publish(ls_topics *topics, ls_thread_ctx *ctx, const char *name, size_t len, ls_slice data,
                          bool text, bool retain);

ls_publication *ls_publication_hold(ls_publication *p);
void ls_publication_drop(ls_publication *p);

#endif
