"""The report: medians and ratios of the measurements, and one table that compares them with the targets.

`results` is {section: {server: [one dict per round]}}; a round that could not be run is None. Ratios are computed
round by round, between adjacent runs; the result is their median.
"""
from statistics import median

MIB = 1 << 20
CPU_SECTIONS = {  # section: (title, unit, server to compare with)
    "hello-1": ("hello (13 bytes), 1 connection", "request", "nginx"),
    "hello-64": ("hello (13 bytes), 64 connections", "request", "nginx"),
    "hello-512": ("hello (13 bytes), 512 connections", "request", "nginx"),
    "json": ("route + query + JSON, 64 connections", "request", "nginx"),
    "dict-incr": ("a counter in a dict, 64 connections", "request", "nginx-lua"),
    "dict-get": ("a table of 10 fields from a dict, 64 connections", "request", "nginx-lua"),
    "pipelined": ("hello, 16 pipelined, 64 connections", "request", "nginx"),
    "close": ("hello, a connection per request, 64 at a time", "request", "nginx"),
    "tls-hello": ("hello over TLS 1.3, 64 connections", "request", "nginx tls"),
    "tls-100k": ("a file of 100 KiB over TLS 1.3, 64 connections", "request", "nginx tls"),
    "tls-full": ("a full TLS 1.3 handshake (P-256) per request, 64 at a time", "request", "nginx tls"),
    "tls-resumed": ("a resumed TLS 1.3 handshake per request, 64 at a time", "request", "nginx tls"),
    "static-1k": ("a file of 1 KiB, 64 connections", "request", "nginx files"),
    "static-100k": ("a file of 100 KiB, 64 connections", "request", "nginx files"),
    "static-10m": ("a file of 10 MiB, 16 connections", "request", "nginx files"),
    "tcp-echo": ("TCP echo, 64 bytes, 64 connections", "message", "bare-echo"),
    "tcp-echo-64k": ("TCP echo, 64 KiB, 64 connections (the ratio is that of CPU per byte)", "message", "bare-echo"),
    "udp-echo": ("UDP echo, 64 bytes, 16 peers with 8 in flight each", "datagram", "bare-udp"),
    "tcp-proxy": ("TCP proxy, 1 MiB there and back, 4 connections (the ratio is that of CPU per byte)", "block", "haproxy-tcp"),
    "ws-echo": ("WebSocket echo, 64 bytes, 64 connections", "message", "bun"),
    "ws-echo-16k": ("WebSocket echo, 16 KiB, 64 connections", "message", "bun"),
    "ws-echo-burst": ("WebSocket echo, 64 bytes, 64 connections with 16 messages in flight each", "message", "bun"),
    "ws-fanout-64": ("64 bytes to 1,000 WebSocket subscribers, 50 times a second", "delivery", "bun"),
    "ws-fanout-1k": ("1 KiB to 1,000 WebSocket subscribers, 50 times a second", "delivery", "bun"),
    "ws-burst-4": ("64 bytes to 1,000 WebSocket subscribers, 4 messages in flight", "delivery", "bun"),
    "ws-burst-16": ("64 bytes to 1,000 WebSocket subscribers, 16 messages in flight", "delivery", "bun"),
    "ws-fanout-deflate": ("1 KiB to 1,000 WebSocket subscribers, with and without permessage-deflate", "delivery", "luaserve ws"),
    "ws-sse": ("64 bytes to 1,000 WebSocket subscribers, to 1,000 clients of server-sent events", "delivery", "luaserve ws"),
    "middleware-fields": ("hello behind three middlewares that add a field, 64 connections", "request", "luaserve fields (before)"),
    "access-log": ("hello with a line for each request in a file and metrics, and without, 64 connections", "request", "luaserve"),
    "middleware-page": ("a page of res:html, and behind one middleware, 64 connections", "request", "luaserve page"),
    "client-13": ("a proxied response of 13 bytes, 64 connections", "request", "nginx proxy"),
    "client-tls": ("the same with TLS 1.3 in front", "request", "nginx proxy tls"),
    "client-100k": ("a proxied response of 100 KiB, 64 connections", "request", "nginx proxy"),
    "client-1m": ("a proxied response of 1 MiB, 16 connections", "request", "nginx proxy"),
    "client-ws": ("a proxied WebSocket echo, 64 bytes, 64 connections", "message", "nginx proxy ws"),
    "client-cache": ("a response of 1 KiB out of the cache of the proxy, 64 connections", "request", "nginx proxy"),
    "client-fetch": ("a handler with a request for 13 bytes to an upstream, 64 connections", "request", "nginx-lua fetch"),
    "h2-hello": ("hello over HTTP/2 and TLS, 16 connections x 32 streams (h2o, nghttpd: a file of 13 bytes)", "request", "nginx h2"),
    "h2-single": ("the same, 64 connections x 1 stream", "request", "nginx h2"),
    "h2-100k": ("100 KiB over HTTP/2 and TLS, 16 connections x 8 streams (luaserve: a Lua string, the others: a file)", "request", "nginx h2"),
    "h2-websocket": ("an echo of 64 bytes over a WebSocket and TLS, 64 connections", "echo", "luaserve http/1.1"),
    "h2-sse": ("64 bytes to 1,000 clients of server-sent events over TLS (HTTP/2: on 100 connections)", "delivery", "luaserve http/1.1"),
    "sites-page": ("a template page with 20 variables and 50 rows, 64 connections", "request", "nginx-lua template"),
    "sites-gzip": ("4 KiB of JSON, compressed with gzip for each request (kept: out of the cache of compress)", "request", "nginx pages"),
    "sites-upload": ("an upload that is written to a file (per MiB; luaserve: by multipart)", "request", "nginx-lua pages"),
    "data-select": ("a row of SQLite by its key, 64 connections", "request", "bun sqlite"),
    "data-insert": ("an insert into SQLite in a transaction of its own, synchronous = normal, 64 connections", "request", "bun sqlite"),
    "data-redis": ("a value of Redis, 64 connections", "request", "nginx-lua redis"),
    "data-topics": ("topics over Redis: 64 bytes to 1,000 WebSocket subscribers behind HAProxy", "delivery",
                    "luaserve topics, one server"),
    "data-postgres": ("a row of PostgreSQL by its key, 64 connections", "request", "node postgres"),
}
ADDED_SECTIONS = {"sites-session": "a handler that reads a sealed session, and one without",
                  "sites-limit": "a request with a rate limit per address, and without"}
