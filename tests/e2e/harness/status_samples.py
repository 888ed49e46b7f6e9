"""Fixed samples of the status page: 122 seconds of a busy site, always the same."""
import math
import random

BOUNDS = [5e-5 * 2 ** (i / 2) for i in range(42)]
ROUTES = [("/", 0.0004, 30), ("/items/:id", 0.0012, 60), ("/search", 0.018, 14), ("/export.csv", 0.31, 1), ("/static/*path", 0.0003, 90),
          ("/login", 0.003, 4), ("/api/orders/:id", 0.002, 9)]
TRACE = ("GET /search: site.lua:91: attempt to index a nil value (field 'rows')\n\tstack traceback:\n\t\tsite.lua:91: in function 'search'\n"
         "\t\tsite.lua:120: in function <site.lua:118>")


def samples(count=122):
    draw, responses = random.Random(7), 4182377
    routes = [{"route": name, "count": 0, "failed": 0, "sum_us": 0, "buckets": [0] * 43} for name, _, _ in ROUTES]
    out = []
    for t in range(count):
        for route, (name, median, each) in zip(routes, ROUTES):
            slow = 6 if 70 < t < 90 and name in ("/search", "/items/:id") else 1
            for _ in range(int(each * (1 + 0.4 * math.sin(t / 15)) * draw.uniform(0.8, 1.2))):
                time = median * slow * math.exp(draw.gauss(0, 0.5)) * (8 if draw.random() < 0.01 else 1)
                route["buckets"][next((i for i, b in enumerate(BOUNDS) if time <= b), 42)] += 1
                route["count"] += 1
                route["sum_us"] += int(time * 1e6)
                route["failed"] += slow > 1 and draw.random() < 0.03
                responses += 1
        out.append({
            "version": "0.1.0", "site": "shop/site.lua", "pid": 4711, "now": 266400 + t, "resident_bytes": 71300000,
            "first_us": 50, "routes": [dict(r, buckets=list(r["buckets"])) for r in routes],
            "stats": {"uptime": 266400 + t, "responses": responses, "connections_open": 412, "http2_connections": 9000, "websockets": 1204,
                      "refused": 17, "accepts": 81234, "threads": 4, "threads_stalled": 1, "lua_states": 3, "lua_bytes": 18400000,
                      "bytes_live": 6100000, "bytes_peak": 22000000, "topic_retained_bytes": 40960, "old_sites": 0,
                      "sqlite_connections": 4, "sqlite_waiting": 0, "redis_connections": 0, "redis_waiting": 0, "postgres_connections": 8,
                      "postgres_waiting": 2, "running": {"requests": 3, "connections": 12, "websockets": 1204, "site": 0, "timers": 2, "jobs": 5}},
            "threads": [{"thread": 1, "state": 1, "lua": True, "what": "request 1f GET /export.csv", "line": "export.lua:40", "for_s": 2.41},
                        {"thread": 2, "idle": True}, {"thread": 3, "lua": True, "for_s": 0.012}, {"thread": 4, "idle": True}],
            "waiting": [{"what": "request 2a GET /poll", "scope": "a request", "client": "203.0.113.9", "for_s": 12.25,
                         "line": 'poll.lua:31 for the channel "news"'},
                        {"what": "request 2b GET /search", "scope": "a request", "client": "2001:db8::5", "line": "site.lua:88", "for_s": 0.35},
                        {"scope": "a job of a request", "line": "worker.lua:12"}],
            "errors": [{"number": 3, "at_ms": 1790000090000, "text": TRACE}, {"number": 2, "at_ms": 1790000071000, "text": "POST /items: database is locked"}],
            "states": [{"state": n, "bytes": 6100000 * n / 2, "requests": n, "websockets": 400 + n, "jobs": n, "timers": 1} for n in (1, 2, 3)],
            "topics": [{"topic": "news", "subscribers": 812}, {"topic": "room/4", "subscribers": 31}],
            "dicts": [{"dict": "sessions", "entries": 15402, "bytes": 9100000}, {"dict": "rates", "entries": 881, "bytes": 120000}]})
    return out
