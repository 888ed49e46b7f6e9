/* test_actor.c - one thread at a time, in order, every op once, no op lost, no recursion. */
#include "port/port_fixture.h"

#include "base/os/thread.h"
#include "sched/actor.h"

enum { OPS = 3 * LS_ACTOR_RUN_MAX + 7 };

typedef struct script { /* an op that records when it ran, and may post another */
    ls_op op;
    int ran_as;
    ls_actor *was_inside;
    struct script *then; /* post this one to `then_to` */
    ls_actor *then_to;
} script;

static int runs;

static void script_run(ls_thread_ctx *ctx, ls_op *op)
{
    script *s = LS_CONTAINER(op, script, op);
    s->ran_as = ++runs;
    s->was_inside = ctx->inside;
    if (s->then != NULL) ls_actor_post(s->then_to, ctx, &s->then->op);
}

static void scripts_init(script *scripts, int count)
{
    runs = 0;
    memset(scripts, 0, (size_t)count * sizeof *scripts);
    for (int i = 0; i < count; i++) scripts[i].op.done = script_run;
}

TEST_IN(net_place, place, a_free_actor_runs_the_op_immediately)
{
    ls_actor actor;
    script s;
    ls_actor_init(&actor);
    scripts_init(&s, 1);
    ls_actor_post(&actor, &place->ctx, &s.op);
    assert_int_equal(s.ran_as, 1);
    assert_ptr_equal(s.was_inside, &actor);
    assert_null(place->ctx.inside);
}

TEST_IN(net_place, place, ops_posted_from_inside_run_before_the_actor_is_left)
{
    ls_actor actor;
    script s[2];
    ls_actor_init(&actor);
    scripts_init(s, 2);
    assert_true(ls_actor_try_enter(&actor, &place->ctx));
    assert_false(ls_actor_try_enter(&actor, &place->ctx));
    ls_actor_post(&actor, &place->ctx, &s[0].op);
    ls_actor_post(&actor, &place->ctx, &s[1].op);
    assert_int_equal(runs, 0);
    ls_actor_leave(&actor, &place->ctx);
    assert_int_equal(s[0].ran_as, 1);
    assert_int_equal(s[1].ran_as, 2);
}

TEST_IN(net_place, place, a_thread_inside_one_actor_posts_one_wakeup_for_another)
{
    ls_actor here, there;
    script s[2];
    ls_actor_init(&here);
    ls_actor_init(&there);
    scripts_init(s, 2);
    assert_true(ls_actor_try_enter(&here, &place->ctx));
    assert_false(ls_actor_try_enter(&there, &place->ctx));
    ls_actor_post(&there, &place->ctx, &s[0].op);
    ls_actor_post(&there, &place->ctx, &s[1].op);
    ls_actor_leave(&here, &place->ctx);
    assert_int_equal(runs, 0);
    ls_packet packet = net_next(place);
    net_quiet(place, 0); /* one wake-up for both */
    ls_packet_dispatch(&place->ctx, &packet);
    assert_int_equal(s[0].ran_as, 1);
    assert_int_equal(s[1].ran_as, 2);
    assert_ptr_equal(s[0].was_inside, &there);
    ls_actor_post(&there, &place->ctx, &s[0].op); /* the wake-up was taken, and the actor is free again */
    assert_int_equal(s[0].ran_as, 3);
}

/* Without a context: inside the actor the op runs when it is left, else a wake-up is posted. */
TEST_IN(net_place, place, a_post_without_a_context)
{
    ls_actor actor;
    script s[3];
    ls_actor_init(&actor);
    scripts_init(s, 3);
    assert_true(ls_actor_try_enter(&actor, &place->ctx));
    ls_actor_post_later(&actor, place->port, &s[0].op);
    assert_int_equal(runs, 0);
    ls_actor_leave(&actor, &place->ctx);
    assert_int_equal(s[0].ran_as, 1);
    net_quiet(place, 0);
    ls_actor_post_later(&actor, place->port, &s[1].op);
    ls_actor_post_later(&actor, place->port, &s[2].op);
    assert_int_equal(runs, 1);
    ls_packet packet = net_next(place);
    net_quiet(place, 0); /* one wake-up for both */
    ls_packet_dispatch(&place->ctx, &packet);
    assert_int_equal(s[1].ran_as, 2);
    assert_int_equal(s[2].ran_as, 3);
    assert_ptr_equal(s[2].was_inside, &actor);
}

TEST_IN(net_place, place, packets_go_to_their_actor_or_run_freely)
{
    ls_actor actor;
    script s[2];
    ls_actor_init(&actor);
    scripts_init(s, 2);
    s[1].op.actor = &actor;
    ls_packet_dispatch(&place->ctx, &(ls_packet){.op = &s[0].op});
    assert_null(s[0].was_inside);
    ls_packet_dispatch(&place->ctx, &(ls_packet){.op = &s[1].op});
    assert_ptr_equal(s[1].was_inside, &actor);
}