START_SECTIONS = {"start": "a server with two threads", "start-dev": "luaserve dev"}
PLURAL = {"delivery": "deliveries"}
S8_SECTIONS = {"s8-1": 1, "s8-100": 100, "s8-1000": 1000, "s8-10000": 10000}  # section: clients
COST_SECTIONS = {
    "stress-plain": "cost of a request for the client: the same URL again and again, 64 connections",
    "stress-script": "the same with a request hook of a wrk script (examples/stress/wrk/counter.lua)",
    "tls-stress": "cost of a request over TLS 1.3 for the client: the same URL again and again, 64 connections",
}
IDLE_SECTIONS = {
    "idle": "memory per idle keep-alive connection (growth after a warm-up, without tables allocated at the start)",
    "tls-idle": "memory per idle keep-alive connection over TLS 1.3 (growth after a warm-up)",
    "h2-idle": "memory per idle connection of HTTP/2 over TLS, after a request (growth after a warm-up)",
    "ws-idle": "memory per idle WebSocket connection, after an echo (growth after a warm-up)",
    "idle-tcp": "memory per idle TCP connection whose coroutine waits for data (growth after a warm-up)",
}
CHURN_SECTIONS = {"tcp-churn": "TCP connections opened, used and closed",
                  "ws-churn": "WebSocket connections that come, subscribe, receive a message and go"}

