/* plan.c - from options to a plan: what was not said, what does not fit together, and the bytes of requests. */
#include "stress/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "port/port.h"
#include "proto/http_text.h"
#include "stress/options_internal.h"

enum { CONNECTIONS_DEFAULT = 10, THREADS_DEFAULT = 2, UDP_PAYLOAD_MAX = 65507, NUMBER_BYTES_MAX = 48 };
#define DURATION_DEFAULT_NS UINT64_C(10000000000)
#define REQUEST_BYTES_MAX   ((size_t)1 << 30)

void ls_why_set(ls_stress_why *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, why->bytes, format, args);
    va_end(args);
}

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static bool has_header(const ls_stress_plan *plan, const char *name)
{
    const size_t len = strlen(name);
    for (unsigned i = 0; i < plan->header_count; i++)
        if (ls_text_same(plan->headers[i], strcspn(plan->headers[i], ":"), name, len)) return true;
    return false;
}

/* Append to bytes[*at..room), or only count when there is no room yet. */
static void append(char *bytes, size_t room, size_t *at, const char *text, size_t len)
{
    if (bytes != NULL && *at + len <= room) memcpy(bytes + *at, text, len);
    *at += len;
}

static void put(char *bytes, size_t room, size_t *at, const char *text)
{
    append(bytes, room, at, text, strlen(text));
}

static size_t write_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                            size_t body_len, char *bytes, size_t room)
{
    char text[LS_TARGET_HOST_BYTES + 64];
    size_t at = 0;
    put(bytes, room, &at, method);
    put(bytes, room, &at, " ");
    put(bytes, room, &at, path);
    put(bytes, room, &at, " HTTP/1.1\r\n");
    if (!has_header(plan, "host")) {
        put(bytes, room, &at, "Host: ");
        put(bytes, room, &at, ls_stress_target_authority(&plan->target, text, sizeof text));
        put(bytes, room, &at, "\r\n");
    }
    for (unsigned i = 0; i < plan->header_count; i++) {
        put(bytes, room, &at, plan->headers[i]);
        put(bytes, room, &at, "\r\n");
    }
    if (!plan->config.keepalive && !has_header(plan, "connection")) put(bytes, room, &at, "Connection: close\r\n");
    if (body != NULL && !has_header(plan, "content-length")) {
        (void)snprintf(text, sizeof text, "Content-Length: %zu\r\n", body_len);
        put(bytes, room, &at, text);
    }
    put(bytes, room, &at, "\r\n");
    if (body != NULL) append(bytes, room, &at, body, body_len);
    return at;
}

char *ls_stress_plan_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                             size_t body_len, unsigned copies, size_t *len)
{
    *len = write_request(plan, method, path, body, body_len, NULL, 0);
    if (*len > REQUEST_BYTES_MAX / copies) return NULL;
    char *bytes = malloc(*len * copies);
    if (bytes == NULL) return NULL;
    (void)write_request(plan, method, path, body, body_len, bytes, *len);
    for (unsigned i = 1; i < copies; i++) memcpy(bytes + i * *len, bytes, *len);
    return bytes;
}

/* ---- what was not said, and what does not fit ---------------------------------------------------------------------- */

static int wrong(ls_stress_why *why, const char *text)
{
    ls_why_set(why, "%s", text);
    return LS_EINVAL;
}

static int finish_stages(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_config *config = &o->plan.config;
    unsigned most = 0;
    bool rates = false;
    for (unsigned i = 0; i < o->stage_count; i++) {
        if (o->stages[i].connections == 0) rates = true;
        if (o->stages[i].connections > most) most = o->stages[i].connections;
    }
    if (rates && most > 0) return wrong(why, "stages are of rates or of connections, not of both");
    if (most > 0 && o->rate_given) return wrong(why, "stages of connections are a closed loop, which has no --rate");
    if (o->duration_given) return wrong(why, "stages have durations of their own; leave --duration out");
    if (rates && o->plan.sends > 0) return wrong(why, "--sends is a closed loop, which has no stages of rates");
    config->stages = o->stages;
    config->stage_count = o->stage_count;
    config->open_loop = rates;
    const unsigned from = o->connections_given ? config->connections : most > 0 ? 1 : CONNECTIONS_DEFAULT;
    if (!o->connections_given) config->connections = CONNECTIONS_DEFAULT;
    if (most > 0) config->connections = most > from ? most : from;
    ls_stress_schedule_stages(&o->plan.schedule, config->rate, rates ? config->connections : from, o->stages,
                              o->stage_count);
    config->duration_ns = o->plan.schedule.duration_ns;
    if (config->duration_ns == 0) return wrong(why, "stages that take no time");
    if (rates && ls_stress_schedule_due_ns(&o->plan.schedule, 0) == UINT64_MAX)
        return wrong(why, "stages in which no request is due: all rates are 0");
    return LS_OK;
}

