/* runtime.c - see runtime.h. */
#include "script/core/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os/memory.h"
#include "base/shared.h"
#include "script/core/generation.h"
#include "script/core/state.h"

/* Open what the next module has once per server. */
static int open_module(ls_runtime *runtime)
{
    const unsigned slot = runtime->module_count;
    const ls_module_common *common = runtime->modules[slot]->common;
    if (common != NULL) {
        if ((runtime->own[slot] = calloc(1, common->bytes + 1)) == NULL) return LS_ENOMEM;
        const int err = common->open != NULL ? common->open(runtime->own[slot]) : LS_OK;
        if (err < 0) {
            free(runtime->own[slot]);
            return err;
        }
    }
    runtime->module_count++;
    return LS_OK;
}

int ls_runtime_open(const ls_site_host *host, const ls_module *const *modules, unsigned module_count, ls_runtime **out)
{
    int err = LS_ENOMEM;
    const size_t bytes = sizeof(ls_runtime) + module_count * sizeof(void *), unit = _Alignof(ls_runtime);
    ls_runtime *runtime = ls_memory_aligned(unit, (bytes + unit - 1) / unit * unit);
    if (runtime == NULL) return err;
    memset((void *)runtime, 0, bytes);
    ls_mutex_open(&runtime->mutex);
    runtime->modules = modules;
    err = ls_shared_open(&runtime->shared);
    while (err == LS_OK && runtime->module_count < module_count) err = open_module(runtime);
    if (err < 0) {
        ls_runtime_close(runtime);
        return err;
    }
    runtime->host = host;
    runtime->load_cpu.joined = true; /* the watchdog does not check it, so it needs no thread */
    atomic_store(&runtime->cpu_ns_max, (uint64_t)LS_HANDLER_CPU_MS_MAX * 1000000);
    *out = runtime;
    return LS_OK;
}

int ls_runtime_watch(ls_runtime *runtime, unsigned count)
{
    ls_cpu_watch *cpus = ls_memory_aligned(_Alignof(ls_cpu_watch), count * sizeof *cpus);
    if (cpus == NULL) return LS_ENOMEM;
    memset((void *)cpus, 0, count * sizeof *cpus);
    const int err = ls_cpu_limit_install(ls_state_hook);
    if (err < 0) {
        ls_memory_aligned_free(cpus);
        return err;
    }
    runtime->cpus = cpus;
    runtime->cpu_count = count;
    return LS_OK;
}

void ls_runtime_close(ls_runtime *runtime)
{
    for (unsigned n = 0; n < runtime->cpu_count; n++) ls_cpu_limit_leave(&runtime->cpus[n]);
    if (runtime->cpus != NULL) ls_cpu_limit_uninstall();
    ls_memory_aligned_free(runtime->cpus);
    while (runtime->module_count > 0) {
        const unsigned slot = --runtime->module_count;
        const ls_module_common *common = runtime->modules[slot]->common;
        if (common != NULL && common->close != NULL) common->close(runtime->own[slot]);
        free(runtime->own[slot]);
    }
    if (runtime->shared != NULL) ls_shared_close(runtime->shared);
    ls_mutex_close(&runtime->mutex);
    ls_memory_aligned_free(runtime);
}

void ls_runtime_add(ls_runtime *runtime, ls_generation *generation)
{
    ls_mutex_lock(&runtime->mutex);
    generation->next = runtime->generations;
    runtime->generations = generation;
    ls_mutex_unlock(&runtime->mutex);
}

void ls_runtime_remove(ls_runtime *runtime, ls_generation *generation)
{
    ls_mutex_lock(&runtime->mutex);
    ls_generation **at = &runtime->generations;
    while (*at != NULL && *at != generation) at = &(*at)->next;
    if (*at != NULL) *at = generation->next;
    ls_mutex_unlock(&runtime->mutex);
}

void ls_runtime_each(ls_runtime *runtime, void (*fn)(ls_generation *generation, void *user), void *user)
{
    ls_mutex_lock(&runtime->mutex);
    for (ls_generation *g = runtime->generations; g != NULL; g = g->next) fn(g, user);
    ls_mutex_unlock(&runtime->mutex);
}

typedef struct states_sum {
    unsigned count, busy, long_lived, running[LS_SCOPES];
    double bytes;
} states_sum;

/* The tasks of a state, which may change meanwhile: a step is counted in `steps` before and after it is in `busy`. */
static unsigned tasks_of(const ls_state *state)
{
    const unsigned before = atomic_load(&state->steps), busy = atomic_load(&state->busy),
                   after = atomic_load(&state->steps), steps = before > after ? before : after;
    return busy > steps ? busy - steps : 0;
}

