/* options.c - the table of options, and what each accepts. See options.h. options_value.c reads values, options_line.c
 * the command line, options_table.c the table of a script; options_finish.c completes the plan. */
#include "stress/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "proto/http_text.h"
#include "stress/delivery.h"
#include "stress/options_internal.h"

/* ---- setters: LS_OK; LS_EINVAL: the caller makes the message; 1: the message is in `why` ------------------------ */

static int too_many(ls_stress_why *why, int most, const char *what)
{
    ls_stress_why_set(why, "more than %d %s", most, what);
    return 1;
}

static int set_connections(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_CONNECTIONS_MAX, &n) < 0) return LS_EINVAL;
    o->plan.config.connections = (unsigned)n;
    o->connections_given = true;
    return LS_OK;
}

static int set_threads(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_THREADS_MAX, &n) < 0) return LS_EINVAL;
    o->plan.config.threads = (unsigned)n;
    o->threads_given = true;
    return LS_OK;
}

static int set_duration(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->duration_given = true;
    return ls_stress_options_time_ns(text, &o->plan.config.duration_ns) < 0 || o->plan.config.duration_ns == 0
               ? LS_EINVAL
               : LS_OK;
}

static int set_requests(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, 1e15, &n) < 0) return LS_EINVAL;
    o->plan.config.requests = (uint64_t)n;
    return LS_OK;
}

static int set_rate(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_count(text, &n) < 0 || n <= 0 || n > 1e9) return LS_EINVAL;
    o->plan.config.rate = n;
    o->rate_given = true;
    return LS_OK;
}

/* One stage: "10s:1000" or "10s:100c". */
static int add_stage(ls_stress_options *o, const char *time, const char *value)
{
    char text[64];
    double n;
    ls_stress_stage stage = {0};
    const size_t len = strlen(value);
    if (len == 0 || len >= sizeof text) return LS_EINVAL;
    memcpy(text, value, len + 1);
    if (ls_stress_options_time_ns(time, &stage.duration_ns) < 0) return LS_EINVAL;
    if (text[len - 1] == 'c') {
        text[len - 1] = '\0';
        if (ls_stress_options_integer(text, 1, LS_STRESS_CONNECTIONS_MAX, &n) < 0) return LS_EINVAL;
        stage.connections = (unsigned)n;
    } else {
        if (ls_stress_options_count(text, &n) < 0 || n > 1e9) return LS_EINVAL;
        stage.rate = n;
    }
    o->stages[o->stage_count++] = stage;
    return LS_OK;
}

static int set_stages(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    o->stage_count = 0;
    while (*text != '\0') {
        char one[128], *colon;
        const size_t len = strcspn(text, ",");
        if (len == 0 || len >= sizeof one) return LS_EINVAL;
        if (o->stage_count == LS_STRESS_STAGES_MAX) return too_many(why, LS_STRESS_STAGES_MAX, "stages");
        memcpy(one, text, len);
        one[len] = '\0';
        if ((colon = strchr(one, ':')) == NULL) return LS_EINVAL;
        *colon = '\0';
        if (add_stage(o, one, colon + 1) < 0) return LS_EINVAL;
        text += len;
        if (*text == ',') text++;
    }
    return o->stage_count > 0 ? LS_OK : LS_EINVAL;
}

static int set_pipeline(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_PIPELINE_MAX, &n) < 0) return LS_EINVAL;
    o->plan.config.pipeline = (unsigned)n;
    return LS_OK;
}

static int set_no_keepalive(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.config.keepalive = false;
    return LS_OK;
}

static int set_keepalive(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->plan.config.keepalive = text[0] == 't';
    return LS_OK;
}

static int set_timeout(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    return ls_stress_options_time_ns(text, &o->plan.config.timeout_ns);
}

static int set_header(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL || !ls_is_token(text, (size_t)(colon - text)) ||
        !ls_is_field_value(colon + 1, strlen(colon + 1)))
        return LS_EINVAL;
    if (o->plan.header_count == LS_STRESS_HEADERS_MAX) return too_many(why, LS_STRESS_HEADERS_MAX, "headers");
    o->plan.headers[o->plan.header_count++] = text;
    return LS_OK;
}

