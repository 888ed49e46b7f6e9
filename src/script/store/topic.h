/* topic.h - topics: a message that is published reaches every subscriber of its topic, in all Lua states of a server.
 *
 * A subscriber is anything that can take a message: a WebSocket, a response with server-sent events, a TCP connection,
 * a function of Lua. It lives in one Lua state, and its function `deliver` runs inside that state's actor.
 *
 * A publisher makes one immutable ls_publication and appends it to the *inbox* of every state that has subscribers of
 * the topic; the first one in an inbox posts one operation to the actor of the state. That operation takes what is in
 * the inbox by then, calls `deliver` for each subscriber, and `flush` of the state at the end and after groups of
 * subscribers that get no more of it. A publisher does work for each state, not for each subscriber.
 *
 *     publisher --> publication --> inbox of state 1 --> deliver, deliver, ... flush
 *                              \--> inbox of state 2 --> deliver, deliver, ... flush
 *
 * Order. All subscribers of a topic get its messages in the same order. A subscriber of several topics gets the
 * messages of one publisher in the order in which they were published. A subscriber gets the messages that are
 * published after its subscription; one that is published during a delivery follows it.
 *
 * Runs. Publications of one topic that follow one another are delivered together, up to LS_TOPIC_RUN_MESSAGES and
 * LS_TOPIC_RUN_BYTES: a subscriber gets all of them at its turn, in one send. Those that arrive while the deliveries
 * are under way join the run: the turns go round the subscribers until each of them has had every publication.
 *
 * Batches. The operation ends a batch after LS_TOPIC_BATCH_SUBSCRIBERS different subscribers or
 * LS_TOPIC_BATCH_DELIVERIES: it flushes, and posts itself to the port for the rest, after the packets that wait
 * there. So a topic with 100,000 subscribers does not keep the other work of its state waiting.
 *
 * What a kind of subscriber sends (a frame, an event, a line) is the same for all of its kind: the first subscriber
 * that needs a form encodes it and stores it in the publication for all others.
 *
 * Threads: ls_topics_publish, ls_topics_list, ls_topics_stat: any. Publications: any. Inboxes and subscriptions:
 * inside the actor of their state. */
#ifndef LS_SCRIPT_TOPIC_H
#define LS_SCRIPT_TOPIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "port/port.h"

typedef struct ls_topics ls_topics;           /* of a server; owned by ls_runtime; survives reloads */
typedef struct ls_topic_inbox ls_topic_inbox; /* of a Lua state */
typedef struct ls_publication ls_publication; /* one message, refcounted */
typedef struct ls_subscriber ls_subscriber;   /* what gets messages: embedded in its owner */

enum {
    LS_TOPIC_NAME_BYTES_MAX = 1024,
    LS_TOPIC_EVENT_BYTES_MAX = 1024,        /* of the event and of the id */
    LS_TOPIC_SUBSCRIPTIONS_MAX = 1000,      /* of one subscriber */
    LS_TOPIC_RETAINED_BYTES_MAX = 16777216, /* all retained messages together */
    LS_TOPIC_RETAINED_MAX = 1000,           /* of one topic */
    LS_TOPIC_UNKEPT_MS = 60000,             /* see ls_topics_unkept */
    LS_TOPIC_INBOX_BYTES_MAX = 67108864,    /* publications that wait in one inbox; then its subscribers lose them */
    LS_TOPIC_MESSAGE_BYTES =
        256, /* what a publication counts in these two limits beside its data, name, event and id */
    LS_TOPIC_BATCH_SUBSCRIBERS = 256, /* well below the time after which a worker counts as slow */
    LS_TOPIC_BATCH_DELIVERIES = 32768,
    LS_TOPIC_RUN_MESSAGES = 64,
    LS_TOPIC_RUN_BYTES = 65536,   /* of data, unless the run has one message */
    LS_TOPIC_JOINED_BYTES = 16384 /* likewise: a longer run is not joined, and sent from the blocks of its messages */
};

/* The forms of a publication that are encoded once. */
enum ls_topic_form {
    LS_FORM_WS,         /* a frame of a WebSocket server */
    LS_FORM_WS_DEFLATE, /* the same, compressed without context takeover */
    LS_FORM_SSE,        /* events, with room around them for the framing of a part: see exchange_out.h */
    LS_FORM_LINE,       /* data and a line feed */
    LS_FORMS
};

struct ls_publication {
    _Atomic uint32_t refs;
    bool text;         /* else binary */
    uint64_t number;   /* of its topic, from 1 */
    uint32_t site;     /* the generation of the site: ls_topics_site_starts */
    const char *topic; /* its name */
    size_t topic_len;
    ls_slice data;                /* valid as long as the publication; without a block: hold the publication */
    ls_slice event, id;           /* of a server-sent event; without a block; empty: none */
    uint64_t position;            /* the id as a number that ls_publish_order.numbered has given; else 0 */
    struct ls_publication *newer; /* private: the next retained message of the topic */
    /* A joined publication stands for several of one topic, in order: it has only these two fields and forms, which
     * contain all of them. Another one has count 1, and is its only part. */
    unsigned count;
    ls_publication *const *parts;                          /* NULL: not joined */
    _Atomic(struct ls_topic_form_block *) forms[LS_FORMS]; /* private: use ls_publication_form */
};