static void sum_states(ls_generation *generation, void *user)
{
    states_sum *sum = user;
    const unsigned count = atomic_load(&generation->state_count);
    for (unsigned n = 0; n < count; n++) {
        ls_state *state = atomic_load(&generation->states[n]);
        if (state == NULL || atomic_load(&state->closed)) continue;
        sum->count++;
        sum->busy += tasks_of(state);
        sum->long_lived += atomic_load_explicit(&state->long_lived, memory_order_relaxed);
        sum->bytes += (double)atomic_load_explicit(&state->bytes_live, memory_order_relaxed);
        ls_state_add_running(state, sum->running);
    }
}

void ls_runtime_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    states_sum sum = {0};
    ls_runtime_each(runtime, sum_states, &sum);
    each(to, "lua_states", sum.count);
    each(to, "lua_bytes", sum.bytes);
    each(to, "tasks", sum.busy);
    ls_scope_each(sum.running, each, to);
    each(to, "websockets", sum.long_lived);
    for (unsigned slot = 0; slot < runtime->module_count; slot++) {
        const ls_module_common *common = runtime->modules[slot]->common;
        if (common != NULL && common->stats != NULL) common->stats(runtime, each, to);
    }
    if (runtime->host != NULL && runtime->host->stats != NULL) runtime->host->stats(runtime->host->server, each, to);
}

/* End the run of this CPU watch if it has used more than ns_max; `end`: in any case. Returns the processor time of the
 * run in ns since the first check. */
static uint64_t check(ls_cpu_watch *cpu, uint64_t ns_max, bool end)
{
    const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_acquire);
    if (run == 0) return 0;
    const uint64_t now = ls_cpu_limit_cpu_ns(cpu);
    if (now == 0) return 0; /* not available at this time */
    if (cpu->seen_run != run) {
        cpu->seen_run = run;
        cpu->seen_ns = now;
        if (!end) return 0;
    }
    const uint64_t used = atomic_load_explicit(&cpu->before_ns, memory_order_relaxed) + (now - cpu->seen_ns);
    atomic_store_explicit(&cpu->used_ns, used, memory_order_relaxed);
    atomic_store_explicit(&cpu->used_run, run, memory_order_release);
    if (used > ns_max || end) {
        atomic_store_explicit(&cpu->end_run, run, memory_order_release);
        ls_cpu_limit_send(cpu);
    }
    return now - cpu->seen_ns;
}

uint64_t ls_runtime_on_stall(ls_thread_ctx *ctx, uint32_t ms, void *user)
{
    ls_runtime *runtime = user;
    if (runtime->cpus == NULL) return 0;
    ls_cpu_watch *cpu = &runtime->cpus[ctx->index];
    const unsigned looks = atomic_load_explicit(&runtime->looks, memory_order_relaxed);
    const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_acquire);
    if (cpu->looked != looks && run != 0) {
        cpu->looked = looks;
        atomic_store_explicit(&cpu->look_run, run, memory_order_release);
        ls_cpu_limit_send(cpu);
    }
    return check(cpu, atomic_load_explicit(&runtime->cpu_ns_max, memory_order_relaxed), false);
}

void ls_runtime_on_thread_end(ls_thread_ctx *ctx, void *user)
{
    const ls_runtime *runtime = user;
    if (runtime->cpus != NULL) ls_cpu_limit_leave(&runtime->cpus[ctx->index]);
}

int ls_runtime_load_begin(ls_runtime *runtime)
{
    const int err = ls_cpu_limit_install(ls_state_hook); /* at the first load no worker needs it yet */
    if (err < 0) return err;
    runtime->load_from_ns = ls_clock_ns();
    atomic_store(&runtime->load_ns_max, (uint64_t)LS_LOAD_MS_MAX * 1000000);
    atomic_store(&runtime->load_cpu_ns_max, atomic_load(&runtime->cpu_ns_max));
    ls_cpu_limit_join(&runtime->load_cpu);
    return LS_OK;
}

void ls_runtime_limit_load(ls_runtime *runtime, uint32_t cpu_ms_max, uint32_t ms_max)
{
    if (cpu_ms_max > 0) atomic_store(&runtime->load_cpu_ns_max, (uint64_t)cpu_ms_max * 1000000);
    if (ms_max > 0) atomic_store(&runtime->load_ns_max, (uint64_t)ms_max * 1000000);
}

void ls_runtime_on_load(ls_runtime *runtime, bool end)
{
    const bool late = ls_clock_ns() - runtime->load_from_ns > atomic_load(&runtime->load_ns_max);
    (void)check(&runtime->load_cpu, atomic_load(&runtime->load_cpu_ns_max), end || late);
}

void ls_runtime_load_end(ls_runtime *runtime)
{
    ls_cpu_limit_leave(&runtime->load_cpu);
    runtime->load_cpu.joined = true; /* as before: others that use it are not checked */
    ls_cpu_limit_uninstall();
}
