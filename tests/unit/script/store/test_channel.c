/* test_channel.c - channels: order, capacity, waiters, close, messages put back; with threads: each message once. */
#include "support.h"

#include "script/store/channel.h"
#include "script/store/sleeper.h"

static ls_channel *open_channel(size_t capacity)
{
    ls_shared_object *object;
    assert_int_equal(ls_channel_kind.open(&capacity, &object), LS_OK);
    return ls_channel_of(object);
}

static void free_channel(ls_channel *channel)
{
    ls_channel_kind.close((ls_shared_object *)(void *)channel);
}

static bool redefine(ls_channel *channel, size_t capacity, bool reloaded)
{
    return ls_channel_kind.redefine((ls_shared_object *)(void *)channel, &capacity, reloaded);
}

/* A message that carries a number, readable without Lua: the number of bytes of its value. */
static ls_message *message_of(unsigned number)
{
    static const char zeros[256];
    assert_in_range(number, 0, sizeof zeros);
    ls_value *value = ls_value_string(zeros, number);
    assert_non_null(value);
    ls_message *message = ls_message_get(value);
    assert_non_null(message);
    return message;
}

static size_t base_bytes(void) /* of a value without content */
{
    ls_message *message = message_of(0);
    const size_t bytes = ls_value_bytes(message->value);
    ls_message_drop(message);
    return bytes;
}

static unsigned number_of(const ls_message *message)
{
    return (unsigned)(ls_value_bytes(message->value) - base_bytes());
}

static void expect(ls_message *message, unsigned number)
{
    assert_non_null(message);
    assert_int_equal(number_of(message), number);
    ls_message_drop(message);
}

static void send_number(ls_channel *channel, unsigned number)
{
    assert_int_equal(ls_channel_send(channel, message_of(number), NULL), LS_OK);
}

static void receive_number(ls_channel *channel, unsigned number)
{
    ls_message *message;
    assert_int_equal(ls_channel_receive(channel, NULL, &message), LS_OK);
    expect(message, number);
}

static unsigned wakes;

static void count_wake(ls_waiter *waiter)
{
    wakes++;
}

TEST(first_in_first_out_up_to_the_capacity)
{
    ls_channel *channel = open_channel(3);
    ls_message *message = NULL;
    assert_int_equal(ls_channel_capacity(channel), 3);
    assert_int_equal(ls_channel_receive(channel, NULL, &message), LS_EAGAIN);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned n = 0; n < 3; n++) send_number(channel, n);
        assert_int_equal(ls_channel_len(channel), 3);
        message = message_of(9);
        assert_int_equal(ls_channel_send(channel, message, NULL), LS_EAGAIN); /* one past the capacity */
        ls_message_drop(message);
        for (unsigned n = 0; n < 3; n++) receive_number(channel, n);
    }
    send_number(channel, 1); /* freed with the channel */
    free_channel(channel);
}

TEST(a_waiting_receiver_gets_the_value)
{
    ls_channel *channel = open_channel(1);
    ls_waiter first, second;
    ls_message *message = NULL;
    wakes = 0;
    ls_waiter_init(&first, count_wake);
    ls_waiter_init(&second, count_wake);
    assert_int_equal(ls_channel_receive(channel, &first, &message), LS_CHANNEL_WAITS);
    assert_int_equal(ls_channel_receive(channel, &second, &message), LS_CHANNEL_WAITS);
    send_number(channel, 1);
    assert_int_equal(wakes, 1);
    assert_int_equal(first.result, LS_OK);
    assert_int_equal(second.result, LS_EAGAIN);
    assert_int_equal(ls_channel_len(channel), 0);
    assert_false(ls_channel_cancel(channel, &first)); /* it has been decided */
    expect(first.message, 1);
    assert_true(ls_channel_cancel(channel, &second));
    send_number(channel, 2); /* stays: no receiver waits */
    assert_int_equal(wakes, 1);
    receive_number(channel, 2);
    free_channel(channel);
}