ls_publication *ls_publication_hold(ls_publication *p);
void ls_publication_drop(ls_publication *p);

static inline const ls_publication *ls_publication_part(const ls_publication *p, unsigned n)
{
    return p->parts != NULL ? p->parts[n] : p;
}

/* The form of the publication. *out is valid as long as the publication and has no reference of its own, but it has a
 * block: ls_block_hold(out->block) makes one. `encode` makes the form when it is missing, in the room that
 * ls_topic_form_room gives it; the result may be shorter. Two threads may encode at the same time, then one result is
 * dropped. The bytes of a joined publication count as copied. LS_OK, or the error of `encode`, which leaves nothing in
 * *out. */
typedef int ls_topic_encode_fn(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out);
int ls_publication_form(ls_thread_ctx *ctx, ls_publication *p, enum ls_topic_form form, ls_topic_encode_fn *encode,
                        ls_slice *out);
/* Make a slice of `len` bytes with one reference, and return its bytes, which the caller fills. NULL: out of memory.
 * The bytes are in the heap, because the forms of retained messages stay for long. */
char *ls_topic_form_room(size_t len, ls_slice *out);

/* What subscribers of one kind do. */
typedef struct ls_subscriber_kind {
    /* Take the message: queue it, flush later. It may subscribe, unsubscribe, end and free any subscriber. LS_OK;
     * LS_ECLOSED: the subscriber is closed or closes, or the message is not for it, which is not counted; another
     * error, LS_ELIMIT if the subscriber lags: the message was dropped, counted in ls_topics_stats.dropped.
     * LS_EMSGSIZE, for a joined publication: it does not fit, and its parts follow one by one. */
    int (*deliver)(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p);
    /* Optional (NULL): prefetch what `deliver` will read. It is called with `ahead` = 4, 3, 2 and 1: so many
     * deliveries to others come first. Memory arrives during each of them, so every call may follow one pointer
     * more. */
    void (*prefetch)(const ls_subscriber *subscriber, unsigned ahead);
    bool joins; /* `deliver` takes joined publications, too */
} ls_subscriber_kind;

struct ls_subscriber {
    ls_node subscriptions;
    ls_topic_inbox *inbox;
    const ls_subscriber_kind *kind;
    unsigned count; /* of its subscriptions */
    uint32_t batch; /* private: the batch of its last delivery */
};

/* Inside `deliver`: whether the subscriber may get further publications in this batch. */
bool ls_topic_inbox_more(const ls_topic_inbox *inbox);

/* LS_OK or LS_ENOMEM. Close: no inbox is left. */
int ls_topics_open(ls_topics **out);
void ls_topics_close(ls_topics *topics);

/* The inbox of a state. `flush` runs in the actor after the deliveries of a batch, and in between. Publications wait
 * in the inbox until ls_topic_inbox_start, in the actor, delivers them. LS_OK or LS_ENOMEM. */
int ls_topic_inbox_open(ls_topics *topics, ls_actor *actor, void (*flush)(ls_thread_ctx *ctx, void *user), void *user,
                        ls_topic_inbox **out);
void ls_topic_inbox_start(ls_thread_ctx *ctx, ls_topic_inbox *inbox, ls_port *port);
void ls_topic_inbox_start_later(ls_topic_inbox *inbox, ls_port *port); /* the same, when the running task waits */
/* End all subscriptions of the inbox, drop the publications that wait, and refuse subscriptions. Again: no effect.
 * Then ls_topic_inbox_closed: whether its operation is not on its way any more, so that it can be freed. */
void ls_topic_inbox_close(ls_topic_inbox *inbox);
bool ls_topic_inbox_closed(const ls_topic_inbox *inbox);
bool ls_topic_inbox_posted(const ls_topic_inbox *inbox); /* its operation is on its way */
/* Free a closed inbox; also when its operation is on its way, but no worker runs. */
void ls_topic_inbox_free(ls_topic_inbox *inbox);

/* Whether the inbox holds no publication: all that were published before the call are delivered. Not inside
 * `deliver`. */
bool ls_topic_inbox_idle(ls_topic_inbox *inbox);

/* Prepare an embedded subscriber. */
void ls_subscriber_init(ls_subscriber *subscriber, ls_topic_inbox *inbox, const ls_subscriber_kind *kind);
/* Subscribe. *retained receives the retained messages, oldest first, NULL for none; the caller delivers and drops them. LS_OK;
 * LS_EEXIST: it has subscribed already; LS_ELIMIT: LS_TOPIC_SUBSCRIPTIONS_MAX; LS_EINVAL: an empty or too long name;
 * LS_ECLOSED: the inbox is closed; LS_ENOMEM. */
