/* options_finish.c - defaults of omitted options, and checks of the combination of all options. See options.h. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/thread.h"
#include "port/port.h"
#include "proto/http_text.h"
#include "stress/deflate.h"
#include "stress/delivery.h"
#include "stress/echo.h"
#include "stress/options_internal.h"
#include "stress/strbuf.h"
#include "stress/ws.h"

enum { FANOUT_BYTES_DEFAULT = 64, CONNECTIONS_DEFAULT = 10, THREADS_DEFAULT = 2, UDP_PAYLOAD_MAX = 65507 };
#define DURATION_DEFAULT_NS UINT64_C(10000000000)

static int invalid(ls_stress_why *why, const char *text)
{
    ls_stress_why_set(why, "%s", text);
    return LS_EINVAL;
}

static bool has_expectation(const ls_stress_plan_expect *expect)
{
    return expect->status_from > 0 || expect->has_length || expect->has_crc || expect->has_body;
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
    if (rates && most > 0) return invalid(why, "--stages: use rates or connections, not both");
    if (most > 0 && o->rate_given) return invalid(why, "--stages with connections is a closed loop; remove --rate");
    if (o->duration_given) return invalid(why, "--stages defines the duration; remove --duration");
    if (rates && o->plan.sends > 0)
        return invalid(why, "--sends is a closed loop; --stages must use connections, not rates");
    config->stages = o->stages;
    config->stage_count = o->stage_count;
    config->open_loop = rates;
    const unsigned from = o->connections_given ? config->connections : most > 0 ? 1 : CONNECTIONS_DEFAULT;
    if (!o->connections_given) config->connections = CONNECTIONS_DEFAULT;
    if (most > 0) config->connections = most > from ? most : from;
    ls_stress_schedule_stages(&o->plan.schedule, config->rate, rates ? config->connections : from, o->stages,
                              o->stage_count);
    config->duration_ns = o->plan.schedule.duration_ns;
    if (config->duration_ns == 0) return invalid(why, "--stages: the total time is 0");
    if (rates && ls_stress_schedule_due_ns(&o->plan.schedule, 0) == UINT64_MAX)
        return invalid(why, "--stages: no request is due, because all rates are 0");
    return LS_OK;
}

static int finish_load(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    ls_stress_config *config = &plan->config;
    if (o->cycles > 0) plan->sends = o->cycles;
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
        if (config->open_loop && plan->sends > 0)
            return invalid(why, "--sends is a closed loop and --rate an open one; remove one of them");
        ls_stress_schedule_constant(&plan->schedule, config->rate, config->connections, UINT64_MAX);
    }
    if (!o->threads_given) {
        const unsigned processors = ls_cpu_count();
        config->threads = processors < THREADS_DEFAULT ? processors : THREADS_DEFAULT;
        if (config->threads > config->connections) config->threads = config->connections;
    }
    if (!config->keepalive && config->pipeline > 1)
        return invalid(why, "--no-keepalive sends one request per connection; remove --pipeline");
    if (plan->sends > 0 && config->requests > 0)
        return invalid(why, "--requests and --sends exclude each other; remove one of them");
    if (plan->sends > 0) config->requests = plan->sends * config->connections; /* the number in the reports */
    if (config->threads > config->connections) {
        ls_stress_why_set(why, "%u threads need at least as many connections (-c), not %u", config->threads,
                          config->connections);
        return LS_EINVAL;
    }
    config->backend = ls_port_backends();
    return LS_OK;
}

static int finish_tls(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    char reason[LS_STRESS_WHY_BYTES / 2];
    if (!plan->target.tls) {
        if (o->insecure || o->ca != NULL || o->cert != NULL || o->key != NULL || o->tls_resume_given)
            return invalid(why, "--insecure, --ca, --cert, --key and --tls-resume are for https and wss targets");
        plan->config.tls_resume = false;
        return LS_OK;
    }
    if (o->insecure && o->ca != NULL) return invalid(why, "--insecure accepts any certificate; remove it or --ca");
    if (o->key != NULL && o->cert == NULL) return invalid(why, "--key without --cert: give the certificate as well");
    const ls_tls_cert cert = {.cert = o->cert, .key = o->key};
    const ls_tls_options options = {.certs = &cert,
                                    .cert_count = o->cert != NULL,
                                    .ca = o->ca,
                                    .insecure = o->insecure,
                                    .alpn = "http/1.1",
                                    .no_resumption = !plan->config.tls_resume};
    plan->config.tls = true;
    const int err = ls_tls_open(&options, &plan->tls, reason, sizeof reason);
    if (err < 0) ls_stress_why_set(why, "%s", reason[0] != '\0' ? reason : ls_err_text(err));
    return err == LS_OK || err == LS_ENOMEM ? err : LS_EINVAL;
}