static int set_method(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (!ls_is_token(text, strlen(text))) return LS_EINVAL;
    o->plan.method = text;
    return LS_OK;
}

static int set_body(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    if (text[0] == '@') return ls_stress_options_read_file(o, text + 1, &o->plan.body, &o->plan.body_len, why);
    o->plan.body = text;
    o->plan.body_len = strlen(text);
    return LS_OK;
}

static int set_expect_status(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    ls_stress_plan_expect *expect = &o->plan.expect;
    (void)why;
    if (strlen(text) != 3 || text[0] < '1' || text[0] > '9') return LS_EINVAL;
    if (strcmp(text + 1, "xx") == 0) {
        expect->status_from = (uint16_t)((text[0] - '0') * 100);
        expect->status_to = (uint16_t)(expect->status_from + 99);
        return LS_OK;
    }
    double n;
    if (ls_stress_options_integer(text, 100, 999, &n) < 0) return LS_EINVAL;
    expect->status_from = expect->status_to = (uint16_t)n;
    return LS_OK;
}

static int set_expect_length(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 0, 1e15, &n) < 0) return LS_EINVAL;
    o->plan.expect.length = (uint64_t)n;
    o->plan.expect.has_length = true;
    return LS_OK;
}

static int set_expect_crc32(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strlen(text) != 8 || strspn(text, "0123456789abcdefABCDEF") != 8) return LS_EINVAL;
    o->plan.expect.crc = (uint32_t)strtoul(text, NULL, 16);
    o->plan.expect.has_crc = true;
    return LS_OK;
}

static int set_expect_body(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    o->plan.expect.has_body = true;
    return ls_stress_options_read_file(o, text, &o->plan.expect.body, &o->plan.expect.body_len, why);
}

static int set_message(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (text[0] == '\0') return LS_EINVAL;
    o->plan.message = text;
    o->plan.message_len = strlen(text);
    return LS_OK;
}

static int set_size(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_MESSAGE_BYTES_MAX, &n) < 0) return LS_EINVAL;
    o->size = (size_t)n;
    return LS_OK;
}

static int set_binary_to(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->plan.ws.binary =
        !o->text_given && (o->plan.ws.binary || text[0] == 't'); /* the command line overrides the script */
    return LS_OK;
}

static int set_compress_to(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->plan.ws.compress = o->plan.ws.compress || text[0] == 't'; /* --compress overrides the script */
    return LS_OK;
}

static int set_protocol(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    if (!ls_is_token(text, strlen(text))) return LS_EINVAL;
    if (o->plan.ws.protocol_count == LS_STRESS_PROTOCOLS_MAX)
        return too_many(why, LS_STRESS_PROTOCOLS_MAX, "subprotocols");
    o->plan.ws.protocols[o->plan.ws.protocol_count++] = text;
    return LS_OK;
}

static int set_number(const char *text, double most, unsigned *out)
{
    double n;
    if (ls_stress_options_integer(text, 1, most, &n) < 0) return LS_EINVAL;
    *out = (unsigned)n;
    return LS_OK;
}

static int set_publishers(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    return set_number(text, LS_DELIVERY_PUBLISHERS_MAX, &o->plan.config.publishers);
}

static int set_topics(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    return set_number(text, LS_DELIVERY_PUBLISHERS_MAX, &o->plan.config.topics);
}

static int set_stalled(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    return set_number(text, LS_STRESS_CONNECTIONS_MAX, &o->plan.config.stalled);
}

static int set_publish_path(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (text[0] != '/') return LS_EINVAL;
    for (const char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '#') return LS_EINVAL;
    o->plan.publish_path = text;
    return LS_OK;
}

static int set_subscribe(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (text[0] == '\0' || !ls_utf8_valid(text, strlen(text))) return LS_EINVAL;
    o->plan.subscribe = text;
    return LS_OK;
}

static int set_cycles(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_SENDS_MAX, &n) < 0) return LS_EINVAL;
    o->cycles = (uint64_t)n;
    return LS_OK;
}

