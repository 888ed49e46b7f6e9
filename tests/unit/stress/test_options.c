/* test_options.c - the command line of `luaserve stress`: units, defaults, and invalid options. */
#include "stress/options.h"

#include "base/err.h"
#include "proto/ws_frame.h"
#include "support.h"

enum { ARGS_MAX = 32 };

typedef struct line {
    ls_stress_options options;
    char why[LS_STRESS_WHY_BYTES];
    char *argv[ARGS_MAX];
    int argc;
    char text[1024];
} line;

/* Arguments are separated by '|'. */
static int parse(line *l, const char *text)
{
    memset(l, 0, sizeof *l);
    assert_true(strlen(text) < sizeof l->text);
    strcpy(l->text, text);
    l->argv[l->argc++] = "stress";
    for (char *at = strtok(l->text, "|"); at != NULL; at = strtok(NULL, "|")) l->argv[l->argc++] = at;
    int err = ls_stress_options_parse(&l->options, l->argc, l->argv, l->why, sizeof l->why);
    return err < 0 ? err : ls_stress_options_finish(&l->options, l->why, sizeof l->why);
}

static ls_stress_plan *good(line *l, const char *text)
{
    if (parse(l, text) < 0) fail_msg("%s: %s", text, l->why);
    return &l->options.plan;
}

static void is_refused(const char *text, const char *reason)
{
    line l;
    assert_true(parse(&l, text) < 0);
    if (strstr(l.why, reason) == NULL) fail_msg("%s: %s", text, l.why);
    ls_stress_options_close(&l.options);
}

static void counts_and_times(void **state)
{
    double n;
    uint64_t ns;
    (void)state;
    assert_int_equal(ls_stress_options_count("20k", &n), LS_OK);
    assert_true(n == 20000);
    assert_int_equal(ls_stress_options_count("1.5M", &n), LS_OK);
    assert_true(n == 1500000);
    assert_int_equal(ls_stress_options_count("2G", &n), LS_OK);
    assert_true(n == 2e9);
    static const char *const no_counts[] = {"",     "k",     "-1",  "+1",  "1kk", "1x",
                                            "0x10", "1e999", "nan", "inf", " 1",  "1 "};
    for (size_t i = 0; i < sizeof no_counts / sizeof no_counts[0]; i++)
        assert_int_equal(ls_stress_options_count(no_counts[i], &n), LS_EINVAL);

    static const struct {
        const char *text;
        uint64_t ns;
    } times[] = {{"10s", 10000000000u},
                 {"3", 3000000000u},
                 {"500ms", 500000000u},
                 {"20us", 20000u},
                 {"2m", 120000000000u},
                 {"1.5h", 5400000000000u},
                 {"0", 0}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_int_equal(ls_stress_options_time_ns(times[i].text, &ns), LS_OK);
        assert_true(ns == times[i].ns);
    }
    static const char *const no_times[] = {"", "s", "10 s", "10sec", "-1s", "1ns", "1e30h"};
    for (size_t i = 0; i < sizeof no_times / sizeof no_times[0]; i++)
        assert_int_equal(ls_stress_options_time_ns(no_times[i], &ns), LS_EINVAL);
}

static void omitted_options_have_defaults(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "http://h/");
    assert_int_equal(plan->config.connections, 10);
    assert_in_range(plan->config.threads, 1, 2);
    assert_true(plan->config.duration_ns == UINT64_C(10000000000));
    assert_true(plan->config.keepalive && !plan->config.open_loop);
    assert_int_equal(plan->mode, LS_STRESS_PLAN_STATIC);
    ls_stress_options_close(&l.options);
    plan = good(&l, "-n|100|http://h/"); /* no duration: until the requests are done */
    assert_true(plan->config.duration_ns == 0 && plan->config.requests == 100);
    ls_stress_options_close(&l.options);
    plan = good(&l, "-c|1|http://h/");
    assert_int_equal(plan->config.threads, 1);
    ls_stress_options_close(&l.options);
    plan = good(&l, "-n|1000000G|http://h/");
    assert_true(plan->config.requests == UINT64_C(1000000000000000));
    ls_stress_options_close(&l.options);
    plan = good(&l, "-c|1048576|--sends|1G|tcp://h:1");
    assert_true(plan->config.requests == UINT64_C(1048576000000000));
    ls_stress_options_close(&l.options);
    plan = good(&l, "-t|48|--sends|60k|--message|m|tcp://h:1"); /* S9: one connection per thread */
    assert_int_equal(plan->config.connections, 48);
    assert_true(plan->sends == 60000 && plan->numbered && plan->config.requests == 48 * 60000);
    assert_int_equal(plan->mode, LS_STRESS_PLAN_ECHO);
    ls_stress_options_close(&l.options);
}

