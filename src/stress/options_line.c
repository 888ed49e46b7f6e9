/* options_line.c - the command line of `luaserve stress`. */
#include <string.h>

#include "base/err.h"
#include "stress/options_internal.h"

static const char usage[] =
    "luaserve stress - put a server under load, and say honestly what it did\n"
    "\n"
    "usage: luaserve stress [options] URL\n"
    "       luaserve stress [options] script.lua [-- arguments...]\n"
    "       luaserve stress [options] -s wrk-script.lua URL [-- arguments...]\n"
    "\n"
    "URL: http://host[:port][/path], tcp://host:port, udp://host:port, unix:/path, http+unix:/path\n"
    "\n"
    "The load\n"
    "  -c, --connections N   connections in all (10)\n"
    "  -t, --threads N       threads (2, but not more than processors or connections)\n"
    "  -d, --duration T      how long (10s; with --requests or --sends: until they are done)\n"
    "  -n, --requests N      so many requests in all\n"
    "  -R, --rate N          open loop: N requests per second are due, whatever the server does, and latency counts\n"
    "                        from the moment a request was due. Without: closed loop, each connection asks again\n"
    "                        when it was answered\n"
    "      --stages LIST     \"10s:1000,1m:5000\": within 10 s to 1,000 requests per second, within a minute to "
    "5,000;\n"
    "                        \"10s:100c,1m:100c\": the same for connections, in closed loop\n"
    "      --pipeline N      so many requests on their way on each connection (1)\n"
    "      --no-keepalive    a connection for each request\n"
    "      --timeout T       of a connect and of a request (10s); 0: none\n"
    "\n"
    "HTTP\n"
    "  -H, --header LINE     \"Name: value\", more than once if need be\n"
    "      --method NAME     GET unless there is a body, then POST\n"
    "      --body TEXT       or --body @FILE\n"
    "      --expect-status S 200, or a class: 2xx\n"
    "      --expect-length N of each body, in bytes\n"
    "      --expect-crc32 H  of each body, eight hexadecimal digits\n"
    "      --expect-body F   each body must be the bytes of this file\n"
    "  -s, --script FILE     a script for wrk: setup, init, delay, request, response, done\n"
    "\n"
    "tcp, udp, unix: a message, whose echo is compared byte for byte\n"
    "      --message TEXT    (hello)\n"
    "      --sends N         so many on each connection. Messages are numbered then:\n"
    "                        \"<i>. Thread <t> - <message>\"; and connections are as many as threads unless -c is "
    "given\n"
    "      --show            print every echo\n"
    "\n"
    "What is told\n"
    "      --latency         the distribution of latencies\n"
    "      --threshold TEXT  \"p99 < 5ms\", \"errors < 0.1%\", \"rate >= 19800\"; more than once if need be\n"
    "      --json FILE, --csv FILE, --html FILE\n"
    "  -q, --quiet           nothing while it runs\n"
    "  -h, --help            this text\n"
    "\n"
    "Counts may end in k, M or G (1,000 each), times in us, ms, s, m or h (seconds without).\n"
    "SIGINT ends early and still reports, a second one ends at once. Status: 0; 99 when a threshold was missed; 1\n"
    "when the run could not be made, or the rate that was asked for; 2 when this line is wrong.\n";

void ls_stress_options_usage(FILE *to)
{
    fputs(usage, to);
}

/* The known name that shares most of its beginning with `given`, if that is more than one letter. */
static const char *nearest(const char *given)
{
    const char *best = NULL;
    size_t best_len = 1;
    for (unsigned i = 0; i < ls_stress_options_known_count; i++) {
        const char *name = ls_stress_options_known[i].name;
        size_t n = 0;
        while (name != NULL && given[n] != '\0' && given[n] == name[n]) n++;
        if (n > best_len) {
            best = name;
            best_len = n;
        }
    }
    return best;
}

static const ls_stress_option *find(const char *argument, const char **value)
{
    *value = NULL;
    for (unsigned i = 0; i < ls_stress_options_known_count; i++) {
        const ls_stress_option *option = &ls_stress_options_known[i];
        if (argument[1] != '-') {
            if (option->letter != argument[1]) continue;
            if (argument[2] != '\0') *value = argument + 2; /* -c64 */
            return option;
        }
        const size_t len = option->name != NULL ? strlen(option->name) : 0;
        if (len == 0 || strncmp(argument + 2, option->name, len) != 0) continue;
        if (argument[2 + len] == '=') *value = argument + 3 + len;
        if (argument[2 + len] == '=' || argument[2 + len] == '\0') return option;
    }
    return NULL;
}

static bool is_script(const char *argument)
{
    const size_t len = strlen(argument);
    return strstr(argument, "://") == NULL && len > 4 && strcmp(argument + len - 4, ".lua") == 0;
}

static int positional(ls_stress_options *o, const char *argument, ls_stress_why *why)
{
    if (is_script(argument)) {
        if (o->plan.script_path != NULL) {
            ls_why_set(why, "two scripts: %s and %s", o->plan.script_path, argument);
            return LS_EINVAL;
        }
        o->plan.script_path = argument;
        o->plan.dialect = LS_DIALECT_TABLE;
        return LS_OK;
    }
    if (o->url != NULL) {
        ls_why_set(why, "one URL is enough: %s; and what is %s?", o->url, argument);
        return LS_EINVAL;
    }
    o->url = argument;
    return LS_OK;
}

int ls_stress_options_parse(ls_stress_options *o, int argc, char **argv, char *text, size_t text_bytes)
{
    ls_stress_why why = {text, text_bytes};
    memset(o, 0, sizeof *o);
    o->plan.config.keepalive = true;
    o->plan.config.pipeline = 1;
    o->plan.config.timeout_ns = UINT64_C(10000000000);
    for (int at = 1; at < argc; at++) {
        const char *argument = argv[at], *value;
        if (strcmp(argument, "--") == 0) {
            o->plan.script_argc = argc - at - 1;
            o->plan.script_argv = argv + at + 1;
            break;
        }
        if (argument[0] != '-' || argument[1] == '\0') {
            if (positional(o, argument, &why) < 0) return LS_EINVAL;
            continue;
        }
        const ls_stress_option *option = find(argument, &value);
        if (option == NULL) {
            const char *near = argument[1] == '-' ? nearest(argument + 2) : NULL;
            ls_why_set(&why, "unknown option %s%s%s%s; luaserve stress --help lists them", argument,
                       near != NULL ? "; did you mean --" : "", near != NULL ? near : "", near != NULL ? "?" : "");
            return LS_EINVAL;
        }
        if (!option->takes_value && value != NULL) {
            ls_why_set(&why, "%s takes no value", argument);
            return LS_EINVAL;
        }
        if (option->takes_value && value == NULL && (value = ++at < argc ? argv[at] : NULL) == NULL) {
            ls_why_set(&why, "%s needs a value: %s", argument, option->right);
            return LS_EINVAL;
        }
        if (ls_stress_options_set(o, option, argument, value, &why) < 0) return LS_EINVAL;
        o->given |= UINT64_C(1) << (option - ls_stress_options_known);
        if (o->help) return LS_OK;
    }
    if (o->url == NULL && o->plan.dialect != LS_DIALECT_TABLE) {
        ls_why_set(&why,
                   "what is to be put under load? usage: luaserve stress [options] URL, or script.lua; see --help");
        return LS_EINVAL;
    }
    return LS_OK;
}