TEST_IN(net_place, place, a_long_inbox_is_drained_in_runs_and_in_order)
{
    static script s[OPS];
    ls_actor actor;
    ls_actor_init(&actor);
    scripts_init(s, OPS);
    assert_true(ls_actor_try_enter(&actor, &place->ctx));
    for (int i = 0; i < OPS - 1; i++) ls_actor_post(&actor, &place->ctx, &s[i].op);
    ls_actor_leave(&actor, &place->ctx);
    assert_int_equal(runs, LS_ACTOR_RUN_MAX);
    ls_actor_post(&actor, &place->ctx, &s[OPS - 1].op); /* the actor is free, but these ops are ahead */
    while (runs < OPS) {
        ls_packet packet = net_next(place);
        ls_packet_dispatch(&place->ctx, &packet);
    }
    for (int i = 0; i < OPS; i++) assert_int_equal(s[i].ran_as, i + 1);
    ls_packet packet;
    while (ls_port_wait(place->port, &place->ctx, &packet, 1, 0) == 1) ls_packet_dispatch(&place->ctx, &packet);
    assert_int_equal(runs, OPS);
}

static int rally_left;
static char *stack_low, *stack_high;

typedef struct ball {
    ls_op op;
    ls_actor *to;
} ball;

static void ball_hit(ls_thread_ctx *ctx, ls_op *op)
{
    char here;
    ball *b = LS_CONTAINER(op, ball, op);
    ls_actor *from = ctx->inside;
    if (stack_low == NULL || &here < stack_low) stack_low = &here;
    if (&here > stack_high) stack_high = &here;
    if (rally_left-- == 0) return;
    ls_actor *to = b->to;
    b->to = from;
    ls_actor_post(to, ctx, op);
}

TEST(two_actors_that_post_to_each_other_do_not_recurse)
{
    net_place place;
    ls_actor a, b;
    for (int same = 0; same <= 1; same++) { /* to another, and to itself */
        net_place_open(&place);
        ls_actor_init(&a);
        ls_actor_init(&b);
        ball one = {.op = {.done = ball_hit}, .to = same ? &a : &b};
        stack_low = stack_high = NULL;
        rally_left = 100000;
        ls_actor_post(&a, &place.ctx, &one.op);
        while (rally_left >= 0) {
            ls_packet packet = net_next(&place);
            ls_packet_dispatch(&place.ctx, &packet);
        }
        assert_true(stack_high - stack_low < 4096);
        net_place_close(&place);
    }
}

/* ---- threads: the counters are not atomic, so a second thread inside is a race that the sanitizer reports ------ */

enum { POSTERS = 4, ACTORS = 3, POSTS = 6000 };

typedef struct crowd_op {
    ls_op op;
    int poster, number, to, hops;
} crowd_op;

static struct crowd {
    net_place *place;
    ls_actor actors[ACTORS];
    int last[ACTORS][POSTERS];
    int count[ACTORS];
    _Atomic int left, out_of_order;
    crowd_op ops[POSTERS][POSTS];
} crowd;

static void crowd_run(ls_thread_ctx *ctx, ls_op *op)
{
    crowd_op *o = LS_CONTAINER(op, crowd_op, op);
    if (ctx->inside != &crowd.actors[o->to]) abort();
    crowd.count[o->to]++;
    if (o->hops == 0) {
        if (crowd.last[o->to][o->poster] >= o->number) atomic_fetch_add(&crowd.out_of_order, 1);
        crowd.last[o->to][o->poster] = o->number;
    }
    if (o->hops++ < o->number % 3) { /* on to another actor, from inside: by a wake-up */
        o->to = (o->to + 1) % ACTORS;
        ls_actor_post(&crowd.actors[o->to], ctx, op);
        return;
    }
    atomic_fetch_sub(&crowd.left, 1);
}

static void crowd_main(void *arg)
{
    const int me = (int)(intptr_t)arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(crowd.place, &ctx, (unsigned)me);
    for (int i = 0; i < POSTS || atomic_load(&crowd.left) > 0; i++) {
        if (i < POSTS) {
            crowd_op *o = &crowd.ops[me][i];
            *o = (crowd_op){.op = {.done = crowd_run}, .poster = me, .number = i, .to = i % ACTORS};
            ls_actor_post(&crowd.actors[o->to], &ctx, &o->op);
            if (i % 16 != 0) continue;
        }
        const int n = ls_port_wait(crowd.place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, i < POSTS ? 0 : 2);
        for (int k = 0; k < n; k++) ls_packet_dispatch(&ctx, &packets[k]);
    }
    ls_pool_close(ctx.pool);
}

TEST_IN(net_place, place, a_crowd_of_threads_runs_every_op_once_alone_and_in_order)
{
    ls_thread threads[POSTERS];
    int hops = 0, count = 0;
    crowd.place = place;
    atomic_store(&crowd.left, POSTERS * POSTS);
    for (int i = 0; i < ACTORS; i++) {
        ls_actor_init(&crowd.actors[i]);
        for (int k = 0; k < POSTERS; k++) crowd.last[i][k] = -1;
    }
    for (intptr_t i = 0; i < POSTERS; i++)
        assert_int_equal(ls_thread_start(&threads[i], "crowd", crowd_main, (void *)i), LS_OK);
    for (int i = 0; i < POSTERS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(atomic_load(&crowd.left), 0);
    assert_int_equal(atomic_load(&crowd.out_of_order), 0);
    for (int i = 0; i < POSTS; i++) hops += 1 + i % 3;
    for (int i = 0; i < ACTORS; i++) count += crowd.count[i];
    assert_int_equal(count, POSTERS * hops);
    ls_packet packet;
    while (ls_port_wait(place->port, &place->ctx, &packet, 1, 0) == 1) ls_packet_dispatch(&place->ctx, &packet);
}