TEST(a_waiting_sender_follows_the_queue)
{
    ls_channel *channel = open_channel(1);
    ls_waiter first, second, third;
    wakes = 0;
    ls_waiter_init(&first, count_wake);
    ls_waiter_init(&second, count_wake);
    ls_waiter_init(&third, count_wake);
    send_number(channel, 0);
    assert_int_equal(ls_channel_send(channel, message_of(1), &first), LS_CHANNEL_WAITS);
    assert_int_equal(ls_channel_send(channel, message_of(2), &second), LS_CHANNEL_WAITS);
    assert_int_equal(ls_channel_send(channel, message_of(3), &third), LS_CHANNEL_WAITS);
    assert_true(ls_channel_cancel(channel, &second));
    expect(second.message, 2);
    receive_number(channel, 0);
    assert_int_equal(wakes, 1);
    assert_int_equal(first.result, LS_OK);
    assert_null(first.message);
    receive_number(channel, 1);
    assert_int_equal(third.result, LS_OK);
    receive_number(channel, 3);
    assert_int_equal(wakes, 2);
    free_channel(channel);
}

TEST(what_is_put_back_comes_first)
{
    ls_channel *channel = open_channel(2);
    ls_waiter receiver;
    ls_message *message = NULL;
    wakes = 0;
    for (unsigned n = 0; n < 2; n++) send_number(channel, n);
    assert_int_equal(ls_channel_receive(channel, NULL, &message), LS_OK);
    send_number(channel, 2);
    ls_channel_put_back(channel, message); /* above the capacity */
    assert_int_equal(ls_channel_len(channel), 3);
    for (unsigned n = 0; n < 3; n++) receive_number(channel, n);

    ls_waiter_init(&receiver, count_wake);
    assert_int_equal(ls_channel_receive(channel, &receiver, &message), LS_CHANNEL_WAITS);
    ls_channel_put_back(channel, message_of(7)); /* another receiver waits for it */
    assert_int_equal(wakes, 1);
    expect(receiver.message, 7);

    ls_channel_close(channel);
    ls_channel_put_back(channel, message_of(8));
    receive_number(channel, 8);
    assert_int_equal(ls_channel_receive(channel, NULL, &message), LS_ECLOSED);
    free_channel(channel);
}

TEST(close_refuses_senders_and_drains)
{
    ls_channel *channel = open_channel(1);
    ls_waiter sender, receiver;
    ls_message *message = NULL;
    wakes = 0;
    ls_waiter_init(&sender, count_wake);
    send_number(channel, 1);
    assert_int_equal(ls_channel_send(channel, message_of(2), &sender), LS_CHANNEL_WAITS);
    assert_false(ls_channel_is_closed(channel));
    ls_channel_close(channel);
    ls_channel_close(channel);
    assert_true(ls_channel_is_closed(channel));
    assert_int_equal(wakes, 1);
    assert_int_equal(sender.result, LS_ECLOSED);
    expect(sender.message, 2); /* not sent */
    message = message_of(3);
    assert_int_equal(ls_channel_send(channel, message, NULL), LS_ECLOSED);
    ls_message_drop(message);
    receive_number(channel, 1);
    assert_int_equal(ls_channel_receive(channel, NULL, &message), LS_ECLOSED);
    free_channel(channel);

    channel = open_channel(1);
    ls_waiter_init(&receiver, count_wake);
    assert_int_equal(ls_channel_receive(channel, &receiver, &message), LS_CHANNEL_WAITS);
    ls_channel_close(channel);
    assert_int_equal(wakes, 2);
    assert_int_equal(receiver.result, LS_ECLOSED);
    assert_false(ls_channel_cancel(channel, &receiver));
    assert_int_equal(ls_channel_receive(channel, &receiver, &message), LS_ECLOSED);
    free_channel(channel);
}

TEST(another_capacity)
{
    ls_channel *channel = open_channel(1);
    ls_waiter senders[3];
    ls_message *message;
    wakes = 0;
    send_number(channel, 0);
    for (unsigned n = 0; n < 3; n++) {
        ls_waiter_init(&senders[n], count_wake);
        assert_int_equal(ls_channel_send(channel, message_of(n + 1), &senders[n]), LS_CHANNEL_WAITS);
    }
    assert_true(redefine(channel, 3, true));
    assert_int_equal(wakes, 2);
    assert_true(redefine(channel, 1, true)); /* drops nothing */
    for (unsigned n = 0; n < 3; n++) receive_number(channel, n);
    assert_int_equal(wakes, 3);
    message = message_of(4);
    assert_int_equal(ls_channel_send(channel, message, NULL), LS_EAGAIN);
    ls_message_drop(message);
    receive_number(channel, 3);
    free_channel(channel);
}