static int finish_http(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    if (plan->message != NULL || o->size > 0 || plan->sends > 0 || plan->show)
        return invalid(
            why, "--message, --size, --sends and --show are for ws, tcp, udp and unix targets; use --body for http");
    if (plan->method == NULL) plan->method = plan->body != NULL ? "POST" : "GET";
    plan->path = plan->target.path;
    plan->is_head = strcmp(plan->method, "HEAD") == 0;
    if (plan->mode != LS_STRESS_PLAN_STATIC) return LS_OK;
    plan->request = ls_stress_plan_request(plan, plan->method, plan->path, plan->body, plan->body_len,
                                           plan->config.pipeline, &plan->request_len);
    if (plan->request == NULL) {
        ls_stress_why_set(why, "not enough memory for the requests");
        return LS_ENOMEM;
    }
    return LS_OK;
}

/* Words in an irregular order, as a compressor finds in messages of people; the same in each run. */
static void write_words(char *to, size_t len)
{
    static const char *const words[] = {"river", "paper", "seven", "green", "never", "light", "house", "water",
                                        "about", "small", "table", "under", "story", "every", "music", "north"};
    uint32_t random = 1;
    for (size_t at = 0; at < len;) {
        random = random * 1664525u + 1013904223u; /* Knuth, The Art of Computer Programming, 3.3.4 */
        const char *word = words[random >> 28];
        for (size_t i = 0; i < strlen(word) && at < len; i++) to[at++] = word[i];
        if (at < len) to[at++] = ' ';
    }
}

/* The message behind `head_bytes` that come with it: --message, or words up to --size or `size_default` bytes in
 * all. */
static int finish_message(ls_stress_options *o, size_t head_bytes, size_t size_default, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    if (plan->message != NULL && o->size > 0)
        return invalid(why, "--message and --size exclude each other; remove one of them");
    if (plan->message == NULL) {
        const size_t size = o->size > 0 ? o->size : size_default;
        if (size < head_bytes) {
            ls_stress_why_set(why,
                              "--size %zu: a message of --fanout has at least %zu bytes: its number and its times",
                              size, head_bytes);
            return LS_EINVAL;
        }
        plan->message_len = size - head_bytes;
        char *text = malloc(plan->message_len + 1);
        if (text != NULL) write_words(text, plan->message_len);
        plan->message = text != NULL ? ls_stress_options_keep(o, text, plan->message_len) : NULL;
        free(text);
        if (plan->message == NULL) {
            ls_stress_why_set(why, "not enough memory for a message of %zu bytes", size);
            return LS_ENOMEM;
        }
    }
    plan->config.message_bytes = head_bytes + plan->message_len;
    return LS_OK;
}

/* config.pipeline copies of a message in a row, in allocated memory: as frames if `opcode` is not 0. NULL: out of
 * memory. */
static char *copies_of(const ls_stress_plan *plan, int opcode, bool compressed, const char *message, size_t len,
                       size_t *one)
{
    const size_t copies = plan->config.pipeline, room = opcode != 0 ? ls_stress_ws_frame_bytes(len) : len;
    char *all = room <= SIZE_MAX / copies ? malloc(room * copies) : NULL;
    if (all == NULL) return NULL;
    *one = len;
    if (opcode != 0)
        *one = ls_stress_ws_frame((enum ls_ws_opcode)opcode, compressed, message, len, all);
    else
        memcpy(all, message, len);
    for (size_t i = 1; i < copies; i++) memcpy(all + i * *one, all, *one);
    return all;
}

