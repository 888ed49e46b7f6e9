"""The report: medians and ratios of what was measured, and one table that holds them against what is asked.

`results` is {section: {server: [one dict per round]}}; a round that could not be run is None. Ratios are made round
by round, between runs that stood next to each other, and then the median is taken.
"""
from statistics import median

MIB = 1 << 20
CPU_SECTIONS = {
    "hello-1": "hello (13 bytes), 1 connection",
    "hello-64": "hello (13 bytes), 64 connections",
    "hello-512": "hello (13 bytes), 512 connections",
    "json": "route + query + JSON, 64 connections",
    "pipelined": "hello, 16 pipelined, 64 connections",
    "close": "hello, a connection per request, 64 at a time",
}

# What is asked: (row, section, server, field, server to divide by or None, at most, how it is written)
ASKED = (
    ("hello from Lua / nginx return 200", "hello-64", "luaserve", "us", "nginx", 0.90, "ratio"),
    ("hello from Lua / bare epoll responder", "hello-64", "luaserve", "us", "bare-epoll", 1.20, "ratio"),
    ("route + query + JSON / nginx-lua", "json", "luaserve", "us", "nginx-lua", 0.75, "ratio"),
    ("16 pipelined hellos / nginx return 200", "pipelined", "luaserve", "us", "nginx", 0.30, "ratio"),
    ("connection per request / nginx return 200", "close", "luaserve", "us", "nginx", 1.00, "ratio"),
    ("user memory per idle connection", "idle", "luaserve", "user", None, 512, "bytes"),
    ("p99 beside a busy handler, default threads", "stall-busy", "luaserve default threads", "p99_ms", None, 20, "ms"),
    ("p99 beside a blocking handler, default threads", "stall-block", "luaserve default threads", "p99_ms", None, 20,
     "ms"),
    ("p99 beside a blocking handler, --threads 1", "stall-block", "luaserve --threads 1", "p99_ms", None, 20, "ms"),
    ("copied by the core, 1 MiB Lua string", "copies", "luaserve", "string", None, 0, "bytes"),
    ("copied by the core, 1 MiB body echoed", "copies", "luaserve", "echo", None, 0, "bytes"),
    ("resident growth over {requests} requests", "growth", "luaserve", "growth", None, MIB - 1, "KiB"),
)
UNITS = {  # how a value is written, and what it is divided by before
    "ratio": ("{:.3f}", 1),
    "bytes": ("{:,.0f} bytes", 1),
    "ms": ("{:.2f} ms", 1),
    "KiB": ("{:,.0f} KiB", 1024),
}


def shown(value, unit):
    form, divisor = UNITS[unit]
    return form.format(value / divisor)


def rounds_of(results, section, server):
    return results.get(section, {}).get(server, [])


def values(results, section, server, field, divide_by=None):
    """One value per round that was run; with `divide_by` the ratio of the two servers in that round."""
    found = []
    others = rounds_of(results, section, divide_by) if divide_by else None
    for i, one in enumerate(rounds_of(results, section, server)):
        other = others[i] if others and i < len(others) else None
        if one is None or (divide_by and not other):
            continue
        found.append(one[field] / other[field] if divide_by else one[field])
    return found


def failures(results, section, server):
    return sum(one.get("failures", 0) for one in rounds_of(results, section, server) if one)