# The targets: (row, section, server, field, server to divide by or None, at most, unit)
ASKED = (
    ("hello from Lua / nginx return 200", "hello-64", "luaserve", "us", "nginx", 0.90, "ratio"),
    ("hello from Lua / bare epoll responder", "hello-64", "luaserve", "us", "bare-epoll", 1.20, "ratio"),
    ("route + query + JSON / nginx-lua", "json", "luaserve", "us", "nginx-lua", 0.75, "ratio"),
    ("dict:incr / ngx.shared incr", "dict-incr", "luaserve", "us", "nginx-lua", 1.00, "ratio"),
    ("dict, table of 10 fields / ngx.shared and JSON", "dict-get", "luaserve", "us", "nginx-lua", 0.80, "ratio"),
    ("16 pipelined hellos / nginx return 200", "pipelined", "luaserve", "us", "nginx", 0.30, "ratio"),
    ("connection per request / nginx return 200", "close", "luaserve", "us", "nginx", 1.00, "ratio"),
    ("user memory per idle connection", "idle", "luaserve", "user", None, 256, "bytes"),
    ("p99 beside a busy handler, default threads", "stall-busy", "luaserve default threads", "p99_ms", None, 20, "ms"),
    ("p99 beside a blocking handler, default threads", "stall-block", "luaserve default threads", "p99_ms", None, 20, "ms"),
    ("p99 beside a blocking handler, --threads 1", "stall-block", "luaserve --threads 1", "p99_ms", None, 20, "ms"),
    ("copied by the core, 1 MiB Lua string", "copies", "luaserve", "string", None, 0, "bytes"),
    ("copied by the core, 1 MiB body echoed", "copies", "luaserve", "echo", None, 0, "bytes"),
    ("resident growth over {requests} requests", "growth", "luaserve", "growth", None, MIB - 1, "KiB"),
    ("user memory after the start / before", "start", "luaserve", "user", "luaserve (before)", 0.50, "ratio"),
    ("time from the start to the first answer / before", "start", "luaserve", "ms", "luaserve (before)", 1.00, "ratio"),
    ("luaserve dev: time from the start to the first answer", "start-dev", "luaserve", "ms", None, 100, "ms"),
    ("hello behind three middlewares / before, with results of next()", "middleware-fields", "luaserve fields", "us",
     "luaserve fields (before)", 1.00, "ratio"),
    ("hello with an access log and metrics / without", "access-log", "luaserve access log and metrics", "us", "luaserve", 1.06, "ratio"),
    ("the same of nginx, for comparison", "access-log", "nginx access log", "us", "nginx", 2.00, "ratio"),
    ("a page behind one middleware / without", "middleware-page", "luaserve page, middleware", "us", "luaserve page", 1.10, "ratio"),
    ("failed requests, {reloads} reloads under load", "reload", "luaserve reload", "failures", None, 0, "count"),
    ("closed connections, {reloads} reloads under load", "reload", "luaserve reload", "closed", None, 0, "count"),
    ("resident growth over {reloads} reloads", "reload", "luaserve reload", "growth", None, 2 * MIB - 1, "KiB"),
    ("TCP echo, 64 bytes / bare echo: CPU per message", "tcp-echo", "luaserve tcp.lua", "us", "bare-echo", 1.25, "ratio"),
    ("TCP echo, 64 KiB / bare echo: CPU per byte", "tcp-echo-64k", "luaserve tcp.lua", "us", "bare-echo", 1.10, "ratio"),
    ("UDP echo, 64 bytes / bare echo: CPU per datagram", "udp-echo", "luaserve udp.lua", "us", "bare-udp", 0.90, "ratio"),
    ("TCP proxy, 1 MiB / HAProxy: CPU per byte", "tcp-proxy", "luaserve proxy.lua", "us", "haproxy-tcp", 1.00, "ratio"),
    ("resident memory per idle TCP connection", "idle-tcp", "luaserve tcp.lua", "resident", None, 1900, "bytes"),
    ("descriptors left by closed connections", "tcp-churn", "luaserve tcp.lua", "descriptors", None, 0, "count"),
    ("resident growth from their first round to the last", "tcp-churn", "luaserve tcp.lua", "growth", None, MIB - 1, "KiB"),
    ("hello over TLS 1.3 / nginx", "tls-hello", "luaserve tls", "us", "nginx tls", 0.90, "ratio"),
    ("a full TLS handshake per request (P-256) / nginx", "tls-full", "luaserve tls", "us", "nginx tls", 1.00, "ratio"),
    ("a resumed TLS handshake per request / nginx", "tls-resumed", "luaserve tls", "us", "nginx tls", 1.00, "ratio"),
    ("100 KiB over TLS / nginx", "tls-100k", "luaserve tls", "us", "nginx tls", 1.00, "ratio"),
    ("user memory per idle TLS connection / nginx", "tls-idle", "luaserve tls", "user", "nginx tls", 0.90, "ratio"),
    ("client CPU over TLS / wrk", "tls-stress", "luaserve stress", "us", "wrk", 1.00, "ratio"),
    ("file of 1 KiB / nginx with sendfile", "static-1k", "luaserve files", "us", "nginx files", 0.65, "ratio"),
    ("file of 100 KiB / nginx with sendfile", "static-100k", "luaserve files", "us", "nginx files", 0.95, "ratio"),
    ("file of 10 MiB / nginx with sendfile", "static-10m", "luaserve files", "us", "nginx files", 1.00, "ratio"),
    ("client CPU, plain URL / wrk", "stress-plain", "luaserve stress", "us", "wrk", 0.90, "ratio"),
    ("client CPU, request hook / wrk with LuaJIT", "stress-script", "luaserve stress", "us", "wrk", 1.10, "ratio"),
    ("p99.9 of an open loop, server frozen for 500 ms: deviation from the true value", "stress-freeze", "open loop", "off", None, 0.10,
     "percent"),
    ("rate off by, 1,000/s", "stress-rate", "1,000/s", "off", None, 0.01, "percent"),
    ("rate off by, 20,000/s", "stress-rate", "20,000/s", "off", None, 0.01, "percent"),
    ("rate off by, half of saturation", "stress-rate", "half of saturation", "off", None, 0.01, "percent"),
    ("resident memory of the client, 10,000 connections", "stress-memory", "luaserve stress", "resident", None, 64 * MIB, "KiB"),
    ("WebSocket echo, 64 bytes / Bun", "ws-echo", "luaserve ws", "us", "bun", 1.00, "ratio"),
    ("WebSocket echo, 16 KiB / Bun", "ws-echo-16k", "luaserve ws", "us", "bun", 0.90, "ratio"),
    ("16 WebSocket echoes in flight, 64 bytes / Bun", "ws-echo-burst", "luaserve ws", "us", "bun", 0.90, "ratio"),
    ("64 bytes to 1,000 subscribers / Bun", "ws-fanout-64", "luaserve ws", "us", "bun", 1.00, "ratio"),
    ("1 KiB to 1,000 subscribers / Bun", "ws-fanout-1k", "luaserve ws", "us", "bun", 1.00, "ratio"),
    ("64 bytes to 1,000 subscribers, 4 messages in flight / Bun", "ws-burst-4", "luaserve ws", "us", "bun", 1.00, "ratio"),
    ("64 bytes to 1,000 subscribers, 16 messages in flight / Bun", "ws-burst-16", "luaserve ws", "us", "bun", 1.00, "ratio"),
    ("1 KiB to 1,000 subscribers with permessage-deflate / without", "ws-fanout-deflate", "luaserve ws deflate", "us",
     "luaserve ws", 1.20, "ratio"),
    ("64 bytes to 1,000 clients of server-sent events / WebSocket", "ws-sse", "luaserve sse", "us", "luaserve ws", 1.00, "ratio"),
    ("p99 delivery with one of 1,000 that does not read / with none", "ws-stalled", "luaserve ws, one stalled", "p99_ms",
     "luaserve ws", 1.10, "ratio"),
    ("user memory per idle WebSocket, event form", "ws-idle", "luaserve ws", "user", None, 1024, "bytes"),
    ("user memory per idle WebSocket, coroutine form", "ws-idle", "luaserve ws coroutine", "user", None, 3072, "bytes"),
    ("descriptors left by closed WebSockets", "ws-churn", "luaserve ws", "descriptors", None, 0, "count"),
    ("resident growth from their round {warm_up} to the last", "ws-churn", "luaserve ws", "growth", None, MIB - 1, "KiB"),
    ("proxy, 13 bytes / nginx", "client-13", "luaserve client", "us", "nginx proxy", 0.90, "ratio"),
    ("proxy with TLS in front, 13 bytes / nginx", "client-tls", "luaserve client tls", "us", "nginx proxy tls", 0.90, "ratio"),
    ("proxy, 100 KiB / nginx", "client-100k", "luaserve client", "us", "nginx proxy", 0.90, "ratio"),
    ("proxy, 1 MiB / nginx", "client-1m", "luaserve client", "us", "nginx proxy", 1.00, "ratio"),
    ("copied by the core, 100 KiB through the proxy", "client-copies", "luaserve client", "100k", None, 0, "bytes"),
    ("copied by the core, 1 MiB through the proxy", "client-copies", "luaserve client", "1m", None, 0, "bytes"),
    ("proxied WebSocket echo, 64 bytes / nginx", "client-ws", "luaserve client ws", "us", "nginx proxy ws", 1.00, "ratio"),
    ("proxied WebSocket echo, 64 bytes / HAProxy", "client-ws", "luaserve client ws", "us", "haproxy proxy ws", 1.00, "ratio"),
    ("proxy cache, 1 KiB / nginx proxy_cache", "client-cache", "luaserve client cache", "us", "nginx proxy", 0.80, "ratio"),
    ("handler with ls.fetch / nginx-lua with a subrequest", "client-fetch", "luaserve client", "us", "nginx-lua fetch", 0.90, "ratio"),
    ("handler with ls.fetch / Bun's fetch", "client-fetch", "luaserve client", "us", "bun fetch", 0.50, "ratio"),
    ("p99 beside 1,000 requests to an upstream that hangs", "client-hang", "luaserve client", "p99_ms", None, 20, "ms"),
    ("resident memory of these 1,000 requests", "client-hang", "luaserve client", "resident", None, 8 * MIB, "KiB"),
    ("HTTP/2, hello, 16 x 32 / nginx return 200", "h2-hello", "luaserve h2", "us", "nginx h2", 0.45, "ratio"),
    ("the same / h2o's file of 13 bytes", "h2-hello", "luaserve h2", "us", "h2o h2", 1.70, "ratio"),
    ("HTTP/2, hello, 64 x 1 / nginx return 200", "h2-single", "luaserve h2", "us", "nginx h2", 0.90, "ratio"),
    ("HTTP/2, 100 KiB from a Lua string, 16 x 8 / nginx's file", "h2-100k", "luaserve h2", "us", "nginx h2", 0.80, "ratio"),
    ("user memory per idle HTTP/2 connection / nginx", "h2-idle", "luaserve h2", "user", "nginx h2", 1.30, "ratio"),
    ("sends per 32 responses to requests of one read", "h2-sends", "luaserve h2", "sends", None, 2, "number"),
    *((f"p99 of streams beside one that {does}, {threads}", "h2-stall", f"luaserve h2 {threads}, {shown}", "p99_ms", None, 20, "ms")
      for threads in ("default threads", "--threads 1")
      for shown, does in (("computes", "computes for 1 s"), ("blocks", "blocks for 1 s"), ("10 MiB", "sends 10 MiB"),
                          ("unread", "is not read"))),
    ("WebSocket echo, HTTP/2 / HTTP/1.1", "h2-websocket", "luaserve h2", "us", "luaserve http/1.1", 1.30, "ratio"),
    ("server-sent events, HTTP/2 / HTTP/1.1", "h2-sse", "luaserve h2", "us", "luaserve http/1.1", 0.60, "ratio"),
    ("template page / lua-resty-template in nginx-lua", "sites-page", "luaserve pages", "us", "nginx-lua template", 1.00, "ratio"),
    ("JSON of 4 KiB with gzip / nginx", "sites-gzip", "luaserve pages", "us", "nginx pages", 1.00, "ratio"),
    ("CPU that reading a sealed session adds", "sites-session", "luaserve pages", "added_us", None, 1.5, "us"),
    ("CPU that a rate limit adds / limit_req of nginx", "sites-limit", "luaserve pages", "added_us", "nginx pages", 1.00, "ratio"),
    ("upload by multipart: CPU per byte / nginx, body to a file", "sites-upload", "luaserve pages", "us", "nginx-lua pages", 1.20,
     "ratio"),
    ("upload of {requests} MiB: growth of resident memory", "sites-upload", "luaserve pages", "growth", None, MIB, "KiB"),
    ("SQLite select by key / bun:sqlite", "data-select", "luaserve sqlite", "us", "bun sqlite", 1.00, "ratio"),
    ("SQLite insert: time between two responses / bun:sqlite", "data-insert", "luaserve sqlite", "interval_us", "bun sqlite", 1.00,
     "ratio"),
    ("p99 beside a SQLite reader that is busy for 1 s", "data-busy", "luaserve sqlite threads", "p99_ms", None, 20, "ms"),
    ("Redis GET / nginx-lua with lua-nginx-redis", "data-redis", "luaserve redis", "us", "nginx-lua redis", 0.90, "ratio"),
    ("topics over two servers by Redis / one server: CPU per delivery", "data-topics", "luaserve topics, two servers", "us",
     "luaserve topics, one server", 1.10, "ratio"),
    ("PostgreSQL select by key / node with pg", "data-postgres", "luaserve postgres", "us", "node postgres", 0.60, "ratio"),
    ("S9: echoes lost or wrong", "stress-s9", "luaserve stress", "lost", None, 0, "count"),
) + tuple(
    (f"S8 / S7, {clients:,} clients: {what}", section, "luaserve echo.lua", field, "s7", 1.00, "ratio")
    for field, what in (("us", "CPU per message"), ("charged", "memory"))
    for section, clients in S8_SECTIONS.items() if clients >= 100)
