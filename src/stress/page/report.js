// The page of the HTML report, drawn from the JSON in #run. REPORTS.md specifies the JSON.
(() => {
"use strict";
const run = JSON.parse(document.getElementById("run").textContent);
const due = run.latency_us.corrected, sent = run.latency_us.uncorrected, latency = due || sent;

// ---- elements ---------------------------------------------------------------------------------------------------
const byId = (id) => document.getElementById(id);
const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  for (const child of children) node.append(child);
  return node;
};
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// ---- numbers as text ----------------------------------------------------------------------------------------------
const digits = (x) => (x >= 99.95 || x === 0 ? 0 : x >= 9.995 ? 1 : 2);
const grouped = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
function timeText(us) {
  if (us === null || us === undefined) return "\u2013";
  const units = [[1e-3, "ns"], [1, "\u00b5s"], [1e3, "ms"], [1e6, "s"]];
  let i = us === 0 ? 1 : 0;
  while (i < 3 && us / units[i][0] >= 999.5) i++;
  const value = us / units[i][0];
  return value.toFixed(digits(value)) + "\u2009" + units[i][1];
}
function timeTick(us) {
  return timeText(us).replace(/(\.\d*?)0+(?=\D)/, "$1").replace(/\.(?=\D)/, "");
}
function countText(n) {
  return n === null ? "\u2013" : grouped(Math.round(n));
}
const several = (n, what) => countText(n) + " " + what + (n === 1 ? "" : "s");
function shortText(n) { // for axes: 12k, 1.5M
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size) return +(n / size).toPrecision(3) + unit;
  }
  return String(+n.toPrecision(3));
}
function rateText(n) {
  return n === null ? "\u2013" : n >= 100 ? countText(n) : String(+n.toFixed(2));
}
function bytesText(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (i < units.length - 1 && n >= 1024) { n /= 1024; i++; }
  return (i === 0 ? n : n.toFixed(digits(n))) + " " + units[i];
}
function secondsText(s) {
  if (s < 60) return +s.toFixed(s < 10 ? 2 : 1) + " s";
  const whole = Math.round(s), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
  return (h ? h + " h " : "") + (m ? m + " min " : "") + (whole % 60 ? (whole % 60) + " s" : "");
}
const clockText = (s) => (s < 120 ? +s.toFixed(3) + "s" : s < 7200 ? +(s / 60).toFixed(1) + "m" : +(s / 3600).toFixed(2) + "h");
function shareText(part, whole) { // less than all is never shown as 100%, more than 0 never as 0%
  if (!(whole > 0)) return "\u2013";
  const percent = 100 * part / whole, rest = Math.min(percent, 100 - percent);
  return +percent.toFixed(rest === 0 ? 0 : Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(rest))))) + "%";
}
const percentText = (p) => (p >= 100 ? "max" : "p" + +p.toPrecision(8));

// ---- scales -------------------------------------------------------------------------------------------------------
// A scale converts values to positions and has a list of ticks. `steps`: the allowed distances between ticks.
function linear(from, to, start, end, wanted, steps) {
  const raw = (to - from) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = (steps || []).find((n) => n >= raw) || [1, 2, 5, 10].find((n) => n * power >= raw * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(from / step); i * step <= to * 1.000001; i++) ticks.push(+(i * step).toPrecision(12));
  return { at: (v) => start + (v - from) / (to - from || 1) * (end - start), ticks };
}
function logarithmic(from, to, start, end) {
  const a = Math.log10(from), b = Math.log10(to), ticks = [];
  const steps = b - a > 3 ? [1] : b - a > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 5, 7];
  for (let e = Math.floor(a); e <= b; e++) {
    for (const n of steps) {
      const v = +(n * 10 ** e).toPrecision(6);
      if (v >= from * 0.999 && v <= to * 1.001) ticks.push(v);
    }
  }
  return { at: (v) => start + (Math.log10(Math.max(v, from)) - a) / (b - a || 1) * (end - start), ticks };
}
// The limits of a logarithmic axis: the next 1, 2 or 5 times a power of ten below the minimum and above the maximum.
function logLimits(values) {
  let low = Math.min(...values), high = Math.max(...values);
  const snap = (v, list) => { const p = 10 ** Math.floor(Math.log10(v)); return list.map((n) => n * p); };
  low = snap(low, [5, 2, 1]).find((n) => n <= low * 1.000001) || low;
  high = snap(high, [1, 2, 5, 10]).find((n) => n >= high * 0.999999) || high;
  return high > low ? [low, high] : [low / 2, high * 2];
}