def table(rows):
    """Text lines of a table, the first row its heading. First and last column (words) flush left, figures right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    ends = (0, len(widths) - 1)
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[i]) if i in ends else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def cpu_lines(results, section):
    rows = [("server", "us/request", "min..max", "user", "system", "requests/s", "of nginx", "notes")]
    for server in results[section]:
        us = values(results, section, server, "us")
        if not us:
            rows.append((server, "-", "", "", "", "", "", "not measured"))
            continue
        of = values(results, section, server, "us", "nginx")
        runs = [one for one in rounds_of(results, section, server) if one]
        notes = []
        if failures(results, section, server):
            notes.append(f"{failures(results, section, server)} failed")
        if 2 * sum(one["generator_bound"] for one in runs) > len(runs):
            notes.append(f"generator-bound (wrk {median(one['generator_share'] for one in runs):.0%}, "
                         f"server {median(one['server_share'] for one in runs):.0%})")
        user, system, speed = (median(values(results, section, server, field))
                               for field in ("user_us", "system_us", "per_second"))
        rows.append((server, f"{median(us):.2f}", f"{min(us):.2f}..{max(us):.2f}", f"{user:.2f}", f"{system:.2f}",
                     f"{speed:,.0f}",
                     f"{median(of):.2f}" if of else "", "; ".join(notes)))
    return [CPU_SECTIONS[section] + ": server CPU per request"] + table(rows)


def idle_lines(results):
    rows = [("server", "user bytes", "min..max", "resident bytes", "connections")]
    for server in results["idle"]:
        user = values(results, "idle", server, "user")
        if user:
            rows.append((server, f"{median(user):,.0f}", f"{min(user):,.0f}..{max(user):,.0f}",
                         f"{median(values(results, 'idle', server, 'resident')):,.0f}",
                         f"{values(results, 'idle', server, 'connections')[0]:,}"))
    title = "memory per idle keep-alive connection (growth after a warm-up; tables made at start are not in it)"
    return [title] + table(rows)


def growth_lines(results):
    lines = ["resident growth, warm server -> after the requests and 2 s idle"]
    for one in rounds_of(results, "growth", "luaserve"):
        if one:
            lines.append(f"  {one['requests']:,} requests: {one['growth'] / 1024:+,.0f} KiB "
                         f"to {one['resident'] / MIB:.1f} MiB "
                         f"({one['from_fresh'] / 1024:+,.0f} KiB from before the first request)")
    return lines


def stall_lines(results, section):
    what = "computes for 1 s" if section == "stall-busy" else "blocks in os.execute for 1 s"
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
    title = f"64 clients on schedule (10/s each) while one request after the other {what}; from the intended moment"
    return [title] + table(rows)


def judge(results):
    """The rows of the closing table, with verdicts: a list of dicts."""
    rows = []
    for what, section, server, field, divide_by, at_most, unit in ASKED:
        found = values(results, section, server, field, divide_by)
        wrong = failures(results, section, server) + (failures(results, section, divide_by) if divide_by else 0)
        requests = [f"{n:,}" for n in values(results, section, server, "requests")] if section == "growth" else []
        row = {"what": what.format(requests=requests[0] if requests else "1,000,000"), "unit": unit,
               "at_most": at_most, "asked": "< 1 MiB" if section == "growth" else shown(at_most, unit),
               "measured": None}
        if not found:
            row["verdict"] = "not measured"
        else:
            row.update(measured=median(found), min=min(found), max=max(found), rounds=len(found))
            row["verdict"] = "met" if row["measured"] <= at_most and not wrong else "not met"
            if wrong:
                row["verdict"] += f" ({wrong} requests failed)"
        rows.append(row)
    return rows


def asked_lines(rows):
    cells = [("what", "median", "min..max", "asked (at most)", "verdict")]
    for row in rows:
        if row["measured"] is None:
            cells.append((row["what"], "-", "", row["asked"], row["verdict"]))
            continue
        middle, low, high = (shown(row[name], row["unit"]) for name in ("measured", "min", "max"))
        cells.append((row["what"], middle, f"{low.split()[0]}..{high.split()[0]}", row["asked"], row["verdict"]))
    return ["what is asked"] + table(cells)


def warnings(results):
    """What makes figures less sure: a generator at its limit, and others' work on the server's core."""
    bound, disturbed, runs, worst = [], 0, 0, 0.0
    for section in CPU_SECTIONS:
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
                     + ". CPU per request is still the server's, with the wake-ups of one that is not full; requests/s "
                     "is the generator's.")
    if disturbed:
        lines.append(f"The machine was not quiet: in {disturbed} of {runs} runs others took more than 5% of the "
                     f"server's core (at most {worst:.0%}).")
    return lines


def render(results, rows):
    parts = [cpu_lines(results, section) for section in CPU_SECTIONS if results.get(section)]
    if results.get("idle"):
        parts.append(idle_lines(results))
    if results.get("growth"):
        parts.append(growth_lines(results))
    parts += [stall_lines(results, section) for section in ("stall-busy", "stall-block") if results.get(section)]
    parts.append(asked_lines(rows))
    parts.append(warnings(results))
    return "\n\n".join("\n".join(part) for part in parts if part)
