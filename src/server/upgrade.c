/* upgrade.c - see upgrade.h. */
#include "server/upgrade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/sd_notify.h"
#include "server/endpoint.h"

enum { STEP_MS = 50, SERVING_MS_MAX = 10000 };

int ls_upgrade_sockets_of(ls_node *endpoints, ls_upgrade_sockets *out)
{
    unsigned room = 1;
    size_t used = 0;
    for (const ls_node *node = endpoints->next; node != endpoints; node = node->next) room++;
    *out = (ls_upgrade_sockets){.at = calloc(room, sizeof *out->at), .names = calloc(room, LS_INHERITED_NAME_BYTES)};
    if (out->at == NULL || out->names == NULL) return LS_ENOMEM;
    for (ls_node *node = endpoints->next; node != endpoints; node = node->next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        const ls_fd fd = ls_endpoint_keep(e, e->kept);
        if (fd == LS_FD_NONE) continue;
        out->at[out->count++] = (intptr_t)fd;
        if (used > 0) out->names[used++] = ':';
        ls_endpoint_name(e, out->names + used);
        used += strlen(out->names + used);
    }
    return LS_OK;
}

typedef struct waiting {
    ls_successor *other;
    ls_upgrade_stops_fn *stops;
    void *user;
    char *why; /* receives the reason of a failure */
    size_t why_bytes;
} waiting;

/* Wait for the next message of the new process, ms_max from now. false: it has ended, or was ended. */
static bool expect(const waiting *w, uint32_t ms_max, char text[LS_SUCCESSOR_TEXT_BYTES])
{
    const uint64_t from_ns = ls_clock_ns();
    char how[80];
    int got;
    while ((got = ls_successor_receive(w->other, text, STEP_MS)) == LS_ETIMEDOUT) {
        const bool stops = w->stops(w->user);
        if (!stops && (ls_clock_ns() - from_ns) / 1000000u < ms_max) continue;
        ls_successor_end(w->other, how, sizeof how);
        (void)snprintf(w->why, w->why_bytes,
                       stops ? "the server stops" : "the new process did not serve within load_timeout (%.3g s)",
                       ms_max / 1e3);
        return false;
    }
    if (got > 0 && strncmp(text, "failed ", 7) != 0) return true;
    ls_successor_end(w->other, how, sizeof how);
    (void)snprintf(w->why, w->why_bytes, "%s%s",
                   got > 0 ? text + 7 : "the new process has ended before it served: ", got > 0 ? "" : how);
    return false;
}

static void write_memory(ls_successor *s, const ls_runtime *runtime)
{
    FILE *memory = ls_successor_memory(s, "w");
    const int err = memory != NULL ? ls_site_write_memory(runtime, memory) : LS_ENOMEM;
    if (memory != NULL) (void)fclose(memory);
    if (err < 0) ls_log(LS_LOG_WARN, "upgrade: not all entries of dicts are passed on: %s", ls_err_text(err));
}

int ls_upgrade_run(const ls_upgrade_sockets *sockets, const ls_runtime *runtime, uint32_t ms_max,
                   ls_upgrade_stops_fn *stops, void *user, char *message, size_t bytes)
{
    char text[LS_SUCCESSOR_TEXT_BYTES];
    ls_successor s;
    const waiting w = {&s, stops, user, message, bytes};
    message[0] = '\0';
    const int err = ls_successor_start(sockets->at, sockets->count, sockets->names, &s, message, bytes);
    if (err < 0) return err;
    ls_log(LS_LOG_INFO, "upgrade: process %d loads the site", s.pid);
    if (!expect(&w, ms_max, text)) return LS_ECLOSED;
    const bool waits = strncmp(text, "waits ", 6) == 0;
    write_memory(&s, runtime);
    ls_successor_is_main(&s, false);
    ls_successor_send(&s, "go");
    if (waits) { /* the end of this process closes the channel, which the new one waits for */
        (void)snprintf(message, bytes, "%s", text + 6);
        ls_log(LS_LOG_INFO, "upgrade: process %d serves when this one has ended, and with it the use of %s", s.pid,
               message);
        return LS_OK;
    }
    if (!expect(&w, SERVING_MS_MAX, text)) {
        ls_successor_is_main(&s, true);
        return LS_ECLOSED;
    }
    ls_successor_leave(&s);
    ls_log(LS_LOG_INFO, "upgrade: process %d serves", s.pid);
    return LS_OK;
}

/* ---- the new process ---------------------------------------------------------------------------------------- */

bool ls_upgrade_replaces(const ls_upgrade *u)
{
    return u->other.channel >= 0;
}

static void read_memory(ls_successor *other, const ls_runtime *runtime)
{
    unsigned entries = 0;
    FILE *memory = ls_successor_memory(other, "r");
    const int err = memory != NULL ? ls_site_read_memory(runtime, memory, &entries) : LS_ENOTSUP;
    if (memory != NULL) (void)fclose(memory);
    if (err == LS_ENOTSUP)
        ls_log(LS_LOG_WARN, "upgrade: the dicts of the other version are not known to this one, and begin empty");
    else
        ls_log(err < 0 ? LS_LOG_WARN : LS_LOG_INFO, "upgrade: took over %u entries of dicts%s%s", entries,
               err < 0 ? ", not all: " : "", err < 0 ? ls_err_text(err) : "");
}

const char *ls_upgrade_ready(ls_upgrade *u, const ls_runtime *runtime, ls_upgrade_stops_fn *stops, void *user)
{
    char text[LS_SUCCESSOR_TEXT_BYTES];
    int got = u->go ? 1 : LS_ETIMEDOUT;
    if (!ls_upgrade_replaces(u)) return NULL;
    if (!u->go) ls_successor_send(&u->other, "ready");
    while (got == LS_ETIMEDOUT && !stops(user)) got = ls_successor_receive(&u->other, text, STEP_MS);
    if (got > 0) {
        read_memory(&u->other, runtime);
        return NULL;
    }
    return got == 0 ? "the process that began it has ended, or given it up" : "this process stops";
}

void ls_upgrade_serves(ls_upgrade *u)
{
    ls_successor_send(&u->other, "serving");
    ls_successor_leave(&u->other);
}

void ls_upgrade_fail(const ls_upgrade *u, const char *why)
{
    char text[LS_SUCCESSOR_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "failed %s", why);
    ls_successor_send(&u->other, text);
}

bool ls_upgrade_file_busy(ls_upgrade *u, const char *path)
{
    char text[LS_SUCCESSOR_TEXT_BYTES];
    if (!ls_upgrade_replaces(u)) return false;
    if (!u->go) {
        (void)snprintf(text, sizeof text, "waits %s", path);
        ls_successor_send(&u->other, text);
        while (ls_successor_receive(&u->other, text, STEP_MS) == LS_ETIMEDOUT) continue;
        if (text[0] == '\0') return false; /* the upgrade was given up */
        u->go = true;
        ls_sd_tell("", "waits for %s", path);
    }
    /* When the other process has ended its file is free soon, or another one uses it. */
    if (u->busy_ns != 0 && ls_clock_ns() - u->busy_ns > SERVING_MS_MAX * UINT64_C(1000000)) return false;
    const bool ended = ls_successor_receive(&u->other, text, STEP_MS) == 0;
    if (ended && u->busy_ns == 0) u->busy_ns = ls_clock_ns();
    if (ended) ls_clock_sleep_ms(STEP_MS);
    return true;
}