typedef struct ls_retained {
    unsigned count;
    ls_publication *at[]; /* with a reference each */
} ls_retained;
int ls_topic_subscribe_all(ls_subscriber *subscriber, const char *name, size_t len, ls_retained **retained);
void ls_retained_drop(ls_retained *retained); /* NULL: no effect */
/* The same with the newest retained message only, or NULL. */
int ls_topic_subscribe(ls_subscriber *subscriber, const char *name, size_t len, ls_publication **retained);
/* For a subscriber with one subscription that ignores the publications of other generations than `site`: the retained
 * message with a reference, unless it is one of those that the inbox delivers; or NULL. */
ls_publication *ls_subscriber_retained(const ls_subscriber *subscriber, uint32_t site);
/* LS_OK, or LS_ENOENT: it has not subscribed. */
int ls_topic_unsubscribe(ls_subscriber *subscriber, const char *name, size_t len);
/* Deliver what the inbox holds for one subscriber, at once: its owner closes it, and all messages whose publish has
 * returned are sent before. Ends at the first error of `deliver`, which may end the subscriber but not free it, but
 * for LS_ELIMIT of a subscriber that continues. Returns that error, or LS_OK. Inside the actor; not inside `deliver`
 * of the same subscriber. */
int ls_subscriber_deliver_waiting(ls_thread_ctx *ctx, ls_subscriber *subscriber);
/* Count a subscriber that its owner closes because it lags. Inside the actor. */
void ls_topic_count_closed(ls_topic_inbox *inbox);
/* End all subscriptions: the subscriber may be freed. No effect after ls_topic_inbox_close, even if the inbox was
 * freed. */
void ls_subscriber_end(ls_subscriber *subscriber);

typedef struct ls_publish_order {
    const char *topic;
    size_t topic_len;
    ls_slice data;             /* the bytes of a slice without a block are copied */
    ls_slice event, id;        /* of server-sent events; copied; other subscribers ignore them */
    bool text;                 /* the data is valid UTF-8; else binary */
    const ls_topic_inbox *own; /* of the state that publishes, or NULL: LS_ELIMIT if it is full */
    unsigned retain;           /* 0: no copy; else one for later subscribers: */
    bool history;              /* with so many messages in all, whatever their data; else with as many as the last history
                                  of the topic has, or alone, and empty data removes all of them */
    bool numbered;             /* the id is a number above those of all earlier messages, also after a restart */
} ls_publish_order;

/* Publish a message. Takes the reference of the data in every case. Returns the number of subscribers (>= 0) that will
 * get it: not those in a state whose inbox is full, which count as dropped. LS_EINVAL (an empty or too long name; a
 * too long event or id), LS_ELIMIT (the own inbox is full), LS_ENOMEM: then no subscriber gets it, and the retained
 * messages are the old ones. When those of all topics have reached their limit, the message takes the place of older
 * ones of its topic; if these are too short, the topic retains none. */
int64_t ls_topics_publish(ls_topics *topics, const ls_publish_order *order);
/* How many messages this has concerned since the last result above 0, at most one each LS_TOPIC_UNKEPT_MS: the caller
 * logs it. 0: none, or it is not due. */
uint32_t ls_topics_unkept(ls_topics *topics, uint64_t now_ms);

/* A generation of the site starts. Returns its number, which later publications have: 0 for the first one, which also
 * gets those published before. So each publication belongs to one generation, although two may exist at the same
 * time. */
uint32_t ls_topics_site_starts(ls_topics *topics);

/* The topics whose name begins with the prefix, those without subscribers but with a retained message included. They
 * are in LS_TOPIC_SHARDS parts; one part is copied at a time. Returns the room that the part needs, in bytes; if that
 * is more than `room`, nothing was copied: call again. ls_topics_next takes the topics out: from `at`, which it moves;
 * false: no more. */
enum { LS_TOPIC_SHARDS = 16 };
typedef struct ls_topic_info {
    uint64_t subscribers;
    size_t len;
    const char *name;
} ls_topic_info;
size_t ls_topics_list(ls_topics *topics, unsigned part, const char *prefix, size_t prefix_len, char *to, size_t room);
bool ls_topics_next(const char **at, const char *end, ls_topic_info *out);

typedef struct ls_topics_stats {
    uint64_t topics;        /* that exist: with subscribers, or with a retained message */
    uint64_t subscriptions; /* of all subscribers */
    uint64_t published, delivered, dropped;
    uint64_t closed; /* subscribers that their owners closed because they lagged */
    uint64_t retained_bytes;
} ls_topics_stats;
void ls_topics_stat(ls_topics *topics, ls_topics_stats *out);

#endif