/* The messages of an echo; for a WebSocket as frames, with --compress also compressed. */
static int finish_request(ls_stress_plan *plan, ls_stress_why *why)
{
    const int opcode = plan->target.kind != LS_STRESS_TARGET_WS ? 0 : plan->ws.binary ? LS_WS_BINARY : LS_WS_TEXT;
    char *packed = NULL;
    size_t packed_len;
    int err = LS_EAGAIN;
    plan->request = copies_of(plan, opcode, false, plan->message, plan->message_len, &plan->request_len);
    if (plan->ws.compress && plan->request != NULL)
        err = ls_stress_deflate_once(plan->message, plan->message_len, &packed, &packed_len);
    if (err == LS_OK) plan->packed = copies_of(plan, opcode, true, packed, packed_len, &plan->packed_len);
    free(packed);
    if (plan->request != NULL && (err == LS_EAGAIN || plan->packed != NULL)) return LS_OK;
    ls_stress_why_set(why, "not enough memory for the messages");
    return LS_ENOMEM;
}

static int finish_echo(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    if (plan->method != NULL || plan->body != NULL)
        return invalid(why, "--method and --body are for http targets; use --message");
    if (plan->header_count > 0 && plan->target.kind != LS_STRESS_TARGET_WS &&
        plan->target.kind != LS_STRESS_TARGET_HTTP)
        return invalid(why, "--header is for http and ws targets; use --message");
    if (has_expectation(&plan->expect))
        return invalid(why, "--expect-... is for http targets; echoes are always compared");
    if (plan->mode == LS_STRESS_PLAN_SCENARIO) return LS_OK;
    if (plan->message == NULL && o->size == 0) {
        plan->message = "hello";
        plan->message_len = 5;
    }
    int err = finish_message(o, 0, 0, why);
    if (err < 0) return err;
    if (plan->target.kind == LS_STRESS_TARGET_UDP) {
        if (plan->config.pipeline > 1) return invalid(why, "datagrams have no order; remove --pipeline");
        if (plan->message_len + (plan->numbered ? LS_STRESS_ECHO_NUMBER_BYTES_MAX : 0) > UDP_PAYLOAD_MAX)
            return invalid(why, "the message exceeds the size of a datagram (65507 bytes)");
    }
    return finish_request(plan, why);
}

static bool is_header(const char *line, const char *name)
{
    return ls_text_same(line, strcspn(line, ":"), name, strlen(name));
}

/* The value of Host, and the other headers as lines. */
static int finish_fields(ls_stress_options *o, const char **host, const char **fields, ls_stress_why *why)
{
    static const char *const ours[] = {"connection",
                                       "upgrade",
                                       "sec-websocket-key",
                                       "sec-websocket-version",
                                       "sec-websocket-extensions",
                                       "sec-websocket-protocol",
                                       "content-length"};
    const ls_stress_plan *plan = &o->plan;
    char authority[LS_STRESS_TARGET_HOST_BYTES + 16];
    ls_strbuf lines = {0};
    *host = NULL;
    for (unsigned i = 0; i < plan->header_count; i++) {
        const char *line = plan->headers[i];
        for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++) {
            if (!is_header(line, ours[k])) continue;
            ls_strbuf_close(&lines);
            ls_stress_why_set(why, "--header \"%s\": the handshake of WebSocket sets this field%s", line,
                              is_header(line, "sec-websocket-protocol") ? "; use --protocol" : "");
            return LS_EINVAL;
        }
        if (is_header(line, "host")) {
            line = strchr(line, ':') + 1;
            *host = line + strspn(line, " \t");
        } else {
            ls_strbuf_format(&lines, "%s\r\n", line);
        }
    }
    if (*host == NULL) {
        ls_stress_target_authority(&plan->target, authority, sizeof authority);
        *host = ls_stress_options_keep(o, authority, strlen(authority));
    }
    *fields = ls_stress_options_keep(o, lines.bytes != NULL ? lines.bytes : "", lines.len);
    const bool failed = lines.failed || *host == NULL || *fields == NULL;
    ls_strbuf_close(&lines);
    if (failed) ls_stress_why_set(why, "not enough memory");
    return failed ? LS_ENOMEM : LS_OK;
}

