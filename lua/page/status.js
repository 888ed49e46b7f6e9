// The status page: it gets the values of the server each second as an event (lua/luaserve/status.lua describes the JSON), keeps
// those of five minutes and draws them. All counts are totals since the start of the server, so the page makes the differences.
(() => {
"use strict";
const { byId, el, timeText, timeTick, countText, several, shortText, rateText, bytesText, secondsText, shareText, linear, charts, add,
  show, table } = draw;
const SHOWN_S = 300, RECENT_S = 10, LATE_MS = 3000;
const samples = []; // oldest first; each has the totals, `routes` by their names
let paused = false, since = "shown", errors = [];

// ---- counts ---------------------------------------------------------------------------------------------------------
const BUCKETS = 43; // as in lua/luaserve/latency.lua
function sumOf(list) {
  const all = { count: 0, failed: 0, buckets: [] };
  for (const r of list) {
    all.count += r.count; all.failed += r.failed;
    r.buckets.forEach((n, i) => { all.buckets[i] = (all.buckets[i] || 0) + n; });
  }
  return all;
}
function less(a, b) { // a - b; a server that has started again begins at 0
  if (!b || b.count > a.count) return a;
  return { count: a.count - b.count, failed: a.failed - b.failed, sum_us: a.sum_us - b.sum_us,
    buckets: a.buckets.map((n, i) => n - (b.buckets[i] || 0)) };
}
// The latency in us below which the part q of the requests was: within its bucket by its place in it. null: no request.
function quantile(h, q) {
  const total = h.buckets.reduce((a, n) => a + n, 0), edges = edgesOf();
  if (total === 0) return null;
  let rank = q * total;
  for (let i = 0; i < h.buckets.length; i++) {
    if (h.buckets[i] && rank <= h.buckets[i]) return edges[i] * (edges[i + 1] / edges[i]) ** (rank / h.buckets[i]);
    rank -= h.buckets[i];
  }
  return edges[edges.length - 1];
}
let edges = [];
const edgesOf = () => edges;
const last = () => samples[samples.length - 1];
function sampleAgo(seconds) { // the youngest one that is so old, else the oldest
  const until = last().now - seconds;
  return samples.reduce((a, s) => (s.now <= until ? s : a), samples[0]);
}

function take(message) {
  const bounds = Array.from({ length: BUCKETS - 1 }, (_, i) => message.first_us * 2 ** (i / 2));
  edges = [bounds[0] / 2, ...bounds, bounds[bounds.length - 1] * 4];
  if (message.errors) errors = message.errors;
  const routes = new Map(message.routes.map((r) => [r.route, r]));
  if (samples.length && message.now === last().now) return; // another state still has the last one
  if (samples.length && message.stats.uptime < last().stats.uptime) { // it has started again
    samples.length = 0;
    errors = message.errors || [];
  }
  samples.push({ now: message.now, stats: message.stats, routes, all: sumOf(message.routes) });
  while (samples[0].now < message.now - SHOWN_S - 1) samples.shift();
  document.documentElement.dataset.taken = String(message.now);
  if (!paused) draws(message);
}

// ---- charts -----------------------------------------------------------------------------------------------------------
const x = { scale: (a, b) => { const s = linear(-SHOWN_S, 0, a, b, 5, [60]); return { at: s.at, ticks: s.ticks }; },
  tick: (s) => (s === 0 ? "now" : `\u2212${-s / 60} min`), name: "time" };
const charted = {};
function chart(id, given) {
  const known = charted[id];
  if (known) show(Object.assign(known, given));
  else add(charted[id] = { id, x, ...given });
}
function drawCharts() {
  const now = last().now, steps = [];
  for (let i = 1; i < samples.length; i++) {
    const s = samples[i], before = samples[i - 1], seconds = s.now - before.now, h = less(s.all, before.all);
    const answered = s.stats.responses - before.stats.responses;
    steps.push({ from: before.now - now, to: s.now - now, rate: answered / seconds, failed: h.failed / seconds, h,
      p50: quantile(h, 0.5), p90: quantile(h, 0.9), p99: quantile(h, 0.99) });
  }
  const points = (key) => steps.map((p) => [p.to, p[key]]), when = (i) => `${secondsText(Math.round(-steps[i].to))} ago`;
  const newest = steps[steps.length - 1], spans = steps.length ? steps.map((p) => [p.from, p.to]) : [[-1, 0]];
  const limits = [Math.max(10, edges[0]), edges[edges.length - 1]];
  chart("chart-rate", {
    height: 190, y: y.rate, spans,
    label: newest ? `Responses per second in the last five minutes; now ${rateText(newest.rate)}.` : "Responses per second.",
    series: [{ name: "responses", style: "one", area: true, points: points("rate") },
      { name: "status 500 and above", style: "bad", points: points("failed") }],
    reading: (i) => [when(i), [["responses", rateText(steps[i].rate) + "/s"], ["status 500+", rateText(steps[i].failed) + "/s"]]],
  });
  chart("chart-latency", {
    height: 230, y: Object.assign(y.latency, { limits }), spans,
    label: newest ? `Latency in the last five minutes; now the median is ${timeText(newest.p50)}, the 99th percentile ` +
      `${timeText(newest.p99)}.` : "Latency.",
    series: [{ name: "p99", style: "two", points: points("p99") }, { name: "p90", style: "three", points: points("p90") },
      { name: "p50", style: "one", points: points("p50") }],
    reading: (i) => [when(i), [["p99", timeText(steps[i].p99)], ["p90", timeText(steps[i].p90)], ["p50", timeText(steps[i].p50)]]],
  });
  chart("chart-heat", {
    height: 230, y: Object.assign(y.heat, { limits, linearOnly: true }), spans, series: [],
    heat: { name: "requests of this latency", columns: steps.map((p) => p.h.buckets), edges },
    label: "How many requests had which latency, in each second of the last five minutes. The chart above has the percentiles.",
    reading: (i) => [when(i), steps[i].h.buckets.map((n, row) => [n, row]).filter(([n]) => n > 0).reverse().slice(0, 8)
      .map(([n, row]) => [`${timeTick(edges[row])} to ${timeTick(edges[row + 1])}:`, countText(n)])],
  });
}
const y = { rate: { tick: shortText, linearOnly: true, least: 1 }, latency: { tick: timeTick, log: true, linearOnly: true },
  heat: { tick: timeTick, log: true } };

// ---- texts and tables ---------------------------------------------------------------------------------------------------
// A table with a line instead of rows if there are none. It is left alone while its text is selected.
function rows(id, caption, heads, list, texts, empty) {
  const node = byId(id), selection = getSelection();
  if (!selection.isCollapsed && node.contains(selection.anchorNode)) return;
  table(id, caption, heads, list.length ? list : [[el("span", { class: "empty" }, empty), ...heads.slice(1).map(() => "")]], texts);
}
const seconds = (s) => (s === null || s === undefined ? "\u2013" : s < 1 ? timeText(s * 1e6) : secondsText(+s.toFixed(1)));
const long = (s) => (s >= 1 ? el("span", { class: "busy" }, seconds(s)) : seconds(s));

function drawHead(m) {
  const recent = sampleAgo(RECENT_S), now = last(), time = now.now - recent.now, h = less(now.all, recent.all), s = m.stats;
  document.title = `Status of ${m.site}`;
  byId("site").textContent = m.site;
  byId("summary").textContent = [`up ${secondsText(Math.floor(s.uptime))}`, m.pid ? `process ${m.pid}` : "", several(s.threads, "thread"),
    several(s.lua_states, "Lua state"), s.old_sites ? several(s.old_sites, "previous site") : ""].filter(Boolean).join(" \u00b7 ");
  const rate = time > 0 ? rateText(+((s.responses - recent.stats.responses) / time).toPrecision(3)) : "\u2013";
  const figures = [["Responses/second", rate], ["Median latency", timeText(quantile(h, 0.5))], ["99th percentile", timeText(quantile(h, 0.99))],
    ["Errors", time > 0 ? shareText(h.failed, h.count) : "\u2013", h.failed > 0], ["Connections", countText(s.connections_open + s.websockets)],
    ["Memory", bytesText(m.resident_bytes || s.lua_bytes + s.bytes_live)]];
  byId("figures").replaceChildren(...figures.map(([name, text, bad]) => el("div", {}, el("dt", {}, name), el("dd", bad ? { class: "bad" } : {}, text))));
  byId("made").textContent = `luaserve ${m.version}. The figures above are those of the last ${RECENT_S} seconds; errors are responses with status 500 and above.`;
}

const eventsPath = location.pathname.replace(/\/$/, "") + "/events";
const name = (task) => (task.what || task.scope || "").replace(/^request \S+ /, ""); // without its id
function drawNow(m) {
  rows("threads", "Threads", ["thread", "does", "", "state", "for"], m.threads.map((t) => [String(t.thread),
    t.idle ? "waits" : t.lua ? "runs Lua" : "works", [name(t), t.line].filter(Boolean).join(", at "), t.state ? String(t.state) : "",
    t.idle || !t.for_s ? "" : long(t.for_s)]), [1, 2], "No thread");
  const own = ` ${eventsPath}`; // of those who look
  rows("waiting", "Tasks that wait", ["task", "of", "waits at", "for"], m.waiting.filter((w) => !(w.what || "").endsWith(own))
    .map((w) => [name(w), w.client || "", w.line || "", long(w.for_s)]),
    [0, 1, 2], "Nothing waits");
}

function drawRoutes() {
  const base = since === "shown" ? samples[0].routes : new Map(), time = last().now - samples[0].now, order = byId("order").value;
  const list = [...last().routes.values()].map((r) => {
    const h = less(r, base.get(r.route));
    return { route: r.route, count: h.count, failed: h.failed, time: h.sum_us / 1e6, p50: quantile(h, 0.5), p99: quantile(h, 0.99), max: quantile(h, 1) };
  }).filter((r) => r.count > 0).sort((a, b) => b[order] - a[order] || (a.route < b.route ? -1 : 1));
  rows("routes", "Routes", ["route", "requests", "per second", "median", "99 %", "time in all", "errors"], list.map((r) => [r.route,
    countText(r.count), since === "shown" && time > 0 ? rateText(r.count / time) : "\u2013", timeText(r.p50), timeText(r.p99), seconds(r.time),
    r.failed ? el("span", { class: "bad" }, countText(r.failed)) : "0"]), [0], "No request in this time");
}

let errorsSeen;
function drawErrors() {
  const seen = errors.length ? `${errors[0].number} ${errors[0].at_ms}` : "none";
  if (seen === errorsSeen) return;
  errorsSeen = seen;
  const node = byId("errors"), open = new Set([...node.querySelectorAll("details[open]")].map((d) => d.dataset.number));
  const one = (e) => el("details", { "data-number": e.number, ...(open.has(String(e.number)) ? { open: "" } : {}) },
    el("summary", {}, el("time", { datetime: new Date(e.at_ms).toISOString() }, new Date(e.at_ms).toTimeString().slice(0, 8)),
      e.text.split("\n")[0]), el("pre", {}, e.text));
  node.replaceChildren(...(errors.length ? errors.map(one) : [el("p", { class: "empty" }, "No error since the start")]));
}

const named = { sqlite: "SQLite", postgres: "PostgreSQL", redis: "Redis" };
function drawResources(m) {
  const s = m.stats, run = s.running;
  const pairs = (id, caption, list) => rows(id, caption, [], list.filter(([, text]) => text !== undefined), [], "\u2013");
  pairs("connections", "Connections", [["HTTP", countText(s.connections_open)],
    ["WebSockets", countText(s.websockets)], ["TCP", countText(run.connections)], ["accepted so far", countText(s.accepts)],
    ["HTTP/2 so far", countText(s.http2_connections)], ["requests refused", countText(s.refused)]]);
  pairs("memory", "Memory", [["process", m.resident_bytes ? bytesText(m.resident_bytes) : undefined], ["Lua", bytesText(s.lua_bytes)],
    ["buffers", bytesText(s.bytes_live)], ["buffers, most", bytesText(s.bytes_peak)], ["retained messages", bytesText(s.topic_retained_bytes)]]);
  pairs("pools", "Pools and queues", [...Object.keys(named).flatMap((kind) => [[`${named[kind]} connections`, countText(s[kind + "_connections"])],
    [`${named[kind]} waiting`, countText(s[kind + "_waiting"])]].filter(() => s[kind + "_connections"] + s[kind + "_waiting"] > 0)),
  ["jobs", countText(run.jobs)], ["timers", countText(run.timers)], ["stalled threads", countText(s.threads_stalled)]]);
  rows("states", "Lua states", ["state", "memory", "requests", "WebSockets", "jobs", "timers"], m.states.map((v) => [
    v.state + (v.previous ? ", previous site" : ""), bytesText(v.bytes), countText(v.requests), countText(v.websockets), countText(v.jobs), countText(v.timers)]), [], "No state");
  rows("topics", "Topics", ["topic", "subscribers"], m.topics.map((t) => [t.topic, countText(t.subscribers)]), [], "No topic");
  rows("dicts", "Dicts", ["dict", "entries", "memory"], m.dicts.map((d) => [d.dict, countText(d.entries), bytesText(d.bytes)]), [], "No dict");
}

function draws(m) {
  drawHead(m);
  drawCharts();
  drawNow(m);
  drawRoutes();
  drawErrors();
  drawResources(m);
  document.documentElement.dataset.drawn = String(m.now);
}

// ---- the connection -----------------------------------------------------------------------------------------------------
let newest;
function said(text, kind) {
  if (byId("link").textContent !== text) byId("link").textContent = text;
  byId("link").className = kind;
}
let events, late;
// A handler that computes delays the events of its Lua state. A new connection begins in a state that is free.
function connect() {
  if (events) events.close();
  events = new EventSource(eventsPath);
  const again = () => { clearTimeout(late); late = setTimeout(connect, LATE_MS); };
  again();
  events.onmessage = (event) => {
    again();
    newest = JSON.parse(event.data);
    take(newest);
    said(paused ? "paused" : "live", paused ? "" : "live");
  };
  events.onerror = () => {
    said(events.readyState === EventSource.CLOSED ? "refused: load the page again" : "connection lost, tries again", "lost");
    if (events.readyState === EventSource.CLOSED) clearTimeout(late);
    else again();
  };
}
connect();
addEventListener("pagehide", () => { clearTimeout(late); events.close(); });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Continue" : "Pause";
  if (newest && !paused) draws(newest);
  said(paused ? "paused" : "live", paused ? "" : "live");
});
for (const button of document.querySelectorAll("[data-since]")) {
  button.addEventListener("click", () => {
    since = button.dataset.since;
    for (const other of document.querySelectorAll("[data-since]")) other.setAttribute("aria-pressed", String(other === button));
    if (newest) drawRoutes();
  });
}
byId("order").addEventListener("change", () => { if (newest) drawRoutes(); });
})();