// ---- charts -------------------------------------------------------------------------------------------------------
// chart: { id, height, label, x: {scale, tick, name, end: a tick that always has a label}, y: {tick, log, linearOnly},
//          series: [{name, kind, style, area, base, points: [[x, y or null]]}], spans: start and end of the bars,
//          lines and marks: more entries of the legend, overlay(drawing, X, Y), reading(i): [title, [[name, text]]] }
// All series have their points at the same positions; the reading is that of the nearest point.
const charts = [];
const DENSE = 250; // points; a line of more points has no dashes

function pathOf(points, X, Y) {
  let path = "", pen = false;
  for (const [x, y] of points) {
    if (y === null) { pen = false; continue; }
    path += (pen ? "L" : "M") + X.at(x).toFixed(2) + " " + Y.at(y).toFixed(2);
    pen = true;
  }
  return path;
}

function legend(chart) {
  const row = el("div", { class: "legend" });
  for (const s of chart.series.concat(chart.lines || [], chart.marks || [])) {
    const sample = svg("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
    if (s.kind === "bar") sample.append(svg("rect", { x: 8, y: 0, width: 12, height: 12, class: "bar " + s.style }));
    else if (s.kind === "mark") sample.append(svg("path", { d: "M8 6l6 -5l6 5l-6 5Z", class: "mark " + s.style }));
    else sample.append(svg("path", { d: "M1 6H27", class: s.kind === "scheduled" ? "scheduled" : "path " + s.style }));
    row.append(el("span", {}, sample, s.name));
  }
  if (!chart.y.linearOnly) {
    const button = el("button", { type: "button" }, chart.y.log ? "Linear scale" : "Logarithmic scale");
    button.addEventListener("click", () => { chart.y.log = !chart.y.log; show(chart); });
    row.append(button);
  }
  return row;
}

function show(chart) {
  const figure = byId(chart.id), width = Math.max(280, Math.floor(figure.clientWidth || 700));
  const left = width < 500 ? 48 : 60, right = 14, top = 10, bottom = 40, height = chart.height;
  const drawn = chart.series.concat(chart.lines || []);
  const values = drawn.flatMap((s) => s.points.map((p, i) => p[1] === null ? null : p[1] + (s.base ? s.base[i] : 0)))
    .filter((v) => v !== null);
  const positive = values.filter((v) => v > 0);
  const X = chart.x.scale(left, width - right);
  const useLog = chart.y.log && positive.length > 0;
  const Y = useLog ? logarithmic(...logLimits(positive), height - bottom, top)
    : linear(0, Math.max(...values, 0) * 1.05 || 1, height - bottom, top, height < 200 ? 3 : 5);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": chart.label,
    "data-scale": useLog ? "log" : "linear" });

  for (const t of Y.ticks) {
    const y = Y.at(t).toFixed(2);
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }),
      svg("text", { class: "tick", "data-axis": "y", "data-value": t, "data-at": y, x: left - 8, y: +y + 4,
        "text-anchor": "end" }, chart.y.tick(t)));
  }
  // Labels that would overlap are omitted, except the label of x.end.
  const half = (t) => chart.x.tick(t).length * 3.6;
  let free = -1e9;
  for (const t of X.ticks) {
    const x = X.at(t), isEnd = t === chart.x.end;
    const limit = isEnd || !chart.x.end ? width + 4 : X.at(chart.x.end) - half(chart.x.end) - 12;
    drawing.append(svg("line", { class: "grid", x1: x, x2: x, y1: top, y2: height - bottom }));
    if ((x - half(t) < free && !isEnd) || x + half(t) > limit) continue;
    free = x + half(t) + 8;
    drawing.append(svg("text", { class: "tick", "data-axis": "x", "data-value": t, "data-at": x.toFixed(2), x,
      y: height - bottom + 17, "text-anchor": "middle" }, chart.x.tick(t)));
  }
  drawing.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    svg("text", { class: "tick", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, chart.x.name));

  chart.series.forEach((s) => {
    if (s.kind === "bar") {
      drawing.append(bars(s, chart, X, Y));
      return;
    }
    const d = pathOf(s.points, X, Y);
    if (s.area && d) {
      const from = X.at(s.points[0][0]).toFixed(2), to = X.at(s.points[s.points.length - 1][0]).toFixed(2);
      drawing.append(svg("path", { class: "area", d: `${d}L${to} ${height - bottom}L${from} ${height - bottom}Z` }));
    }
    const style = (s.points.length > DENSE ? "dense path " : "path ") + s.style;
    drawing.append(svg("path", { class: style, d, "data-series": s.name }));
    if (s.points.filter((p) => p[1] !== null).length === 1) { // a path of one point is invisible
      const [x, y] = s.points.find((p) => p[1] !== null);
      drawing.append(svg("circle", { class: "dot " + s.style, cx: X.at(x), cy: Y.at(y), r: 4 }));
    }
  });
  for (const s of chart.lines || []) {
    drawing.append(svg("path", { class: "scheduled", d: pathOf(s.points, X, Y), "data-series": s.name }));
  }
  if (chart.overlay) chart.overlay(drawing, X, Y);
  figure.replaceChildren(legend(chart), drawing);
  readOut(chart, figure, drawing, X, Y, { width, height, left, right, top, bottom });
}

