// What the pages of luaserve draw with: the report of a load test (src/stress/page) and the status page. It is the beginning of
// the script of each.
const draw = (() => {
"use strict";
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
// All series have their points at the same positions; the reading is that of the nearest point. y.limits: those of the axis,
// else they follow the points. heat: { name, columns: [[counts]], edges }: the counts of one span are a column of cells, whose
// edges are values of y. A chart may be shown again with new points: its reading, its button and the focus stay.
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
  for (const s of (chart.heat ? [{ name: chart.heat.name, kind: "heat" }] : [])
    .concat(chart.series, chart.lines || [], chart.marks || [])) {
    const sample = svg("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
    if (s.kind === "bar") sample.append(svg("rect", { x: 8, y: 0, width: 12, height: 12, class: "bar " + s.style }));
    else if (s.kind === "heat") {
      for (const i of [0, 1, 2, 3]) sample.append(svg("rect", { x: 7 * i, y: 0, width: 7, height: 12, class: "heat", opacity: (i + 1) / 4 }));
    } else if (s.kind === "mark") sample.append(svg("path", { d: "M8 6l6 -5l6 5l-6 5Z", class: "mark " + s.style }));
    else sample.append(svg("path", { d: "M1 6H27", class: s.kind === "scheduled" ? "scheduled" : "path " + s.style }));
    row.append(el("span", {}, sample, s.name));
  }
  if (!chart.y.linearOnly) {
    const button = el("button", { type: "button" }, chart.y.log ? "Linear scale" : "Logarithmic scale");
    button.addEventListener("click", () => {
      chart.y.log = !chart.y.log;
      button.textContent = chart.y.log ? "Linear scale" : "Logarithmic scale";
      show(chart);
    });
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
  const useLog = chart.y.log && (positive.length > 0 || !!chart.y.limits);
  const Y = useLog ? logarithmic(...(chart.y.limits || logLimits(positive)), height - bottom, top)
    : linear(0, Math.max(...values, chart.y.least || 0) * 1.05 || 1, height - bottom, top, height < 200 ? 3 : 5);
  const first = !chart.drawing, drawing = chart.drawing = chart.drawing || svg("svg", { role: "img", tabindex: "0" });
  fill(drawing, { viewBox: `0 0 ${width} ${height}`, "aria-label": chart.label, "data-scale": useLog ? "log" : "linear" }, []);
  drawing.replaceChildren();

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

  if (chart.heat) drawing.append(heat(chart, X, Y, top, height - bottom));
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
  if (first) figure.replaceChildren(legend(chart), drawing);
  chart.place = { X, Y, box: { width, height, top, bottom } };
  if (first) readOut(chart, figure, drawing);
  else if (chart.readAgain) chart.readAgain();
}

// The cells of a heat map as an image: one pixel wide for each column, as high as the plot. The strongest has the most.
function heat(chart, X, Y, top, bottom) {
  const { columns, edges } = chart.heat, canvas = document.createElement("canvas"), from = X.at(chart.spans[0][0]);
  const each = X.at(chart.spans[0][1]) - from, most = columns.reduce((a, cells) => Math.max(a, ...cells), 0);
  canvas.width = columns.length;
  canvas.height = bottom - top;
  const paint = canvas.getContext("2d");
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--one");
  columns.forEach((cells, i) => cells.forEach((n, row) => {
    if (!n) return;
    const high = Math.round(Y.at(edges[row + 1]) - top), low = Math.round(Y.at(edges[row]) - top);
    paint.globalAlpha = 0.12 + 0.88 * Math.log1p(n) / Math.log1p(most);
    paint.fillRect(i, high, 1, Math.max(1, low - high - (low - high > 4 ? 1 : 0)));
  }));
  return svg("image", { class: "cells", href: canvas.toDataURL(), x: from.toFixed(2), y: top, width: (each * columns.length).toFixed(2),
    height: bottom - top, preserveAspectRatio: "none" });
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
function readOut(chart, figure, drawing) {
  const guide = svg("g", { "aria-hidden": "true" }), reading = el("div", { class: "reading", "aria-live": "polite", hidden: "" });
  const places = () => (chart.series[0] ? chart.series[0].points : chart.spans).map((p) => p[0]);
  figure.append(reading);
  let at = -1;
  const hide = () => { guide.replaceChildren(); reading.hidden = true; at = -1; };
  const read = (i) => {
    const { X, Y, box } = chart.place;
    at = i;
    const x = X.at(places()[i]);
    if (guide.parentNode !== drawing) drawing.append(guide);
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
  chart.readAgain = () => { if (at >= 0) read(Math.min(at, places().length - 1)); };
  const nearest = (clientX) => {
    const { X, box } = chart.place, rect = drawing.getBoundingClientRect(), x = (clientX - rect.left) / rect.width * box.width;
    let best = 0;
    places().forEach((place, i, all) => { if (Math.abs(X.at(place) - x) < Math.abs(X.at(all[best]) - x)) best = i; });
    return best;
  };
  const follow = (event) => { if (places().length > 0) read(nearest(event.clientX)); };
  drawing.addEventListener("pointermove", follow);
  drawing.addEventListener("pointerdown", follow);
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("keydown", (event) => {
    const last = places().length - 1, stride = event.shiftKey ? 10 : 1;
    const to = { ArrowRight: at + stride, ArrowLeft: at < 0 ? last : at - stride, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined || last < 0) return;
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

let width = document.documentElement.clientWidth;
addEventListener("resize", () => { // a phone's address bar changes only the height
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  charts.forEach(show);
});

return { byId, el, svg, timeText, timeTick, countText, several, shortText, rateText, bytesText, secondsText, clockText, shareText,
  linear, logarithmic, charts, show, add, nothing, table };
})();
