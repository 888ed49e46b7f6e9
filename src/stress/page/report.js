// The page of the HTML report, drawn from the JSON in #run. REPORTS.md specifies the JSON.
(() => {
"use strict";
const { byId, el, svg, timeText, timeTick, countText, several, shortText, rateText, bytesText, secondsText, clockText, shareText,
  linear, logarithmic, charts, show, add, nothing, table } = draw;
const run = JSON.parse(byId("run").textContent);
const due = run.latency_us.corrected, sent = run.latency_us.uncorrected, latency = due || sent;
const percentText = (p) => (p >= 100 ? "max" : "p" + +p.toPrecision(8));

// ---- the percentiles ------------------------------------------------------------------------------------------------
function percentiles() {
  byId("percentiles-text").textContent = due
    ? "Corrected: from the due time of a request. Uncorrected: from its send. Where the two differ, requests waited " +
      "before their send."
    : "From the send of a request to the end of its response. In a closed loop a slow response delays the next request, " +
      "so a stall of the server counts once for each connection.";
  const columns = due ? [["corrected", due], ["uncorrected", sent]] : [["latency", sent]];
  const rows = [["min", "min"], ["mean", "mean"]].map(([name, key]) => [name, ...columns.map(([, h]) => timeText(h[key]))]);
  for (const p of Object.keys(sent.percentiles)) rows.push([p, ...columns.map(([, h]) => timeText(h.percentiles[p]))]);
  rows.push(["max", ...columns.map(([, h]) => timeText(h.max))], ["stdev", ...columns.map(([, h]) => timeText(h.stdev))]);
  table("percentiles", "Latency", ["", ...columns.map(([name]) => name)], rows);
  if (latency.count === 0) {
    nothing("chart-percentiles", "No responses, so no latency to draw.");
    return;
  }
  const curves = columns.filter(([, h]) => h.count > 0);
  // 1 / (1 - q) on a logarithmic axis: each nine has the same width. The maximum is at the right end.
  const base = curves.reduce((a, [, h]) => (h.curve.length > a.length ? h.curve : a), []);
  const last = base.length > 1 ? 100 / (100 - base[base.length - 2][0]) : 1, end = Math.max(last * 2, 10);
  const place = (p) => (p >= 100 ? end : 100 / (100 - p));
  const ticks = [0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999, 99.99999].filter((p) => place(p) < end * 0.9);
  const valueAt = (curve, p) => { const hit = curve.find((c) => c[0] >= p - 1e-7); return hit ? hit[1] : null; };
  const values = base.map((c) => c[1]);
  const limits = run.thresholds.filter((t) => /^p[0-9.]+$/.test(t.metric) && place(+t.metric.slice(1)) <= end &&
    t.limit >= latency.min && t.limit <= latency.max);
  add({
    id: "chart-percentiles", height: 320,
    label: `Latency by percentile. Median ${timeText(latency.percentiles.p50)}, 99th percentile ` +
      `${timeText(latency.percentiles.p99)}, maximum ${timeText(latency.max)}. The table below has the figures.`,
    x: {
      scale: (a, b) => { const s = logarithmic(1, end, a, b); return { at: s.at, ticks: [...ticks.map(place), end] }; },
      end, tick: (x) => (x === end ? "max" : +(100 - 100 / x).toPrecision(8) + "%"), name: "percentile",
    },
    y: { tick: timeTick, log: Math.max(...values) > 20 * Math.max(Math.min(...values), 1e-3) },
    series: curves.map(([name, h], i) => ({ name, style: ["one", "two"][i],
      points: base.map(([p]) => [place(p), valueAt(h.curve, p)]) })),
    marks: ["met", "missed"].filter((style) => limits.some((t) => t.met === (style === "met")))
      .map((style) => ({ name: "threshold, " + style, kind: "mark", style })),
    overlay: (drawing, X, Y) => {
      for (const t of limits) {
        const x = X.at(place(+t.metric.slice(1))), y = Y.at(t.limit);
        drawing.append(svg("path", { class: "mark " + (t.met ? "met" : "missed"), "data-threshold": t.text,
          d: `M${x - 6} ${y}l6 -6l6 6l-6 6Z` }, svg("title", {}, `${t.text}: ${t.met ? "met" : "missed"}`)));
      }
    },
    reading: (i) => [percentText(base[i][0]), curves.map(([name, h]) => [name, timeText(valueAt(h.curve, base[i][0]))])],
  });
}

// ---- over time ----------------------------------------------------------------------------------------------------
// A long run is drawn with at most DRAWN_MAX intervals, each the sum of several; percentiles are their maximum.
const DRAWN_MAX = 900;
function intervals() {
  const every = Math.ceil(run.series.length / DRAWN_MAX);
  if (every <= 1) return run.series;
  const greatest = (list, key) => list.reduce((a, p) => (p[key] !== null && (a === null || p[key] > a) ? p[key] : a), null);
  const out = [];
  for (let i = 0; i < run.series.length; i += every) {
    const part = run.series.slice(i, i + every), first = part[0], last = part[part.length - 1];
    const sum = (key) => part.reduce((a, p) => a + p[key], 0);
    out.push({ from_s: first.from_s, to_s: last.to_s, requests: sum("requests"),
      requests_per_s: sum("requests") / (last.to_s - first.from_s), errors: sum("errors"), failed_status: sum("failed_status"),
      bytes_in: sum("bytes_in"), bytes_out: sum("bytes_out"), connections: greatest(part, "connections"),
      p50_us: greatest(part, "p50_us"), p99_us: greatest(part, "p99_us"), max_us: greatest(part, "max_us") });
  }
  return out;
}

// The rate of the schedule, as the corners of a line.
function schedule(end) {
  if (run.config.mode !== "open") return null;
  if (run.config.stages.length === 0) return [[0, run.config.rate_per_s], [end, run.config.rate_per_s]];
  let at = 0, rate = run.config.rate_per_s || 0;
  const corners = [[0, rate]];
  for (const stage of run.config.stages) {
    const part = Math.min(1, (end - at) / (stage.duration_s || 1));
    if (part <= 0) break;
    corners.push([at + stage.duration_s * part, rate + (stage.rate_per_s - rate) * part]);
    at += stage.duration_s;
    rate = stage.rate_per_s;
  }
  return corners;
}

const CLOCK = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400]; // seconds between ticks

function overTime() {
  const all = intervals();
  if (all.length === 0) {
    for (const id of ["chart-rate", "chart-latency", "chart-errors"]) nothing(id, "The run was too short for a series.");
    byId("series-details").hidden = true;
    return;
  }
  const end = all[all.length - 1].to_s, middle = (p) => (p.from_s + p.to_s) / 2;
  const x = { scale: (a, b) => linear(0, end, a, b, (b - a) / 90, end >= 30 ? CLOCK : []), tick: clockText,
    name: "time since the start" };
  const span = (p) => `${+p.from_s.toFixed(1)} to ${+p.to_s.toFixed(1)} s`;
  const points = (key) => all.map((p) => [middle(p), p[key]]);
  const target = schedule(end);
  const rates = all.map((p) => p.requests_per_s);
  add({
    id: "chart-rate", height: 220, x, y: { tick: shortText, linearOnly: true },
    label: `Requests per second over time, between ${rateText(Math.min(...rates))} and ${rateText(Math.max(...rates))}.`,
    series: [{ name: "responses", style: "one", area: true, points: points("requests_per_s") }],
    lines: target ? [{ name: "target", kind: "scheduled", points: target }] : [],
    reading: (i) => [span(all[i]), [["responses", rateText(all[i].requests_per_s) + "/s"],
      ["connections", countText(all[i].connections)]]],
  });
  const worst = all.reduce((a, p) => Math.max(a, p.p99_us || 0), 0);
  if (latency.count === 0) nothing("chart-latency", "No responses, so no latency to draw.");
  else {
    add({
      id: "chart-latency", height: 240, x, y: { tick: timeTick, log: latency.max > 20 * latency.percentiles.p50 },
      label: `Latency over time; the worst second had a 99th percentile of ${timeText(worst)}.`,
      series: [{ name: "max", style: "three", points: points("max_us") }, { name: "p99", style: "two", points: points("p99_us") },
        { name: "p50", style: "one", points: points("p50_us") }],
      reading: (i) => [span(all[i]), [["max", timeText(all[i].max_us)], ["p99", timeText(all[i].p99_us)],
        ["p50", timeText(all[i].p50_us)]]],
    });
  }
  const failed = all.reduce((a, p) => a + p.errors + p.failed_status, 0);
  if (failed === 0) nothing("chart-errors", "No errors, and no response with a status of 400 or above.");
  else {
    add({
      id: "chart-errors", height: 170, x, y: { tick: shortText, linearOnly: true }, spans: all.map((p) => [p.from_s, p.to_s]),
      label: `Errors over time: ${countText(failed)} in all.`,
      series: [{ name: "errors", kind: "bar", style: "one", points: points("errors") },
        { name: "status 400 and above", kind: "bar", style: "two", points: points("failed_status"),
          base: all.map((p) => p.errors) }],
      reading: (i) => [span(all[i]), [["errors", countText(all[i].errors)], ["status 400+", countText(all[i].failed_status)]]],
    });
  }
  table("series", all.length < run.series.length ? "Several intervals per row; percentiles are their maximum"
    : "One interval per row", ["time", "requests", "per second", "errors", "status 400+", "p50", "p99", "max"],
  all.map((p) => [span(p), countText(p.requests), rateText(p.requests_per_s), countText(p.errors), countText(p.failed_status),
    timeText(p.p50_us), timeText(p.p99_us), timeText(p.max_us)]));
}

// ---- texts ---------------------------------------------------------------------------------------
function head() {
  const c = run.config, t = run.totals, failed = run.errors.total;
  byId("target").textContent = c.target;
  byId("summary").textContent = [
    c.mode === "open" ? (c.stages.length ? "open loop in stages" : `open loop, ${rateText(c.rate_per_s)} requests per second`)
      : "closed loop",
    several(c.connections, "connection"), several(c.threads, "thread"), secondsText(t.duration_s),
    run.started.replace("T", " ").replace(/\.\d+Z/, " UTC"),
  ].join(" \u00b7 ");
  const missed = run.thresholds.filter((x) => !x.met).length, all = run.thresholds.length;
  const refused = run.status_classes["4xx"] + run.status_classes["5xx"];
  const hasOne = (metric) => run.thresholds.some((x) => metric.test(x.metric));
  const ignored = (refused > 0 && run.checks.length === 0 && !hasOne(/^\d/)) || (failed > run.errors.check && !hasOne(/^error/));
  if (all > 0) {
    byId("verdict").className = missed ? "bad" : ignored ? "" : "good";
    const which = all === 1 ? "The threshold was" : `${missed || all} of ${all} thresholds`;
    byId("verdict").textContent = which + (missed ? " missed" : ignored ? " met; none is about the responses that failed" : " met");
  }
  const noun = run.fanout ? "Deliveries" : "Requests", made = run.fanout ? run.fanout.published_per_s : t.requests_per_s;
  const figures = [[noun + "/second", rateText(t.requests_per_s)], ["Median latency", timeText(latency.percentiles.p50)],
    ["99th percentile", timeText(latency.percentiles.p99)], ["99.9th percentile", timeText(latency.percentiles["p99.9"])],
    [noun, countText(t.requests)], ["Errors", countText(failed)]];
  byId("figures").replaceChildren(...figures.map(([name, text]) => el("div", {}, el("dt", {}, name),
    name === "Errors" && failed ? el("dd", { class: "bad" }, text, el("small", {}, " " + shareText(failed, failed - run.errors.check + t.requests)))
      : el("dd", {}, text))));

  const warnings = [];
  if (run.interrupted) warnings.push(`The run ended early, after ${secondsText(t.duration_s)}.`);
  if (run.failure) {
    warnings.push(`The run failed: ${run.failure}.`);
  } else if (t.asked_per_s && (t.asked_per_s - made) * t.duration_s > 0.01 * t.asked_per_s * t.duration_s + c.connections) {
    warnings.push(`Target rate ${rateText(t.asked_per_s)} requests per second, reached ${rateText(made)}.`);
  }
  if (refused) {
    warnings.push(`${several(refused, "response")} (${shareText(refused, t.requests)}) had a status of 400 or above.`);
  }
  if (run.engine_late) {
    warnings.push("The load generator itself was behind its schedule, by " +
      `${timeText(run.engine_lag_us.percentiles.p99)} or more for 1% of the requests; the corrected latencies contain this delay.`);
  }
  if (latency.over_an_hour) {
    warnings.push(`${countText(latency.over_an_hour)} latencies above one hour count as one hour.`);
  }
  if (run.series_cut) warnings.push("The time series ends before the run does; the totals are complete.");
  byId("warnings").replaceChildren(...warnings.map((text) => el("li", {}, text)));
}

function words() {
  if (run.thresholds.length === 0) byId("section-thresholds").hidden = true;
  table("thresholds", "Conditions on the result", ["threshold", "measured", ""], run.thresholds.map((t) =>
    [t.text, t.actual_text, el("span", { class: t.met ? "good" : "bad" }, t.met ? "\u2713 met" : "\u2717 missed")]), [0]);

  const statuses = Object.entries(run.status);
  if (statuses.length === 0) byId("statuses").replaceWith(el("p", { class: "empty" }, "No response had a status."));
  else table("statuses", "Responses by status", ["status", "responses", "share"], statuses.map(([code, n]) =>
    [code, countText(n), shareText(n, run.totals.requests)]));
  table("errors", "Failed requests", ["kind", "errors"], Object.entries(run.errors).filter(([kind]) => kind !== "total")
    .concat([["total", run.errors.total]]).map(([kind, n]) => [kind, countText(n)]));
  if (run.checks.length === 0) byId("block-checks").hidden = true;
  table("checks", "Checks", ["check", "passed", "failed"], run.checks.map((c) =>
    [c.name, countText(c.passed), el("span", c.failed ? { class: "bad" } : {}, countText(c.failed))]), [0]);

  const c = run.config, t = run.totals, lag = run.engine_lag_us, tls = run.tls, ws = run.websocket, fan = run.fanout;
  const spread = (l) => `p50 ${timeText(l.percentiles.p50)}, p99 ${timeText(l.percentiles.p99)}, max ${timeText(l.max)}`;
  const pairs = [
    ["Target", c.target], ["Script", c.script], ["Connections", countText(c.connections)], ["Threads", countText(c.threads)],
    ["Load", [c.duration_s && secondsText(c.duration_s), c.requests && countText(c.requests) + " requests",
      c.rate_per_s && rateText(c.rate_per_s) + " requests/s"].filter(Boolean).join(", ")],
    ["Stages", c.stages.map((s) => `${secondsText(s.duration_s)} to ${[s.rate_per_s !== null && rateText(s.rate_per_s) + "/s",
      s.connections && countText(s.connections) + " connections"].filter(Boolean).join(", ")}`).join("; ")],
    ["Keep-alive", c.keepalive ? "yes" : "no"], ["Pipelining", c.pipeline > 1 ? String(c.pipeline) : ""],
    ["HTTP/2 streams per connection", c.streams ? String(c.streams) : ""],
    ["Timeout", c.timeout_s && secondsText(c.timeout_s)], ["Back end", c.backend],
    ["Connects", countText(t.connects)],
    ["Received", `${bytesText(t.bytes_in)} (${bytesText(t.bytes_in_per_s)}/s)`],
    ["Sent", `${bytesText(t.bytes_out)} (${bytesText(t.bytes_out_per_s)}/s)`],
    ["TLS handshakes", tls && `${countText(tls.full)} full, ${countText(tls.resumed)} resumed, ${countText(tls.failed)} failed`],
    ["TLS handshake time", tls && tls.handshake_us.count ? spread(tls.handshake_us) : ""],
    ["TLS resumption", tls && (c.tls_resume ? "on" : "off")],
    ["WebSocket handshakes", ws && `${countText(ws.handshakes)}, ${countText(ws.failed)} failed` +
      (ws.deflate ? `, ${countText(ws.deflate)} with permessage-deflate` : "")],
    ["WebSocket handshake time", ws && ws.handshake_us.count ? spread(ws.handshake_us) : ""],
    ["Closed by the server", ws && Object.entries(ws.close_codes).map(([code, n]) => `${code}: ${countText(n)}`).join(", ")],
    ["Message", c.message_bytes && bytesText(c.message_bytes)],
    ["Fan-out", fan && `${several(fan.publishers, "publisher")}, ${several(fan.subscribers, "subscriber")}` +
      (fan.stalled ? ` (${fan.stalled} stalled)` : "") + (fan.topics > 1 ? `, ${fan.topics} topics` : "")],
    ["Published", fan && `${countText(fan.published)} (${rateText(fan.published_per_s)}/s)`],
    ["Delivered", fan && `${countText(fan.delivered)} of ${countText(fan.expected)}, ${countText(fan.lost)} lost, ` +
      `${countText(fan.reordered)} reordered, ${countText(fan.duplicated)} duplicated`],
    ["Load generator lag", lag && lag.count ? spread(lag) : ""],
  ];
  byId("config").replaceChildren(...pairs.filter(([, text]) => text)
    .flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  byId("made").textContent = `luaserve ${run.luaserve}, ${run.started}`;
}

head();
words();
percentiles();
overTime();
document.documentElement.dataset.drawn = String(charts.length);
})();