function bars(s, chart, X, Y) {
  const group = svg("g", { "data-series": s.name });
  s.points.forEach(([, y], i) => {
    if (!y) return;
    const [from, to] = chart.spans[i], base = s.base ? s.base[i] : 0;
    const x = X.at(from), wide = Math.max(1.5, X.at(to) - x - (X.at(to) - x > 4 ? 1 : 0));
    group.append(svg("rect", { class: "bar " + s.style, x: x.toFixed(2), y: Y.at(base + y).toFixed(2), width: wide.toFixed(2),
      height: Math.max(0, Y.at(base) - Y.at(base + y)).toFixed(2), "data-value": y }));
  });
  return group;
}

// A vertical guide with dots and a box of figures; follows the pointer, touch and arrow keys.
function readOut(chart, figure, drawing, X, Y, box) {
  const places = chart.series[0].points.map((p) => p[0]);
  if (places.length === 0) return;
  const guide = svg("g", { "aria-hidden": "true" }), reading = el("div", { class: "reading", "aria-live": "polite", hidden: "" });
  drawing.append(guide);
  figure.append(reading);
  let at = -1;
  const hide = () => { guide.replaceChildren(); reading.hidden = true; at = -1; };
  const read = (i) => {
    at = i;
    const x = X.at(places[i]);
    guide.replaceChildren(svg("line", { class: "guide", x1: x, x2: x, y1: box.top, y2: box.height - box.bottom }));
    for (const s of chart.series) {
      if (s.kind !== "bar" && s.points[i][1] !== null) {
        guide.append(svg("circle", { class: "dot " + s.style, cx: x, cy: Y.at(s.points[i][1]), r: 4.5 }));
      }
    }
    const [title, rows] = chart.reading(i);
    reading.replaceChildren(el("b", {}, title), ...rows.map(([name, text]) => el("div", {}, name + " " + text)));
    reading.hidden = false;
    const inside = drawing.getBoundingClientRect(), outside = figure.getBoundingClientRect();
    const place = x * inside.width / box.width, wide = reading.offsetWidth, room = outside.width - wide;
    const left = place + 14 > room ? place - 14 - wide : place + 14; // on the side of the guide that has room
    reading.style.left = Math.max(0, Math.min(room, left)) + "px";
    reading.style.top = inside.top - outside.top + 12 + "px";
  };
  const nearest = (clientX) => {
    const rect = drawing.getBoundingClientRect(), x = (clientX - rect.left) / rect.width * box.width;
    let best = 0;
    places.forEach((place, i) => { if (Math.abs(X.at(place) - x) < Math.abs(X.at(places[best]) - x)) best = i; });
    return best;
  };
  drawing.addEventListener("pointermove", (event) => read(nearest(event.clientX)));
  drawing.addEventListener("pointerdown", (event) => read(nearest(event.clientX)));
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("keydown", (event) => {
    const last = places.length - 1, stride = event.shiftKey ? 10 : 1;
    const to = { ArrowRight: at + stride, ArrowLeft: at < 0 ? last : at - stride, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    read(Math.max(0, Math.min(last, to)));
  });
}

function add(chart) {
  charts.push(chart);
  show(chart);
}
function nothing(id, text) {
  byId(id).replaceChildren(el("p", { class: "empty" }, text));
}

// ---- tables -------------------------------------------------------------------------------------------------------
// rows: arrays of strings or nodes; the first entry is the row's heading. `texts`: the columns that contain text.
function table(id, caption, heads, rows, texts) {
  const kind = (i) => ((texts || []).includes(i) ? { class: "text" } : {});
  byId(id).replaceChildren(el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", ...kind(i) }, h)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) =>
      el(i ? "td" : "th", { ...(i ? {} : { scope: "row" }), ...kind(i) }, cell))))));
}

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
let width = document.documentElement.clientWidth;
addEventListener("resize", () => { // a phone's address bar changes only the height
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  charts.forEach(show);
});
document.documentElement.dataset.drawn = String(charts.length);
})();
