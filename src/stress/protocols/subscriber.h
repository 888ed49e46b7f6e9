/* subscriber.h - the state of a subscriber in a fan-out run (fanout.h). */
#ifndef LS_STRESS_SUBSCRIBER_H
#define LS_STRESS_SUBSCRIBER_H

#include "stress/protocols/delivery.h"
#include "stress/protocols/event_stream.h"

struct ls_stress_subscriber {
    char head[LS_DELIVERY_HEAD_BYTES]; /* of a message that arrives in parts */
    size_t at;                         /* its bytes so far */
    bool differs;                      /* one of them is not the expected one */
    ls_sse sse;
    ls_delivery_track tracks[]; /* of the publishers of its topic */
};

#endif
