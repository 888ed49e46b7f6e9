/* options.c - the table of options, and what each accepts. See options.h. options_line.c reads the command line,
 * options_table.c the table of a script, options_finish.c completes the plan. */
#include "stress/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fopen.h"
#include "base/utf8.h"
#include "proto/http_text.h"
#include "stress/delivery.h"
#include "stress/options_internal.h"
#include "stress/strbuf.h"

/* Take ownership of an allocated text. False: out of memory, and the text is freed. */
static bool keep_text(ls_stress_options *o, char *text)
{
    if (text != NULL && o->text_count == o->text_room) {
        const size_t room = o->text_room > 0 ? 2 * o->text_room : 16;
        char **texts = realloc(o->texts, room * sizeof *texts);
        if (texts == NULL) {
            free(text);
            return false;
        }
        o->texts = texts;
        o->text_room = room;
    }
    if (text != NULL) o->texts[o->text_count++] = text;
    return text != NULL;
}

char *ls_stress_options_keep(ls_stress_options *o, const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return keep_text(o, copy) ? copy : NULL;
}

void ls_stress_why_set(ls_stress_why *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, why->bytes, format, args);
    va_end(args);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static bool parse_number(const char *text, double *out, const char **unit)
{
    char *end;
    if ((text[0] < '0' || text[0] > '9') && text[0] != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    errno = 0;
    *out = strtod(text, &end);
    *unit = end;
    return end != text && errno == 0 && isfinite(*out);
}

int ls_stress_options_count(const char *text, double *out)
{
    static const char units[] = "kMG";
    const char *unit;
    double value;
    if (!parse_number(text, &value, &unit)) return LS_EINVAL;
    if (unit[0] == 'K') unit = "k";
    for (size_t i = 0; unit[0] != '\0' && i < 3; i++) {
        value *= 1000;
        if (unit[0] == units[i]) {
            if (unit[1] != '\0') return LS_EINVAL;
            *out = value;
            return LS_OK;
        }
    }
    if (unit[0] != '\0') return LS_EINVAL;
    *out = value;
    return LS_OK;
}

int ls_stress_options_time_ns(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}};
    const char *unit;
    double value;
    if (!parse_number(text, &value, &unit)) return LS_EINVAL;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) != 0) continue;
        if (value * units[i].ns > 1e18) return LS_EINVAL;
        *out = (uint64_t)llround(value * units[i].ns);
        return LS_OK;
    }
    return LS_EINVAL;
}

static int parse_integer(const char *text, double min, double max, double *out)
{
    double value;
    if (ls_stress_options_count(text, &value) < 0 || value != floor(value) || value < min || value > max)
        return LS_EINVAL;
    *out = value;
    return LS_OK;
}

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
    if (parse_integer(text, 1, LS_STRESS_CONNECTIONS_MAX, &n) < 0) return LS_EINVAL;
    o->plan.config.connections = (unsigned)n;
    o->connections_given = true;
    return LS_OK;
}

static int set_threads(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (parse_integer(text, 1, LS_STRESS_THREADS_MAX, &n) < 0) return LS_EINVAL;
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
    if (parse_integer(text, 1, 1e15, &n) < 0) return LS_EINVAL;
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
        if (parse_integer(text, 1, LS_STRESS_CONNECTIONS_MAX, &n) < 0) return LS_EINVAL;
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
    if (parse_integer(text, 1, LS_STRESS_PIPELINE_MAX, &n) < 0) return LS_EINVAL;
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

static int read_file(ls_stress_options *o, const char *path, const char **bytes, size_t *len, ls_stress_why *why)
{
    FILE *file = ls_fopen(path, "rb");
    ls_strbuf text = {0};
    char part[16384];
    int err = file == NULL ? errno : 0;
    if (file != NULL) {
        for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) ls_strbuf_add(&text, part, n);
        ls_strbuf_put(&text, ""); /* memory for an empty file as well */
        err = ferror(file) ? errno : text.failed ? ENOMEM : 0;
        (void)fclose(file);
    }
    if (err != 0)
        ls_strbuf_close(&text);
    else if (!keep_text(o, text.bytes))
        err = ENOMEM;
    if (err != 0) {
        ls_stress_why_set(why, "%s: %s", path, strerror(err));
        return 1;
    }
    *bytes = text.bytes;
    *len = text.len;
    return LS_OK;
}

