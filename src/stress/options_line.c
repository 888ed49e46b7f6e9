/* options_line.c - the command line of `luaserve stress`. */
#include <string.h>

#include "base/err.h"
#include "stress/options_internal.h"

static const char usage[] =
    "luaserve stress - the load tool: put a server under load and report how fast it responds\n"
    "\n"
    "usage: luaserve stress [options] URL\n"
    "       luaserve stress [options] script.lua [-- arguments...]\n"
    "       luaserve stress [options] -s wrk-script.lua URL [-- arguments...]\n"
    "\n"
    "URL: http://host[:port][/path], https://host[:port][/path], ws://host[:port][/path], wss://host[:port][/path],\n"
    "     tcp://host:port, udp://host:port, unix:/path, http+unix:/path\n"
    "\n"
    "Load\n"
    "  -c, --connections N   number of connections (default 10)\n"
    "  -t, --threads N       number of threads (default 2, at most one per processor and per connection)\n"
    "  -d, --duration T      length of the run (default 10s; with --requests or --sends: until they are done)\n"
    "  -n, --requests N      number of requests\n"
    "  -R, --rate N          open loop: N requests per second are due whatever the server does, and latency counts\n"
    "                        from the due time. Default: closed loop, each connection sends its next request after\n"
    "                        the response to the last one\n"
    "      --stages LIST     load that changes over time. \"10s:1000,1m:5000\": within 10 s to 1,000 requests per\n"
    "                        second, within the next minute to 5,000 (open loop); \"10s:100c,1m:100c\": the same "
    "with\n"
    "                        connections (closed loop)\n"
    "      --pipeline N      outstanding requests per connection (default 1)\n"
    "      --no-keepalive    use a new connection for each request\n"
    "      --timeout T       limit for a connect with its TLS handshake and for a request (default 10s); 0: no\n"
    "                        limit\n"
    "\n"
    "HTTP\n"
    "  -H, --header LINE     add the header \"Name: value\"; may be repeated\n"
    "      --method NAME     request method (default GET; POST with --body)\n"
    "      --body TEXT       request body; @FILE reads it from a file\n"
    "      --expect-status S expected status of each response: 200, or a class: 2xx\n"
    "      --expect-length N expected length of each body, in bytes\n"
    "      --expect-crc32 H  expected CRC-32 of each body, eight hexadecimal digits\n"
    "      --expect-body F   each body must be equal to this file\n"
    "      --max-body N      limit of a body that a script looks at, in bytes (default 1048576)\n"
    "  -s, --script FILE     script for wrk: setup, init, delay, request, response, done\n"
    "\n"
    "https, wss\n"
    "      --insecure        accept any certificate\n"
    "      --ca FILE         trusted certificates, in PEM (default: the trust store of the system)\n"
    "      --cert FILE       client certificate and its chain, in PEM\n"
    "      --key FILE        its private key (default: in the file of --cert)\n"
    "      --tls-resume W    on: a new connection resumes the session of an earlier one (default); off: full\n"
    "                        handshakes only\n"
    "\n"
    "ws, wss, tcp, udp, unix: send a message and compare its echo byte for byte\n"
    "      --message TEXT    the message (default hello)\n"
    "      --size N          a message of N bytes, which are words\n"
    "      --sends N         number of messages per connection; messages are numbered: \"<i>. Thread <t> - "
    "<message>\".\n"
    "                        Without -c there is one connection per thread given with -t\n"
    "      --show            print each echo\n"
    "\n"
    "ws, wss\n"
    "      --text, --binary  the kind of the messages (default text)\n"
    "      --compress        offer permessage-deflate, and compress messages of 256 bytes or more\n"
    "      --protocol NAME   offer a subprotocol; may be repeated\n"
    "      --cycles N        no messages: connect, send --subscribe, close, N times on each connection\n"
    "      --subscribe TEXT  first message of a subscriber, or of a connection of --hold or --cycles\n"
    "      --hold            no messages: the connections stay idle (also http, https, tcp, unix)\n"
    "\n"
    "Fan-out: publishers send messages, which the server must deliver to all connections\n"
    "      --fanout          subscribers are the connections to URL; latency counts from the publication. --rate and\n"
    "                        --requests count publications; without --rate a publisher sends its next message when\n"
    "                        all subscribers have the last one\n"
    "      --sse             server-sent events: subscribers are GET requests, publications POST requests (http, "
    "https)\n"
    "      --publishers N    additional connections that publish (default 1)\n"
    "      --publish-path P  their path (default: that of the URL)\n"
    "      --topics N        subscriber s and publisher p have the topics s and p modulo N, which replace {topic} in\n"
    "                        --subscribe, --publish-path and the path of the URL (default 1)\n"
    "      --stalled N       N subscribers never read\n"
    "\n"
    "Report\n"
    "      --latency         print the latency distribution\n"
    "      --threshold TEXT  a condition on the result: \"p99 < 5ms\", \"errors < 0.1%\", \"lost == 0\"; may be\n"
    "                        repeated\n"
    "      --json FILE, --csv FILE, --html FILE\n"
    "                        write the report to a file\n"
    "  -q, --quiet           show no progress\n"
    "  -h, --help            print this help\n"
    "\n"
    "Counts and rates may end in k, M or G (thousands, millions, billions), times in us, ms, s, m or h (default s).\n"
    "SIGINT ends the run early, with a report; a second SIGINT ends the program at once.\n"
    "Exit status: 0: success; 99: a threshold was missed, or an expectation failed without a threshold on errors or\n"
    "checks; 1: the run or its rate failed; 2: invalid command line.\n";