static int finish_ws(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    ls_ws_request *request = &plan->ws.request;
    const bool by_script =
        plan->mode == LS_STRESS_PLAN_SCENARIO && plan->target.kind == LS_STRESS_TARGET_HTTP; /* vu:ws */
    if (plan->target.kind != LS_STRESS_TARGET_WS && !by_script) {
        if (plan->ws.binary || plan->ws.compress || o->text_given || plan->ws.protocol_count > 0)
            return invalid(why, "--text, --binary, --compress and --protocol are for ws and wss targets");
        return LS_OK;
    }
    if (plan->ws.binary && o->text_given)
        return invalid(why, "--text and --binary exclude each other; remove one of them");
    if (plan->ws.compress && ls_ws_deflate_library() == NULL)
        return invalid(why, "--compress needs zlib, and this luaserve was built without it");
    plan->config.websocket = true;
    if (plan->ws.compress) {
        char offer[LS_WS_DEFLATE_TEXT_MAX];
        const size_t len = ls_ws_deflate_offer(&ls_stress_deflate_options, offer);
        if ((request->extensions = ls_stress_options_keep(o, offer, len)) == NULL) {
            ls_stress_why_set(why, "not enough memory");
            return LS_ENOMEM;
        }
    }
    request->target = plan->target.path;
    request->protocols = (ls_ws_names){plan->ws.protocols, plan->ws.protocol_count};
    return finish_fields(o, &request->host, &request->fields, why);
}

static int finish_fanout(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    ls_stress_config *config = &plan->config;
    const bool is_ws = plan->target.kind == LS_STRESS_TARGET_WS, is_http = plan->target.kind == LS_STRESS_TARGET_HTTP;
    if (plan->script_path != NULL) return invalid(why, "--fanout does not run a script; remove one of them");
    if (!is_ws && !is_http)
        return invalid(why, "--fanout needs a ws or wss target, or an http or https target with --sse");
    if (is_http && !config->sse)
        return invalid(why, "--fanout with an http or https target needs --sse; or use a ws or wss target");
    if (is_ws && config->sse) return invalid(why, "--sse needs an http or https target, not ws or wss");
    if (config->sse && plan->subscribe != NULL)
        return invalid(why, "--subscribe sends a message on a WebSocket; with --sse use the path of the URL");
    if (plan->method != NULL || plan->body != NULL)
        return invalid(why, "--fanout makes its requests itself; remove --method and --body");
    if (plan->sends > 0 || plan->show) return invalid(why, "--fanout excludes --sends and --show");
    if (!config->keepalive) return invalid(why, "--fanout keeps its connections; remove --no-keepalive");
    if (has_expectation(&plan->expect))
        return invalid(why, "--fanout compares its deliveries itself; remove --expect-...");
    for (unsigned i = 0; i < o->stage_count; i++)
        if (o->stages[i].connections > 0) return invalid(why, "--fanout with --stages: use rates, not connections");
    if (config->publishers == 0) config->publishers = config->topics > 0 ? config->topics : 1;
    if (config->topics == 0) config->topics = 1;
    if (config->topics > config->publishers || config->topics > config->connections) {
        ls_stress_why_set(why, "%u topics need at least as many publishers and connections, not %u and %u",
                          config->topics, config->publishers, config->connections);
        return LS_EINVAL;
    }
    if (config->stalled > config->connections - config->topics) {
        ls_stress_why_set(why, "%u stalled connections of %u: each topic needs a subscriber that reads",
                          config->stalled, config->connections);
        return LS_EINVAL;
    }
    if (plan->publish_path == NULL) plan->publish_path = plan->target.path;
    plan->mode = LS_STRESS_PLAN_FANOUT;
    return finish_message(o, LS_DELIVERY_HEAD_BYTES, FANOUT_BYTES_DEFAULT, why);
}