static int set_body(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    if (text[0] == '@') return read_file(o, text + 1, &o->plan.body, &o->plan.body_len, why);
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
    if (parse_integer(text, 100, 999, &n) < 0) return LS_EINVAL;
    expect->status_from = expect->status_to = (uint16_t)n;
    return LS_OK;
}

static int set_expect_length(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (parse_integer(text, 0, 1e15, &n) < 0) return LS_EINVAL;
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
    return read_file(o, text, &o->plan.expect.body, &o->plan.expect.body_len, why);
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
    if (parse_integer(text, 1, LS_STRESS_MESSAGE_BYTES_MAX, &n) < 0) return LS_EINVAL;
    o->size = (size_t)n;
    return LS_OK;
}

static int set_text(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->text_given = true;
    return LS_OK;
}

static int set_binary(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.ws.binary = true;
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

static int set_compress(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.ws.compress = true;
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
    if (parse_integer(text, 1, most, &n) < 0) return LS_EINVAL;
    *out = (unsigned)n;
    return LS_OK;
}

static int set_fanout(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.config.fanout = true;
    return LS_OK;
}

static int set_sse(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.config.sse = true;
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

static int set_hold(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.config.hold = true;
    return LS_OK;
}

static int set_cycles(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (parse_integer(text, 1, LS_STRESS_SENDS_MAX, &n) < 0) return LS_EINVAL;
    o->cycles = (uint64_t)n;
    return LS_OK;
}

static int set_sends(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    double n;
    (void)why;
    if (parse_integer(text, 1, LS_STRESS_SENDS_MAX, &n) < 0) return LS_EINVAL;
    o->plan.sends = (uint64_t)n;
    o->plan.numbered = true;
    return LS_OK;
}

static int set_show(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.show = true;
    return LS_OK;
}

static int set_insecure(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->insecure = true;
    return LS_OK;
}

static int set_insecure_to(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return LS_EINVAL;
    o->insecure = o->insecure || text[0] == 't'; /* --insecure overrides the script */
    return LS_OK;
}

static int set_ca(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->ca = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
}

static int set_cert(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->cert = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
}

static int set_key(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->key = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
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
    if (parse_integer(text, 1, LS_STRESS_BODY_BYTES_MAX, &n) < 0) return LS_EINVAL;
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

static int set_json(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->json = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
}

static int set_csv(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->csv = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
}

static int set_html(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)why;
    o->html = text;
    return text[0] != '\0' ? LS_OK : LS_EINVAL;
}

static int set_latency(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->plan.config.latency = true;
    return LS_OK;
}

static int set_quiet(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->quiet = true;
    return LS_OK;
}

static int set_help(ls_stress_options *o, const char *text, ls_stress_why *why)
{
    (void)text;
    (void)why;
    o->help = true;
    return LS_OK;
}

/* ---- the table of options --------------------------------------------------------------------------------------- */

const ls_stress_option ls_stress_options_known[] = {
    {'c', "connections", "connections", true, set_connections, "a number from 1 to 1048576"},
    {'t', "threads", "threads", true, set_threads, "a number from 1 to 1024"},
    {'d', "duration", "duration", true, set_duration, "a time above 0, such as 10s, 500ms, 2m"},
    {'n', "requests", "requests", true, set_requests, "a whole number from 1 to 1000000G"},
    {'R', "rate", "rate", true, set_rate, "requests per second, above 0, such as 1000 or 20k"},
    {0, "stages", "stages", true, set_stages, "TIME:RATE or TIME:CONNECTIONSc, separated by commas: 10s:1000,1m:5000"},
    {0, "pipeline", "pipeline", true, set_pipeline, "a number from 1 to 1024"},
    {0, "no-keepalive", NULL, false, set_no_keepalive, ""},
    {0, NULL, "keepalive", true, set_keepalive, "true or false"},
    {0, "timeout", "timeout", true, set_timeout, "a time, such as 10s or 500ms; 0: no limit"},
    {'H', "header", NULL, true, set_header, "\"Name: value\""},
    {0, "method", "method", true, set_method, "a method, such as GET or POST"},
    {0, "body", "body", true, set_body, "a text, or @FILE"},
    {0, "expect-status", "expect_status", true, set_expect_status, "a status such as 200, or a class such as 2xx"},
    {0, "expect-length", "expect_length", true, set_expect_length, "a number of bytes"},
    {0, "expect-crc32", "expect_crc32", true, set_expect_crc32, "eight hexadecimal digits"},
    {0, "expect-body", "expect_body", true, set_expect_body, "a file name"},
    {0, "max-body", "max_body", true, set_max_body, "a number of bytes from 1 to 1G"},
    {0, "insecure", NULL, false, set_insecure, ""},
    {0, NULL, "insecure", true, set_insecure_to, "true or false"},
    {0, "ca", "ca", true, set_ca, "a file name"},
    {0, "cert", "cert", true, set_cert, "a file name"},
    {0, "key", "key", true, set_key, "a file name"},
    {0, "tls-resume", "tls_resume", true, set_tls_resume, "on or off"},
    {'s', "script", NULL, true, set_script, "a file name"},
    {0, NULL, "target", true, set_target, "a URL"},
    {0, "message", "message", true, set_message, "a text of at least one byte"},
    {0, "size", "size", true, set_size, "a number of bytes from 1 to 67108864"},
    {0, "text", NULL, false, set_text, ""},
    {0, "binary", NULL, false, set_binary, ""},
    {0, NULL, "binary", true, set_binary_to, "true or false"},
    {0, "compress", NULL, false, set_compress, ""},
    {0, NULL, "compress", true, set_compress_to, "true or false"},
    {0, "protocol", "protocol", true, set_protocol, "the name of a subprotocol, such as chat.v1"},
    {0, "fanout", NULL, false, set_fanout, ""},
    {0, "publishers", NULL, true, set_publishers, "a number from 1 to 65535"},
    {0, "publish-path", NULL, true, set_publish_path, "a path that begins with /"},
    {0, "subscribe", NULL, true, set_subscribe, "a text in UTF-8 of at least one byte"},
    {0, "topics", NULL, true, set_topics, "a number from 1 to 65535"},
    {0, "stalled", NULL, true, set_stalled, "a number from 1, below that of the connections"},
    {0, "sse", NULL, false, set_sse, ""},
    {0, "hold", NULL, false, set_hold, ""},
    {0, "cycles", NULL, true, set_cycles, "a whole number from 1 to 1G"},
    {0, "sends", "sends", true, set_sends, "a whole number from 1 to 1G"},
    {0, "show", NULL, false, set_show, ""},
    {0, "threshold", NULL, true, set_threshold, "\"METRIC OPERATOR NUMBER\", such as \"p99 < 5ms\""},
    {0, "json", "json", true, set_json, "a file name"},
    {0, "csv", "csv", true, set_csv, "a file name"},
    {0, "html", "html", true, set_html, "a file name"},
    {0, "latency", NULL, false, set_latency, ""},
    {'q', "quiet", NULL, false, set_quiet, ""},
    {'h', "help", NULL, false, set_help, ""},
};
const unsigned ls_stress_options_known_count = sizeof ls_stress_options_known / sizeof ls_stress_options_known[0];
_Static_assert(sizeof ls_stress_options_known / sizeof ls_stress_options_known[0] <= 64,
               "ls_stress_options.given has 64 bits");

int ls_stress_options_set(ls_stress_options *o, const ls_stress_option *option, const char *name, const char *value,
                          ls_stress_why *why)
{
    const int result = option->set(o, value, why);
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