static int finish_load(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    ls_stress_config *config = &plan->config;
    if (plan->numbered && !o->connections_given && o->threads_given) {
        config->connections = config->threads;
        o->connections_given = true;
    }
    if (o->stage_count > 0) {
        int err = finish_stages(o, why);
        if (err < 0) return err;
    } else {
        config->open_loop = o->rate_given;
        if (!o->connections_given) config->connections = CONNECTIONS_DEFAULT;
        if (!o->duration_given && config->requests == 0 && plan->sends == 0) config->duration_ns = DURATION_DEFAULT_NS;
        if (config->open_loop && plan->sends > 0) return wrong(why, "--sends is a closed loop; --rate is an open one");
        ls_stress_schedule_constant(&plan->schedule, config->rate, config->connections, UINT64_MAX);
    }
    if (!o->threads_given) {
        const unsigned processors = ls_cpu_count();
        config->threads = processors < THREADS_DEFAULT ? processors : THREADS_DEFAULT;
        if (config->threads > config->connections) config->threads = config->connections;
    }
    if (!config->keepalive && config->pipeline > 1)
        return wrong(why, "--no-keepalive is a connection for each request; it has no --pipeline");
    if (plan->sends > 0 && config->requests > 0) return wrong(why, "--requests or --sends, not both");
    if (plan->sends > 0) config->requests = plan->sends * config->connections; /* what the reports show */
    if (config->threads > config->connections) {
        ls_why_set(why, "%u threads need at least as many connections, not %u", config->threads, config->connections);
        return LS_EINVAL;
    }
    config->backend = ls_port_backends();
    return LS_OK;
}

static int finish_http(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    if (plan->message != NULL || plan->sends > 0 || plan->show)
        return wrong(why, "--message, --sends and --show are for tcp, udp and unix targets; a request has --body");
    if (plan->method == NULL) plan->method = plan->body != NULL ? "POST" : "GET";
    plan->path = plan->target.path;
    plan->to_head = strcmp(plan->method, "HEAD") == 0;
    if (plan->mode != LS_PLAN_STATIC) return LS_OK;
    plan->request = ls_stress_plan_request(plan, plan->method, plan->path, plan->body, plan->body_len,
                                           plan->config.pipeline, &plan->request_len);
    if (plan->request == NULL) {
        ls_why_set(why, "not enough memory for the requests");
        return LS_ENOMEM;
    }
    return LS_OK;
}

static int finish_echo(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    const ls_stress_plan_expect *expect = &plan->expect;
    if (plan->method != NULL || plan->body != NULL || plan->header_count > 0)
        return wrong(why, "methods, headers and bodies are for http targets; a message is --message");
    if (expect->status_from > 0 || expect->has_length || expect->has_crc || expect->has_body)
        return wrong(why, "--expect-... is for http targets; echoes are compared anyway");
    if (plan->mode == LS_PLAN_SCENARIO) return LS_OK;
    if (plan->message == NULL) {
        plan->message = "hello";
        plan->message_len = 5;
    }
    if (plan->target.kind == LS_TARGET_UDP) {
        if (plan->config.pipeline > 1) return wrong(why, "datagrams have no order, and so no --pipeline");
        if (plan->message_len + (plan->numbered ? NUMBER_BYTES_MAX : 0) > UDP_PAYLOAD_MAX)
            return wrong(why, "the message is longer than a datagram (65507 bytes)");
    }
    const size_t copies = plan->config.pipeline;
    if ((plan->request = malloc(plan->message_len * copies)) == NULL) {
        ls_why_set(why, "not enough memory for the messages");
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < copies; i++)
        memcpy(plan->request + i * plan->message_len, plan->message, plan->message_len);
    return LS_OK;
}

int ls_stress_options_finish(ls_stress_options *o, char *text, size_t text_bytes)
{
    ls_stress_why why = {text, text_bytes};
    ls_stress_plan *plan = &o->plan;
    if (o->url == NULL)
        return wrong(&why, "the script names no target; give a URL, or target = \"http://...\" in its table");
    int err = ls_stress_target_parse(o->url, &plan->target, text, text_bytes);
    if (err < 0) return err;
    plan->config.target = o->url;
    plan->config.script = plan->script_path;
    if (plan->mode == LS_PLAN_SCRIPT && plan->target.kind != LS_TARGET_HTTP)
        return wrong(&why, "requests and wrk scripts are for http targets; tcp and udp have scenario");
    if (plan->mode == LS_PLAN_STATIC && plan->target.kind != LS_TARGET_HTTP) plan->mode = LS_PLAN_ECHO;
    if (plan->mode == LS_PLAN_SCENARIO && plan->config.pipeline > 1)
        return wrong(&why, "a scenario is one conversation; it has no --pipeline");
    if ((err = finish_load(o, &why)) < 0) return err;
    return plan->mode == LS_PLAN_STATIC || plan->mode == LS_PLAN_SCRIPT ? finish_http(o, &why) : finish_echo(o, &why);
}
