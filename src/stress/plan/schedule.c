/* schedule.c - see schedule.h. */
#include "stress/plan/schedule.h"

#include <math.h>

static void add(ls_stress_schedule *s, uint64_t length_ns, double rate_from, double rate_to, double from, double to)
{
    ls_stress_schedule_stage *stage = &s->stages[s->count++];
    *stage = (ls_stress_schedule_stage){
        .from_s = (double)s->duration_ns / 1e9,
        .length_s = (double)length_ns / 1e9,
        .rate_from = rate_from,
        .rate_to = rate_to,
        .connections_from = from,
        .connections_to = to,
    };
    stage->count = (rate_from + rate_to) / 2 * stage->length_s;
    if (s->count > 1) stage->count_from = stage[-1].count_from + stage[-1].count;
    s->duration_ns = length_ns > UINT64_MAX - s->duration_ns ? UINT64_MAX : s->duration_ns + length_ns;
}

void ls_stress_schedule_constant(ls_stress_schedule *s, double rate, unsigned connections, uint64_t duration_ns)
{
    s->count = 0;
    s->duration_ns = 0;
    add(s, duration_ns, rate, rate, connections, connections);
}

void ls_stress_schedule_stages(ls_stress_schedule *s, double rate, unsigned connections, const ls_stress_stage *stages,
                               size_t count)
{
    double now = connections;
    s->count = 0;
    s->duration_ns = 0;
    for (size_t i = 0; i < count && i < LS_STRESS_STAGES_MAX; i++) {
        const double to = stages[i].connections > 0 ? stages[i].connections : now;
        add(s, stages[i].duration_ns, rate, stages[i].rate, now, to);
        rate = stages[i].rate;
        now = to;
    }
}

/* The time in seconds after which n more requests of the stage are due. This form of the root does not subtract
 * numbers of similar size. */
static double within(const ls_stress_schedule_stage *stage, double n)
{
    const double a = stage->rate_from, slope = (stage->rate_to - stage->rate_from) / stage->length_s;
    const double root = a * a + 2 * slope * n;
    return 2 * n / (a + sqrt(root > 0 ? root : 0));
}

uint64_t ls_stress_schedule_due_ns(const ls_stress_schedule *s, uint64_t k)
{
    const double n = (double)k;
    for (unsigned i = 0; i < s->count; i++) {
        const ls_stress_schedule_stage *stage = &s->stages[i];
        if (n >= stage->count_from + stage->count) continue;
        if (n <= stage->count_from && stage->rate_from > 0) return (uint64_t)(stage->from_s * 1e9);
        double at_s = stage->from_s + (n > stage->count_from ? within(stage, n - stage->count_from) : 0);
        return (uint64_t)llround(at_s * 1e9);
    }
    return UINT64_MAX;
}

unsigned ls_stress_schedule_connections(const ls_stress_schedule *s, uint64_t at_ns)
{
    const double at_s = (double)at_ns / 1e9;
    const ls_stress_schedule_stage *stage = &s->stages[0];
    for (unsigned i = 1; i < s->count && at_s >= s->stages[i].from_s; i++) stage = &s->stages[i];
    if (stage->connections_from == stage->connections_to || stage->length_s <= 0)
        return (unsigned)stage->connections_to;
    double share = (at_s - stage->from_s) / stage->length_s;
    if (share > 1) share = 1;
    return (unsigned)lround(stage->connections_from + share * (stage->connections_to - stage->connections_from));
}