static int set_sends(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_SENDS_MAX, &n) < 0) return LS_EINVAL;
    o->plan.sends = (uint64_t)n;
    o->plan.numbered = true;
    return LS_OK;
}

static int set_insecure_to(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->insecure = o->insecure || text[0] == 't'; /* --insecure overrides the script */
    return LS_OK;
}

static int set_tls_resume(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    const bool on = strcmp(text, "on") == 0 || strcmp(text, "true") == 0;
    if (!on && strcmp(text, "off") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->plan.config.tls_resume = on;
    o->tls_resume_given = true;
    return LS_OK;
}

static int set_max_body(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (ls_stress_options_integer(text, 1, LS_STRESS_BODY_BYTES_MAX, &n) < 0) return LS_EINVAL;
    o->plan.body_bytes_max = (uint32_t)n;
    return LS_OK;
}

static int set_script(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    if (o->plan.script_path != NULL) {
        ls_stress_why_set(why, "more than one script: %s and %s", o->plan.script_path, text);
        return 1;
    }
    o->plan.script_path = text;
    o->plan.dialect = LS_STRESS_DIALECT_WRK;
    return LS_OK;
}

static int set_target(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->url = text;
    return LS_OK;
}

static int set_threshold(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    char reason[256];
    if (o->threshold_count == LS_STRESS_THRESHOLDS_MAX) return too_many(why, LS_STRESS_THRESHOLDS_MAX, "thresholds");
    if (ls_stress_threshold_parse(text, strlen(text), &o->thresholds[o->threshold_count], reason, sizeof reason) < 0) {
        ls_stress_why_set(why, "%s\n%s", reason, ls_stress_threshold_grammar());
        return 1;
    }
    o->threshold_count++;
    return LS_OK;
}

/* ---- the table of options --------------------------------------------------------------------------------------- */

#define FIELD(field) offsetof(ls_stress_options, field)
#define OPTION(letter, name, key, set, right)  \
    {                                          \
        letter, name, key, true, set, right, 0 \
    }
#define SWITCH(letter, name, field)                       \
    {                                                     \
        letter, name, NULL, false, NULL, "", FIELD(field) \
    }
#define FILE_NAME(name, field)                                 \
    {                                                          \
        0, name, name, true, NULL, "a file name", FIELD(field) \
    }

const ls_stress_option ls_stress_options_known[] = {
    OPTION('c', "connections", "connections", set_connections, "a number from 1 to 1048576"),
    OPTION('t', "threads", "threads", set_threads, "a number from 1 to 1024"),
    OPTION('d', "duration", "duration", set_duration, "a time above 0, such as 10s, 500ms, 2m"),
    OPTION('n', "requests", "requests", set_requests, "a whole number from 1 to 1000000G"),
    OPTION('R', "rate", "rate", set_rate, "requests per second, above 0, such as 1000 or 20k"),
    OPTION(0, "stages", "stages", set_stages, "TIME:RATE or TIME:CONNECTIONSc, separated by commas: 10s:1000,1m:5000"),
    OPTION(0, "pipeline", "pipeline", set_pipeline, "a number from 1 to 1024"),
    {0, "no-keepalive", NULL, false, set_no_keepalive, "", 0},
    OPTION(0, NULL, "keepalive", set_keepalive, "true or false"),
    OPTION(0, "timeout", "timeout", set_timeout, "a time, such as 10s or 500ms; 0: no limit"),
    OPTION('H', "header", NULL, set_header, "\"Name: value\""),
    OPTION(0, "method", "method", set_method, "a method, such as GET or POST"),
    OPTION(0, "body", "body", set_body, "a text, or @FILE"),
    OPTION(0, "expect-status", "expect_status", set_expect_status, "a status such as 200, or a class such as 2xx"),
    OPTION(0, "expect-length", "expect_length", set_expect_length, "a number of bytes"),
    OPTION(0, "expect-crc32", "expect_crc32", set_expect_crc32, "eight hexadecimal digits"),
    OPTION(0, "expect-body", "expect_body", set_expect_body, "a file name"),
    OPTION(0, "max-body", "max_body", set_max_body, "a number of bytes from 1 to 1G"),
    SWITCH(0, "insecure", insecure),
    OPTION(0, NULL, "insecure", set_insecure_to, "true or false"),
    FILE_NAME("ca", ca),
    FILE_NAME("cert", cert),
    FILE_NAME("key", key),
    OPTION(0, "tls-resume", "tls_resume", set_tls_resume, "on or off"),
    OPTION('s', "script", NULL, set_script, "a file name"),
    OPTION(0, NULL, "target", set_target, "a URL"),
    OPTION(0, "message", "message", set_message, "a text of at least one byte"),
    OPTION(0, "size", "size", set_size, "a number of bytes from 1 to 67108864"),
    SWITCH(0, "text", text_given),
    SWITCH(0, "binary", plan.ws.binary),
    OPTION(0, NULL, "binary", set_binary_to, "true or false"),
    SWITCH(0, "compress", plan.ws.compress),
    OPTION(0, NULL, "compress", set_compress_to, "true or false"),
    OPTION(0, "protocol", "protocol", set_protocol, "the name of a subprotocol, such as chat.v1"),
    SWITCH(0, "fanout", plan.config.fanout),
    OPTION(0, "publishers", NULL, set_publishers, "a number from 1 to 65535"),
    OPTION(0, "publish-path", NULL, set_publish_path, "a path that begins with /"),
    OPTION(0, "subscribe", NULL, set_subscribe, "a text in UTF-8 of at least one byte"),
    OPTION(0, "topics", NULL, set_topics, "a number from 1 to 65535"),
    OPTION(0, "stalled", NULL, set_stalled, "a number from 1, below that of the connections"),
    SWITCH(0, "sse", plan.config.sse),
    SWITCH(0, "hold", plan.config.hold),
    OPTION(0, "cycles", NULL, set_cycles, "a whole number from 1 to 1G"),
    OPTION(0, "sends", "sends", set_sends, "a whole number from 1 to 1G"),
    SWITCH(0, "show", plan.show),
    OPTION(0, "threshold", NULL, set_threshold, "\"METRIC OPERATOR NUMBER\", such as \"p99 < 5ms\""),
    FILE_NAME("json", json),
    FILE_NAME("csv", csv),
    FILE_NAME("html", html),
    SWITCH(0, "latency", plan.config.latency),
    SWITCH('q', "quiet", quiet),
    SWITCH('h', "help", help),
};
const unsigned ls_stress_options_known_count = sizeof ls_stress_options_known / sizeof ls_stress_options_known[0];
_Static_assert(sizeof ls_stress_options_known / sizeof ls_stress_options_known[0] <= 64,
               "ls_stress_options.given has 64 bits");

static int set_field(ls_stress_options *o, const ls_stress_option *option, const char *value)
{
    char *field = (char *)o + option->field;
    if (!option->takes_value) {
        *(bool *)field = true;
        return LS_OK;
    }
    *(const char **)field = value;
    return value[0] != '\0' ? LS_OK : LS_EINVAL;
}

int ls_stress_options_set(ls_stress_options *o, const ls_stress_option *option, const char *name, const char *value,
                          ls_stress_why *why)
{
    const int result = option->set != NULL ? option->set(o, value, why) : set_field(o, option, value);
    if (result == LS_OK) return LS_OK;
    if (result == LS_EINVAL)
        ls_stress_why_set(why, "%s: invalid value \"%s\": must be %s", name, value, option->right);
    return LS_EINVAL;
}

void ls_stress_options_close(ls_stress_options *o)
{
    for (size_t i = 0; i < o->text_count; i++) free(o->texts[i]);
    free(o->texts);
    o->texts = NULL;
    o->text_count = o->text_room = 0;
    if (o->plan.tls != NULL) ls_tls_drop(o->plan.tls);
    o->plan.tls = NULL;
    free(o->plan.request);
    free(o->plan.packed);
    o->plan.request = o->plan.packed = NULL;
}