static void an_option_can_be_written_in_four_ways(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "-c64|-t2|--duration=3s|http://h/x|-R20k|--|a|b");
    assert_int_equal(plan->config.connections, 64);
    assert_int_equal(plan->config.threads, 2);
    assert_true(plan->config.duration_ns == UINT64_C(3000000000));
    assert_true(plan->config.open_loop && plan->config.rate == 20000);
    assert_int_equal(plan->script_argc, 2);
    assert_string_equal(plan->script_argv[1], "b");
    ls_stress_options_close(&l.options);
}

static void the_bytes_of_a_request(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "--pipeline|2|-H|X-A: b|http://h:81/p?q");
    static const char once[] = "GET /p?q HTTP/1.1\r\nHost: h:81\r\nX-A: b\r\n\r\n";
    assert_int_equal(plan->request_len, sizeof once - 1);
    assert_memory_equal(plan->request, once, sizeof once - 1);
    assert_memory_equal(plan->request + plan->request_len, once, sizeof once - 1);
    ls_stress_options_close(&l.options);
    plan = good(&l, "--no-keepalive|--body|a=b|-H|host: other|http://h/");
    static const char post[] = "POST / HTTP/1.1\r\nhost: other\r\nConnection: close\r\nContent-Length: 3\r\n\r\na=b";
    assert_int_equal(plan->request_len, sizeof post - 1);
    assert_memory_equal(plan->request, post, sizeof post - 1);
    ls_stress_options_close(&l.options);
}

static void stages(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "--stages|10s:1000,1m:5k|http://h/");
    assert_true(plan->config.open_loop && plan->config.stage_count == 2);
    assert_true(plan->config.duration_ns == UINT64_C(70000000000));
    assert_true(plan->config.stages[1].rate == 5000);
    ls_stress_options_close(&l.options);
    plan = good(&l, "--stages|1s:100c,1s:40c|-t|1|http://h/");
    assert_true(!plan->config.open_loop);
    assert_int_equal(plan->config.connections, 100);
    ls_stress_options_close(&l.options);
    is_refused("--stages|1s:10,1s:10c|http://h/", "not both");
    is_refused("--stages|1s:10|-d|3s|http://h/", "remove --duration");
    is_refused("--stages|1s|http://h/", "TIME:RATE");
    is_refused("--stages|0s:10|http://h/", "the total time is 0");
    is_refused("--stages||-R|5|http://h/", "TIME:RATE");
}

/* 64 of each are valid; the 65th is refused because of the number. */
static void lists_are_limited_to_64_entries(void **state)
{
    static const struct {
        const char *option, *value;
    } rows[] = {{"-H", "a: b"}, {"--threshold", "errors == 0"}};
    ls_stress_options options;
    char *argv[2 * 65 + 2], why[LS_STRESS_WHY_BYTES], list[65 * 6 + 1] = "";
    (void)state;
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        for (int count = 64; count <= 65; count++) {
            int argc = 1;
            for (int i = 0; i < count; i++) {
                argv[argc++] = (char *)(uintptr_t)rows[row].option;
                argv[argc++] = (char *)(uintptr_t)rows[row].value;
            }
            argv[argc++] = "http://h/";
            const int err = ls_stress_options_parse(&options, argc, argv, why, sizeof why);
            assert_int_equal(err, count == 64 ? LS_OK : LS_EINVAL);
            if (err < 0) assert_non_null(strstr(why, "more than 64"));
            ls_stress_options_close(&options);
        }
    }
    argv[1] = "--stages";
    argv[2] = list;
    argv[3] = "http://h/";
    for (int i = 0; i < 64; i++) strcat(list, "1s:10,");
    assert_int_equal(ls_stress_options_parse(&options, 4, argv, why, sizeof why), LS_OK);
    ls_stress_options_close(&options);
    strcat(list, "1s:10");
    assert_int_equal(ls_stress_options_parse(&options, 4, argv, why, sizeof why), LS_EINVAL);
    assert_non_null(strstr(why, "more than 64 stages"));
    ls_stress_options_close(&options);
}