UNITS = {  # format of a value, and its divisor
    "ratio": ("{:.3f}", 1),
    "number": ("{:.2f}", 1),
    "bytes": ("{:,.0f} bytes", 1),
    "ms": ("{:.2f} ms", 1),
    "us": ("{:.2f} us", 1),
    "KiB": ("{:,.0f} KiB", 1024),
    "count": ("{:,.0f}", 1),
    "percent": ("{:.2f} %", 0.01),
}


def shown(value, unit):
    form, divisor = UNITS[unit]
    return form.format(value / divisor)


def rounds_of(results, section, server):
    return results.get(section, {}).get(server, [])


def values(results, section, server, field, divide_by=None):
    """One value per round that has it; with `divide_by` the ratio of the two servers in that round."""
    found = []
    others = rounds_of(results, section, divide_by) if divide_by else None
    for i, one in enumerate(rounds_of(results, section, server)):
        other = others[i] if others and i < len(others) else None
        if field not in (one or {}) or (divide_by and field not in (other or {})):
            continue
        found.append(one[field] / other[field] if divide_by else one[field])
    return found


def failures(results, section, server):
    return sum(one.get("failures", 0) for one in rounds_of(results, section, server) if one)


def table(rows, words=None):
    """Text lines of a table, the first row its heading. Columns of words (by default the first and the last) are
    left-aligned, figures right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if words is None:
        words = (0, len(widths) - 1)
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[i]) if i in words else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def generator_note(runs):
    if 2 * sum(one["generator_bound"] for one in runs) <= len(runs):
        return []
    return [f"generator-bound (load {median(one['generator_share'] for one in runs):.0%}, "
            f"server {median(one['server_share'] for one in runs):.0%})"]


def cpu_lines(results, section):
    title, unit, base = CPU_SECTIONS[section]
    rows = [("server", f"us/{unit}", "min..max", "user", "system", f"{PLURAL.get(unit, unit + 's')}/s", f"of {base}", "notes")]
    for server in results[section]:
        us = values(results, section, server, "us")
        if not us:
            rows.append((server, "-", "", "", "", "", "", "not measured"))
            continue
        of = values(results, section, server, "us", base)
        runs = [one for one in rounds_of(results, section, server) if one]
        notes = []
        if failures(results, section, server):
            notes.append(f"{failures(results, section, server)} failed")
        notes += generator_note(runs)
        user, system, speed = (median(values(results, section, server, field)) for field in ("user_us", "system_us", "per_second"))
        rows.append((server, f"{median(us):.2f}", f"{min(us):.2f}..{max(us):.2f}", f"{user:.2f}", f"{system:.2f}",
                     f"{speed:,.0f}", f"{median(of):.2f}" if of else "", "; ".join(notes)))
    return [f"{title}: server CPU per {unit}"] + table(rows)


def before_lines(results, end):
    """CPU time of luaserve divided by that of the program it is compared with, whose names have this end."""
    rows = [("section", "server", "of before", "min..max", "rounds")]
    for section in results:
        for server in results[section]:
            of = values(results, section, server, "us", server + end)
            if of:
                rows.append((section, server, f"{median(of):.3f}", f"{min(of):.3f}..{max(of):.3f}", str(len(of))))
    return ["CPU time / that of the program before"] + table(rows, (0, 1))


def added_lines(results, section):
    rows = [("server", "us without", "us with", "added us", "min..max", "notes")]
    for server in results[section]:
        added = values(results, section, server, "added_us")
        if added:
            failed = failures(results, section, server)
            base, us = (median(values(results, section, server, field)) for field in ("base_us", "us"))
            rows.append((server, f"{base:.2f}", f"{us:.2f}", f"{median(added):.2f}", f"{min(added):.2f}..{max(added):.2f}",
                         f"{failed} failed" if failed else ""))
    return [ADDED_SECTIONS[section] + ", in turn: server CPU per request"] + table(rows)


def idle_lines(results, section):
    rows = [("server", "user bytes", "min..max", "resident bytes", "connections")]
    for server in results[section]:
        user = values(results, section, server, "user")
        if user:
            rows.append((server, f"{median(user):,.0f}", f"{min(user):,.0f}..{max(user):,.0f}",
                         f"{median(values(results, section, server, 'resident')):,.0f}",
                         f"{values(results, section, server, 'connections')[0]:,}"))
    return [IDLE_SECTIONS[section]] + table(rows)


def growth_lines(results):
    lines = ["resident growth, warm server -> after the requests and 2 s idle"]
    for one in rounds_of(results, "growth", "luaserve"):
        if one:
            lines.append(f"  {one['requests']:,} requests: {one['growth'] / 1024:+,.0f} KiB "
                         f"to {one['resident'] / MIB:.1f} MiB "
                         f"({one['from_fresh'] / 1024:+,.0f} KiB from before the first request)")
    return lines


def start_lines(results, section):
    rows = [("server", "ms to the first answer", "min..max", "user memory", "resident memory")]
    for server in results[section]:
        found = values(results, section, server, "ms")
        if found:
            rows.append((server, f"{median(found):.1f}", f"{min(found):.1f}..{max(found):.1f}")
                        + tuple(shown(median(values(results, section, server, field)), "KiB")
                                for field in ("user", "resident")))
    return [f"the start of {START_SECTIONS[section]} with one route"] + table(rows, (0,))


def reload_lines(results):
    rows = [("server", "reloads", "ms", "requests", "long", "failed", "closed", "resident before", "after", "growth")]
    for server in results["reload"]:
        for one in rounds_of(results, "reload", server):
            if one:
                rows.append((server, f"{one['reloads']:,}", f"{one['ms']:.0f}", f"{one['requests']:,}",
                             f"{one['long']:,}", str(one["failures"]), str(one["closed"]),
                             f"{one['before'] / MIB:.2f} MiB", f"{one['resident'] / MIB:.2f} MiB",
                             f"{one['growth'] / 1024:+,.0f} KiB"))
    return ["reloads, 20 ms apart or more, beside 64 busy connections and 100 long requests (ms: median of a reload; memory at "
            "rest, after a warm-up of 500 reloads)"] + table(rows, (0,))


def churn_lines(results, section):
    lines = [CHURN_SECTIONS[section] + " (every second one ends by a reset): resident memory and descriptors"]
    for one in next(iter(results[section].values()), []):
        if one is None:
            continue
        last = one["rounds"]
        when = [(f"after round {i}" if i else "before", *one["seen"][i], "") for i in sorted({0, 1, 2, 5, 10, last}) if i < last]
        when.append((f"in round {last}, {one['connections']:,} open", *one["full"], ""))
        when.append((f"after round {last}", *one["seen"][last], f"{one['growth'] / 1024:+,.0f} KiB since round {one['warm_up']}, "
                     f"{one['from_fresh'] / 1024:+,.0f} KiB in all"))
        rows = [("when", "resident MiB", "descriptors", "")]
        rows += [(what, f"{size / MIB:.1f}", f"{count:,}", note) for what, size, count, note in when]
        lines += table(rows)
    return lines


def s8_lines(results):
    """S8 is luaserve with examples/echo.lua, S6 the one-to-one server, S7 the one with a thread per client."""
    names = {"luaserve echo.lua": "S8, completions", "s6": "S6, one to one", "s7": "S7, thread per client"}
    rows = [("clients", "server", "us/message", "min..max", "messages/s", "threads", "charged MiB", "resident MiB",
             "bytes/client", "notes")]
    for section, clients in S8_SECTIONS.items():
        for server in results.get(section, {}):
            runs = [one for one in rounds_of(results, section, server) if one]
            if not runs:
                rows.append((f"{clients:,}", names[server], "-", "", "", "", "", "", "", "not measured"))
                continue
            charged = values(results, section, server, "charged")
            us, speed, threads, resident, each = (values(results, section, server, field) for field in
                                                  ("us", "per_second", "threads", "resident", "each"))
            failed = failures(results, section, server)
            rows.append((f"{clients:,}", names[server], f"{median(us):.2f}", f"{min(us):.2f}..{max(us):.2f}",
                         f"{median(speed):,.0f}", f"{median(threads):,.0f}",
                         f"{median(charged) / MIB:.1f}" if charged else "-", f"{median(resident) / MIB:.1f}",
                         f"{median(each):,.0f}",
                         "; ".join(([f"{failed} failed"] if failed else []) + generator_note(runs))))
    title = ["echo of 64 bytes, each server on one core: S8 beside S6 and S7, memory while all are connected",
             "(charged: by the kernel to the server's control group, with threads' kernel stacks, sockets and page tables,",
             "without file pages that other processes had read; resident: without kernel memory, with the C library's pages)"]
    return title + table(rows, (1, 9))


def stall_lines(results, section):
    what = {"stall-busy": "computes for 1 s", "stall-block": "blocks in os.execute for 1 s", "data-busy": "reads SQLite for 1 s",
            "client-hang": "is proxied, beside 1,000 others to an upstream that does not answer", "h2-stall": ""}[section]
    rows = [("server", "p50 ms", "p99 ms", "min..max", "max ms", "stalls", "failed", "client's lag p99/max ms")]
    for server in results[section]:
        p99 = values(results, section, server, "p99_ms")
        if not p99:
            continue
        p50, longest, lag_p99, lag_max = (values(results, section, server, f"{name}_ms")
                                          for name in ("p50", "max", "lag_p99", "lag_max"))
        rows.append((server, f"{median(p50):.2f}", f"{median(p99):.2f}", f"{min(p99):.2f}..{max(p99):.2f}",
                     f"{max(longest):.2f}", str(sum(values(results, section, server, "occupied"))),
                     str(failures(results, section, server)), f"{median(lag_p99):.2f}/{max(lag_max):.2f}"))
    if section == "h2-stall":
        return ["200 requests/s on schedule, beside a stream of the same connection that is slow"] + table(rows)
    title = f"64 clients on schedule (10/s each) while another client sends requests of which each {what}; from the intended moment"
    return [title] + table(rows)


def sends_lines(results):
    return [f"sends per 32 responses: {server}: " + ", ".join(f"{number:.2f}" for number in values(results, "h2-sends", server, "sends"))
            for server in results["h2-sends"]]


def count_lines(results):
    rows = [("server", "system calls", "instructions", "allocations", "")]
    for server in results["counts"]:
        for one in filter(None, rounds_of(results, "counts", server)):
            calls = ", ".join(f"{number:.2f} {name}" for name, number in sorted(one["by_name"].items(), key=lambda of: -of[1]))
            rows.append((server, f"{one['calls']:.2f}", f"{one['instructions']:,.0f}", f"{one['allocations']:.2f}", calls))
    return ["counts per request, one connection; instructions of the program and its libraries, without the kernel"] + table(rows)


def attack_lines(results):
    """Of each attack, what exceeds 0.3 of a core, 20 ms at the 99th percentile or 4 MiB is marked."""
    rows = [("attack", "of a core", "p99 ms", "max ms", "client's lag p99 ms", "growth KiB", "")]
    for server in results["h2-attacks"]:
        share, p99, longest, lag, growth = (median(values(results, "h2-attacks", server, name)) for name in (
            "share", "p99_ms", "max_ms", "lag_p99_ms", "growth"))
        over = [what for what, exceeds in (("processor", share > 0.3), ("latency", p99 > 20), ("memory", growth > 4 << 20)) if exceeds]
        rows.append((server.partition(", ")[2], f"{share:.3f}", f"{p99:.2f}", f"{longest:.2f}", f"{lag:.2f}", f"{growth / 1024:,.0f}",
                     "exceeds: " + ", ".join(over) if over else ""))
    return ["a client of HTTP/2 that only costs, for 10 s: the server's processor and memory; latency of another, from the schedule"
            ] + table(rows)


def stalled_lines(results):
    rows = [("server", "p99 ms", "min..max", "deliveries/s", "of none", "notes")]
    for server in results["ws-stalled"]:
        p99 = values(results, "ws-stalled", server, "p99_ms")
        of = values(results, "ws-stalled", server, "p99_ms", "luaserve ws")
        if p99:
            failed = failures(results, "ws-stalled", server)
            rows.append((server, f"{median(p99):.2f}", f"{min(p99):.2f}..{max(p99):.2f}",
                         f"{median(values(results, 'ws-stalled', server, 'per_second')):,.0f}", f"{median(of):.2f}" if of else "",
                         f"{failed} failed" if failed else ""))
    return ["1 KiB to 1,000 subscribers, of which one does not read: time from the publication to the arrival"] + table(rows)


def cost_lines(results, section):
    rows = [("client", "us/request", "min..max", "requests/s", "of wrk", "notes")]
    for client in results[section]:
        us, of = values(results, section, client, "us"), values(results, section, client, "us", "wrk")
        if us:
            failed = failures(results, section, client)
            rows.append((client, f"{median(us):.2f}", f"{min(us):.2f}..{max(us):.2f}",
                         f"{median(values(results, section, client, 'per_second')):,.0f}",
                         f"{median(of):.2f}" if of else "", f"{failed} failed" if failed else ""))
    return [COST_SECTIONS[section]] + table(rows)


def freeze_lines(results):
    rows = [("loop", "p99.9 reported, ms", "true, ms", "off", "notes")]
    for loop in results["stress-freeze"]:
        reported, truth, off, late = (values(results, "stress-freeze", loop, field) for field in ("p999_ms", "truth_ms", "off", "late"))
        if reported:
            rows.append((loop, f"{median(reported):.1f}", f"{median(truth):.1f}", f"{median(off):.1%}",
                         "the engine was late" if any(late) else ""))
    return ["a server that is frozen for 500 ms in the middle, 20,000 requests per second due (the closed loop has 64 "
            "slow responses and reports only those)"] + table(rows)


def rate_lines(results):
    rows = [("rate", "target /s", "reached /s", "off", "p99 ms", "notes")]
    for name in results["stress-rate"]:
        asked, reached, off, p99 = (values(results, "stress-rate", name, field) for field in ("asked", "reached", "off", "p99_ms"))
        if asked:
            rows.append((name, f"{median(asked):,.0f}", f"{median(reached):,.1f}", f"{max(off):.3%}", f"{median(p99):.2f}", ""))
    return ["target rates and rates reached (off: the worst round)"] + table(rows)


def stress_memory_lines(results):
    return [f"resident peak of luaserve stress with {one['connections']:,} connections: {one['resident'] / MIB:.1f} MiB "
            f"({one['requests']:,} requests)" for one in rounds_of(results, "stress-memory", "luaserve stress") if one]


def s9_lines(results):
    lines = ["S9 against S8: 48 threads, a connection each, numbered messages of 30 bytes in turn, every echo compared"]
    for one in rounds_of(results, "stress-s9", "luaserve stress"):
        if one:
            lines.append(f"  {one['messages']:,} messages, {one['per_second']:,.0f}/s, {one['us']:.2f} us of the client "
                         f"each; p50 {one['p50_ms']:.2f} ms, p99 {one['p99_ms']:.2f} ms, max {one['max_ms']:.2f} ms; "
                         f"{one['lost']} lost or wrong")
    return lines


def judge(results, sections):
    """The rows of the closing table that these sections fill, with verdicts: a list of dicts."""
    rows = []
    for what, section, server, field, divide_by, at_most, unit in ASKED:
        if section not in sections:
            continue
        found = values(results, section, server, field, divide_by)
        wrong = failures(results, section, server) + (failures(results, section, divide_by) if divide_by else 0)
        counts = {name: (values(results, section, server, name) or [usual])[0]
                  for name, usual in (("requests", 1000000), ("reloads", 1000), ("warm_up", 5))}
        row = {"what": what.format(**{name: f"{count:,}" for name, count in counts.items()}), "unit": unit,
               "at_most": at_most, "measured": None,
               "asked": f"< {(at_most + 1) // MIB} MiB" if field == "growth" else shown(at_most, unit)}
        if not found:
            row["verdict"] = "not measured"
        else:
            row.update(measured=median(found), min=min(found), max=max(found), rounds=len(found))
            row["verdict"] = "met" if row["measured"] <= at_most and not wrong else "not met"
            if wrong:
                row["verdict"] += f" ({wrong} requests failed)"
        rows.append(row)
    return rows


def target_lines(rows):
    cells = [("what", "median", "min..max", "target (at most)", "verdict")]
    for row in rows:
        if row["measured"] is None:
            cells.append((row["what"], "-", "", row["asked"], row["verdict"]))
            continue
        middle, low, high = (shown(row[name], row["unit"]) for name in ("measured", "min", "max"))
        cells.append((row["what"], middle, f"{low.split()[0]}..{high.split()[0]}", row["asked"], row["verdict"]))
    return ["targets"] + table(cells)


def warnings(results):
    """Conditions that make results less reliable: a generator at its limit, other work on the server's core."""
    bound, disturbed, runs, worst = [], 0, 0, 0.0
    for section in tuple(CPU_SECTIONS) + tuple(S8_SECTIONS) + tuple(ADDED_SECTIONS):
        for server, rounds in results.get(section, {}).items():
            done = [one for one in rounds if one]
            runs += len(done)
            if 2 * sum(one["generator_bound"] for one in done) > len(done):
                bound.append(f"{section} {server}")
            disturbed += sum(one["others_share"] > 0.05 for one in done)
            worst = max([worst] + [one["others_share"] for one in done])
    lines = []
    if bound:
        lines.append("The load generator was the bottleneck (its core full, the server's not) in: " + ", ".join(bound)
                     + ". CPU time is still the server's, including wake-ups of a server that is not fully loaded; the "
                     "requests per second are the generator's.")
    if disturbed:
        lines.append(f"The machine was not quiet: in {disturbed} of {runs} runs other processes took more than 5% of the "
                     f"server's core (at most {worst:.0%}).")
    return lines