static int finish_idle(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    const char *name = plan->config.hold ? "--hold" : "--cycles";
    if (plan->config.hold && o->cycles > 0)
        return invalid(why, "--hold and --cycles exclude each other; remove one of them");
    if (plan->config.hold && plan->target.kind == LS_STRESS_TARGET_UDP)
        return invalid(why, "--hold needs connections; udp has none");
    if (o->cycles > 0 && plan->target.kind != LS_STRESS_TARGET_WS)
        return invalid(why, "--cycles is for ws and wss targets");
    if (plan->subscribe != NULL && plan->target.kind != LS_STRESS_TARGET_WS)
        return invalid(why, "--subscribe is for ws and wss targets");
    if (plan->script_path != NULL || plan->message != NULL || o->size > 0 || plan->body != NULL || plan->numbered ||
        plan->show || plan->config.pipeline > 1 || !plan->config.keepalive || o->rate_given || o->stage_count > 0 ||
        plan->config.requests > 0 || plan->method != NULL || has_expectation(&plan->expect)) {
        ls_stress_why_set(why,
                          "%s sends no messages: remove --message, --size, --body, --sends, --show, --pipeline, "
                          "--no-keepalive, --rate, --stages, --requests, --method, --expect-... and scripts",
                          name);
        return LS_EINVAL;
    }
    if (plan->header_count > 0 && plan->target.kind != LS_STRESS_TARGET_WS)
        return invalid(why, "--hold sends nothing on a connection that is not a WebSocket; remove --header");
    plan->mode = plan->config.hold ? LS_STRESS_PLAN_HOLD : LS_STRESS_PLAN_CYCLES;
    return LS_OK;
}

/* The kind of run, for options that choose one. */
static int finish_mode(ls_stress_options *o, ls_stress_why *why)
{
    ls_stress_plan *plan = &o->plan;
    const ls_stress_config *config = &plan->config;
    if (config->fanout && (config->hold || o->cycles > 0))
        return invalid(why, "--fanout excludes --hold and --cycles; remove them");
    if (!config->fanout && (config->publishers > 0 || config->topics > 0 || config->stalled > 0 || config->sse ||
                            plan->publish_path != NULL))
        return invalid(why, "--publishers, --publish-path, --topics, --stalled and --sse are for --fanout");
    if (config->hold || o->cycles > 0) return finish_idle(o, why);
    if (!config->fanout && plan->subscribe != NULL)
        return invalid(why, "--subscribe is for --fanout, --hold and --cycles");
    return LS_OK;
}

int ls_stress_options_finish(ls_stress_options *o, char *text, size_t text_bytes)
{
    ls_stress_why why = {text, text_bytes};
    ls_stress_plan *plan = &o->plan;
    if (o->url == NULL)
        return invalid(&why, "no target: give a URL, or target = \"http://...\" in the script's table");
    int err = ls_stress_target_parse(o->url, &plan->target, text, text_bytes);
    if (err < 0) return err;
    plan->config.target = o->url;
    plan->config.script = plan->script_path;
    if (plan->mode == LS_STRESS_PLAN_SCRIPT && plan->target.kind != LS_STRESS_TARGET_HTTP)
        return invalid(&why,
                       "the hooks request and response are for http targets; use scenario for ws, tcp, udp and unix");
    if (plan->mode == LS_STRESS_PLAN_STATIC && plan->target.kind != LS_STRESS_TARGET_HTTP)
        plan->mode = LS_STRESS_PLAN_ECHO;
    if ((err = finish_mode(o, &why)) < 0) return err;
    if (plan->mode == LS_STRESS_PLAN_SCENARIO && plan->config.pipeline > 1)
        return invalid(&why, "a scenario cannot use --pipeline");
    if ((err = finish_load(o, &why)) < 0 || (err = finish_tls(o, &why)) < 0 || (err = finish_ws(o, &why)) < 0)
        return err;
    switch (plan->mode) {
    case LS_STRESS_PLAN_HOLD:
    case LS_STRESS_PLAN_CYCLES: return LS_OK;
    case LS_STRESS_PLAN_STATIC:
    case LS_STRESS_PLAN_SCRIPT: return plan->config.fanout ? finish_fanout(o, &why) : finish_http(o, &why);
    default: return plan->config.fanout ? finish_fanout(o, &why) : finish_echo(o, &why);
    }
}