static void invalid_options_are_refused(void **state)
{
    (void)state;
    is_refused("-q", "missing URL");
    is_refused("http://h/|http://i/", "unexpected argument \"http://i/\": the URL is http://h/ already");
    is_refused("-c|0|http://h/", "a number from 1");
    is_refused("-c|1.5|http://h/", "a number from 1");
    is_refused("-c|2000000|http://h/", "a number from 1");
    is_refused("-t|5|-c|4|http://h/", "at least as many connections");
    is_refused("-d|0|http://h/", "a time above 0");
    is_refused("-R|0|http://h/", "requests per second");
    is_refused("-H|no colon|http://h/", "Name: value");
    is_refused("-H|a b: c|http://h/", "Name: value");
    is_refused("--method|G T|http://h/", "a method");
    is_refused("--expect-status|2x|http://h/", "a status");
    is_refused("--expect-crc32|12|http://h/", "hexadecimal");
    is_refused("--expect-body|/does/not/exist|http://h/", "/does/not/exist");
    is_refused("--threshold|p99 <|http://h/", "METRIC");
    is_refused("--quiet=yes|http://h/", "takes no value");
    is_refused("http://h/|--rate", "missing value of --rate");
    is_refused("--ratte|5|http://h/", "did you mean --rate?");
    is_refused("--message|x|http://h/", "use --body");
    is_refused("--body|x|tcp://h:1", "use --message");
    is_refused("--expect-status|200|tcp://h:1", "echoes are always compared");
    is_refused("--pipeline|2|udp://h:1", "remove --pipeline");
    is_refused("--sends|5|-R|5|tcp://h:1", "closed loop");
    is_refused("--sends|5|-n|5|tcp://h:1", "exclude each other");
    is_refused("--sends|1000000001|tcp://h:1", "a whole number from 1 to 1G");
    is_refused("--cycles|1000000001|ws://h/", "a whole number from 1 to 1G");
    is_refused("-n|1000001G|http://h/", "a whole number from 1 to 1000000G");
    is_refused("a.lua|-s|b.lua|http://h/", "more than one script: a.lua and b.lua");
    is_refused("-s|a.lua|b.lua|http://h/", "more than one script: a.lua and b.lua");
    is_refused("--size|0|ws://h/", "a number of bytes from 1 to 67108864");
    is_refused("--size|67108865|ws://h/", "a number of bytes from 1 to 67108864");
    is_refused("--size|5|--message|x|ws://h/", "--message and --size exclude each other");
    is_refused("--text|--binary|ws://h/", "--text and --binary exclude each other");
    is_refused("--binary|tcp://h:1", "are for ws and wss targets");
    is_refused("--protocol|chat|http://h/", "are for ws and wss targets");
    is_refused("--protocol|a b|ws://h/", "the name of a subprotocol");
    is_refused("--body|x|ws://h/", "use --message");
    is_refused("-H|Upgrade: x|ws://h/", "the handshake of WebSocket sets this field");
    is_refused("-H|sec-websocket-protocol: x|ws://h/", "use --protocol");
    is_refused("-H|A: b|tcp://h:1", "--header is for http and ws targets");
    is_refused("--size|5|http://h/", "are for ws, tcp, udp and unix targets");
    is_refused("--insecure|http://h/", "are for https and wss targets");
    is_refused("--ca|f|tcp://h:1", "are for https and wss targets");
    is_refused("--tls-resume|on|ws://h/", "are for https and wss targets");
    is_refused("--tls-resume|x|https://h/", "on or off");
    is_refused("--insecure|--ca|f|https://h/", "remove it or --ca");
    is_refused("--key|f|https://h/", "--key without --cert");
    is_refused("--insecure=yes|https://h/", "takes no value");
}

/* The frames of an echo are prepared: each unmasks to the message (RFC 6455 section 5.3). */
static void messages_become_frames(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "--size|200|--pipeline|3|--binary|ws://h:81/a?b");
    assert_int_equal(plan->mode, LS_STRESS_PLAN_ECHO);
    assert_int_equal(plan->message_len, 200);
    assert_int_equal(plan->request_len, 4 + 4 + 200);
    assert_string_equal(plan->ws.request.target, "/a?b");
    assert_string_equal(plan->ws.request.host, "h:81");
    const ls_ws_rules rules = {.masked = true};
    for (unsigned i = 0; i < 3; i++) {
        ls_ws_head head;
        const char *why;
        char *at = plan->request + i * plan->request_len;
        assert_int_equal(ls_ws_head_parse(at, plan->request_len, &rules, &head, &why), 8);
        assert_int_equal(head.opcode, LS_WS_BINARY);
        ls_ws_mask(at + 8, 200, head.key, 0);
        assert_memory_equal(at + 8, plan->message, 200);
    }
    ls_stress_options_close(&l.options);

    plan = good(&l, "-H|Host: other|-H|A: b|-H|C: d|--protocol|x|--protocol|y|ws://h/");
    assert_string_equal(plan->ws.request.host, "other");
    assert_string_equal(plan->ws.request.fields, "A: b\r\nC: d\r\n");
    assert_int_equal(plan->ws.request.protocols.count, 2);
    assert_int_equal(plan->message_len, 5);
    ls_stress_options_close(&l.options);
}