TEST(one_capacity_per_generation)
{
    ls_shared *shared;
    ls_shared_object *first, *again;
    char before[LS_SHARED_WHERE_BYTES] = "";
    const size_t ten = 10, twenty = 20;
    assert_int_equal(ls_shared_open(&shared), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:1", NULL, &first, before), LS_OK);
    assert_string_equal(ls_channel_name(ls_channel_of(first)), "jobs");
    assert_int_equal(ls_channel_capacity(ls_channel_of(first)), LS_CHANNEL_CAPACITY);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:2", &ten, &again, before), LS_OK);
    assert_ptr_equal(first, again);
    assert_int_equal(ls_channel_capacity(ls_channel_of(first)), 10); /* given, before it was the default */
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:3", &ten, &again, before), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:4", NULL, &again, before), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:5", &twenty, &again, before), LS_EEXIST);
    ls_shared_next_generation(shared);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "a:2", &twenty, &again, before), LS_OK);
    assert_ptr_equal(first, again);
    assert_int_equal(ls_channel_capacity(ls_channel_of(first)), 20);
    assert_int_equal(ls_shared_get(shared, &ls_channel_kind, "jobs", "b:1", &ten, &again, before), LS_EEXIST);
    assert_string_equal(before, "a:2");
    ls_shared_close(shared);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 2000 };

/* Wait for the decision, or give up at once if `impatient`. false: forgotten. */
static bool decided(sleeper *s, ls_channel *channel, bool impatient)
{
    if (impatient && ls_channel_cancel(channel, &s->waiter)) return false;
    sleeper_wait(s);
    return true;
}

typedef struct worker {
    ls_thread thread;
    ls_channel *channel;
    unsigned number;
    unsigned long received[PRODUCERS]; /* messages by producer */
} worker;

static void produce(void *arg)
{
    const worker *w = arg;
    sleeper s;
    sleeper_open(&s);
    for (unsigned n = 0; n < EACH; n++) {
        ls_message *message = message_of(w->number);
        for (;;) {
            sleeper_prepare(&s);
            const int result = ls_channel_send(w->channel, message, &s.waiter);
            if (result == LS_OK) break;
            assert_int_equal(result, LS_CHANNEL_WAITS);
            if (decided(&s, w->channel, n % 3 == 0)) break;
            message = s.waiter.message; /* forgotten: again */
        }
    }
    sleeper_close(&s);
}

static void consume(void *arg)
{
    worker *w = arg;
    sleeper s;
    sleeper_open(&s);
    for (unsigned n = 0;; n++) {
        ls_message *message = NULL;
        sleeper_prepare(&s);
        int result = ls_channel_receive(w->channel, &s.waiter, &message);
        if (result == LS_CHANNEL_WAITS) {
            if (!decided(&s, w->channel, n % 3 == 0)) continue;
            result = s.waiter.result;
            message = s.waiter.message;
        }
        if (result == LS_ECLOSED) break;
        assert_int_equal(result, LS_OK);
        if (n % 5 == 0) {
            ls_channel_put_back(w->channel, message); /* as a task does whose state closes */
            continue;
        }
        w->received[number_of(message)]++;
        ls_message_drop(message);
    }
    sleeper_close(&s);
}

TEST(each_message_is_delivered_once)
{
    worker producers[PRODUCERS] = {{0}}, consumers[CONSUMERS] = {{0}};
    ls_channel *channel = open_channel(4);
    for (unsigned n = 0; n < CONSUMERS; n++) {
        consumers[n].channel = channel;
        assert_int_equal(ls_thread_start(&consumers[n].thread, "consumer", consume, &consumers[n]), LS_OK);
    }
    for (unsigned n = 0; n < PRODUCERS; n++) {
        producers[n].channel = channel;
        producers[n].number = n;
        assert_int_equal(ls_thread_start(&producers[n].thread, "producer", produce, &producers[n]), LS_OK);
    }
    for (unsigned n = 0; n < PRODUCERS; n++) ls_thread_join(&producers[n].thread);
    ls_channel_close(channel);
    for (unsigned n = 0; n < CONSUMERS; n++) ls_thread_join(&consumers[n].thread);
    /* A consumer may have put a message back after another one had seen the channel closed and empty. */
    unsigned long left[PRODUCERS] = {0};
    ls_message *message;
    while (ls_channel_receive(channel, NULL, &message) == LS_OK) {
        left[number_of(message)]++;
        ls_message_drop(message);
    }
    for (unsigned p = 0; p < PRODUCERS; p++) {
        unsigned long sum = left[p];
        for (unsigned n = 0; n < CONSUMERS; n++) sum += consumers[n].received[p];
        assert_int_equal(sum, EACH);
    }
    free_channel(channel);
}