def section_lines(results, section):
    """The lines of a section as soon as it is measured. The S8 sections form one table, printed at the end."""
    if section in CPU_SECTIONS:
        return cpu_lines(results, section)
    if section in IDLE_SECTIONS:
        return idle_lines(results, section)
    if section in CHURN_SECTIONS:
        return churn_lines(results, section)
    if section in COST_SECTIONS:
        return cost_lines(results, section)
    if section in START_SECTIONS:
        return start_lines(results, section)
    if section in ADDED_SECTIONS:
        return added_lines(results, section)
    if "stall" in section and section != "ws-stalled" or section in ("data-busy", "client-hang"):
        return stall_lines(results, section)
    return {"growth": growth_lines, "reload": reload_lines, "stress-freeze": freeze_lines,
            "stress-rate": rate_lines, "stress-memory": stress_memory_lines, "stress-s9": s9_lines,
            "ws-stalled": stalled_lines, "h2-sends": sends_lines, "h2-attacks": attack_lines, "counts": count_lines}.get(section, lambda _: [])(results)


def closing_lines(results, rows):
    """The table of S8, the table of targets, and the warnings; an empty line after each."""
    parts = [s8_lines(results) if any(results.get(section) for section in S8_SECTIONS) else [], target_lines(rows), warnings(results)]
    return [line for part in parts if part for line in part + [""]]