void ls_stress_options_usage(FILE *to)
{
    fputs(usage, to);
}

/* The edit distance (Damerau and Levenshtein, adjacent transpositions) of a given name and the name of an option. */
static unsigned distance(const char *given, const char *name)
{
    enum { NAME_BYTES_MAX = 24 };
    unsigned rows[3][NAME_BYTES_MAX + 1];
    const size_t n = strlen(name), m = strcspn(given, "=");
    if (n > NAME_BYTES_MAX || m > 2 * NAME_BYTES_MAX) return UINT32_MAX;
    for (size_t i = 0; i <= m; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            row[j] = (unsigned)j;
            if (i == 0) continue;
            const unsigned changed = above[j - 1] + (given[i - 1] != name[j - 1]);
            row[j] = (above[j] < row[j - 1] ? above[j] : row[j - 1]) + 1;
            if (changed < row[j]) row[j] = changed;
            const bool swapped = i > 1 && j > 1 && given[i - 1] == name[j - 2] && given[i - 2] == name[j - 1];
            if (swapped && before[j - 2] + 1 < row[j]) row[j] = before[j - 2] + 1;
        }
    }
    return rows[m % 3][n];
}

/* The option whose name is nearest to `given`: at most a third of its letters differ, or it begins with `given`, which
 * has two letters or more. NULL: none. */
static const char *nearest(const char *given)
{
    const size_t len = strcspn(given, "=");
    const char *best = NULL;
    unsigned least = (unsigned)(len / 3 > 2 ? len / 3 : 2) + 1;
    for (unsigned i = 0; i < ls_stress_options_known_count; i++) {
        const char *name = ls_stress_options_known[i].name;
        if (name == NULL) continue;
        const unsigned changes = len >= 2 && strncmp(name, given, len) == 0 ? 1 : distance(given, name);
        if (changes >= least) continue;
        best = name;
        least = changes;
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
            ls_stress_why_set(why, "more than one script: %s and %s", o->plan.script_path, argument);
            return LS_EINVAL;
        }
        o->plan.script_path = argument;
        o->plan.dialect = LS_STRESS_DIALECT_TABLE;
        return LS_OK;
    }
    if (o->url != NULL) {
        ls_stress_why_set(why, "unexpected argument \"%s\": the URL is %s already", argument, o->url);
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
    o->plan.config.tls_resume = true;
    o->plan.config.timeout_ns = UINT64_C(10000000000);
    o->plan.body_bytes_max = LS_STRESS_BODY_BYTES_DEFAULT;
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
            ls_stress_why_set(&why, "unknown option %s%s%s%s (see luaserve stress --help)", argument,
                              near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                              near != NULL ? "?" : "");
            return LS_EINVAL;
        }
        if (!option->takes_value && value != NULL) {
            ls_stress_why_set(&why, "%s takes no value", argument);
            return LS_EINVAL;
        }
        if (option->takes_value && value == NULL && (value = ++at < argc ? argv[at] : NULL) == NULL) {
            ls_stress_why_set(&why, "missing value of %s: %s", argument, option->right);
            return LS_EINVAL;
        }
        if (ls_stress_options_set(o, option, argument, value, &why) < 0) return LS_EINVAL;
        o->given |= UINT64_C(1) << (option - ls_stress_options_known);
        if (o->help) return LS_OK;
    }
    if (o->url == NULL && o->plan.dialect != LS_STRESS_DIALECT_TABLE) {
        ls_stress_why_set(&why,
                          "missing URL or script; usage: luaserve stress [options] URL (see luaserve stress --help)");
        return LS_EINVAL;
    }
    return LS_OK;
}