static void fanout_has_defaults(void **state)
{
    line l;
    (void)state;
    const ls_stress_plan *plan = good(&l, "--fanout|ws://h/sub");
    assert_int_equal(plan->mode, LS_STRESS_PLAN_FANOUT);
    assert_int_equal(plan->config.publishers, 1);
    assert_int_equal(plan->config.topics, 1);
    assert_int_equal(plan->config.message_bytes, 64);
    assert_int_equal(plan->message_len, 64 - 48);
    assert_string_equal(plan->publish_path, "/sub");
    assert_false(plan->config.open_loop);
    ls_stress_options_close(&l.options);

    plan = good(&l, "--fanout|--sse|--topics|3|-R|10|--message|hi|--publish-path|/pub/{topic}|http://h/sub");
    assert_int_equal(plan->config.publishers, 3);
    assert_int_equal(plan->config.message_bytes, 50);
    assert_string_equal(plan->publish_path, "/pub/{topic}");
    assert_true(plan->config.open_loop && plan->config.sse);
    ls_stress_options_close(&l.options);

    plan = good(&l, "--fanout|--size|48|-c|5|--stalled|4|ws://h/");
    assert_int_equal(plan->message_len, 0);
    assert_int_equal(plan->config.stalled, 4);
    ls_stress_options_close(&l.options);

    assert_int_equal(good(&l, "--hold|tcp://h:1")->mode, LS_STRESS_PLAN_HOLD);
    ls_stress_options_close(&l.options);
    plan = good(&l, "--cycles|3|-c|2|--subscribe|join|ws://h/");
    assert_int_equal(plan->mode, LS_STRESS_PLAN_CYCLES);
    assert_int_equal(plan->sends, 3);
    assert_int_equal(plan->config.requests, 6);
    assert_int_equal(plan->config.duration_ns, 0);
    ls_stress_options_close(&l.options);
}

static void fanout_options_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    is_refused("--fanout|http://h/", "--fanout with an http or https target needs --sse");
    is_refused("--fanout|tcp://h:1", "--fanout needs a ws or wss target");
    is_refused("--fanout|--sse|wss://h/", "--sse needs an http or https target");
    is_refused("--fanout|--size|47|ws://h/", "at least 48 bytes");
    is_refused("--fanout|--publishers|0|ws://h/", "a number from 1 to 65535");
    is_refused("--fanout|--publishers|65536|ws://h/", "a number from 1 to 65535");
    is_refused("--fanout|-c|5|--stalled|5|ws://h/", "each topic needs a subscriber that reads");
    is_refused("--fanout|-c|2|--topics|3|ws://h/", "3 topics need at least as many publishers and connections");
    is_refused("--fanout|--topics|3|--publishers|2|ws://h/", "3 topics need");
    is_refused("--fanout|--no-keepalive|ws://h/", "remove --no-keepalive");
    is_refused("--fanout|--sends|3|ws://h/", "excludes --sends");
    is_refused("--fanout|--stages|1s:3c|ws://h/", "use rates, not connections");
    is_refused("--fanout|--sse|--subscribe|x|http://h/", "use the path of the URL");
    is_refused("--fanout|--sse|--body|x|http://h/", "remove --method and --body");
    is_refused("--fanout|--sse|--expect-status|200|http://h/", "remove --expect-");
    is_refused("--fanout|--publish-path|x|ws://h/", "a path that begins with /");
    is_refused("--fanout|--cycles|3|ws://h/", "excludes --hold and --cycles");
    is_refused("--topics|3|ws://h/", "are for --fanout");
    is_refused("--subscribe|x|ws://h/", "is for --fanout, --hold and --cycles");
    is_refused("--hold|--rate|5|ws://h/", "--hold sends no messages");
    is_refused("--cycles|5|--size|5|ws://h/", "--cycles sends no messages");
    is_refused("--cycles|5|tcp://h:1", "--cycles is for ws and wss targets");
    is_refused("--compress|http://h/", "are for ws and wss targets");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fanout_has_defaults),
        cmocka_unit_test(fanout_options_that_do_not_fit_are_refused),
        cmocka_unit_test(messages_become_frames),
        cmocka_unit_test(counts_and_times),
        cmocka_unit_test(omitted_options_have_defaults),
        cmocka_unit_test(an_option_can_be_written_in_four_ways),
        cmocka_unit_test(the_bytes_of_a_request),
        cmocka_unit_test(stages),
        cmocka_unit_test(lists_are_limited_to_64_entries),
        cmocka_unit_test(invalid_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
