// The page of app:openapi: it gets the document from its server, shows its routes and schemas, and sends requests that the reader fills in.
(async () => {
"use strict";
const byId = (id) => document.getElementById(id);
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) node.setAttribute(key, ""); else if (value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null && child !== ""));
  return node;
}
const address = byId("document").href;
let api;
try {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error("status " + answer.status);
  api = await answer.json();
} catch (error) {
  byId("wrong").textContent = "The document cannot be read: " + error.message;
  byId("wrong").hidden = false;
  return;
}
const schemas = (api.components || {}).schemas || {}, schemes = (api.components || {}).securitySchemes || {};
const METHODS = ["get", "head", "post", "put", "patch", "delete", "options"];
const base = new URL((api.servers && api.servers[0].url) || "/", address).href.replace(/\/$/, "");
const sameOrigin = new URL(base).origin === location.origin;

// ---- schemas ----------------------------------------------------------------------------------------------------------
const nameOf = (schema) => (schema.$ref || "").split("/").pop();
const resolved = (schema) => (schema.$ref ? { ...schemas[nameOf(schema)], ...schema } : schema);
const some = (schema) => (schema.anyOf ? { ...schema.anyOf[0], ...schema, anyOf: undefined } : schema); // without null
const typesOf = (schema) => [].concat(schema.type || []).filter((type) => type !== "null");
const range = (least, most, unit) => (least === undefined && most === undefined ? "" : least !== undefined && most !== undefined
  ? `${least} to ${most}${unit}` : least !== undefined ? `at least ${least}${unit}` : `at most ${most}${unit}`);

// What a value must be, as nodes of a line.
function typeLine(given) {
  const schema = some(given), out = [];
  if (schema.$ref) out.push(el("a", { href: "#schema-" + nameOf(schema) }, nameOf(schema)));
  else if (typesOf(schema)[0] === "array" && schema.items) out.push("list of ", ...typeLine(schema.items));
  else if (schema.contentMediaType) out.push("file");
  else out.push(typesOf(schema).join(" or ") || "any value");
  for (const text of [range(schema.minLength, schema.maxLength, " characters"), range(schema.minItems, schema.maxItems, " items"),
    range(schema.minimum, schema.maximum, ""), schema.pattern && "matches " + schema.pattern,
    schema.enum && "one of " + schema.enum.filter((v) => v !== null).map((v) => JSON.stringify(v)).join(", "),
    schema.default !== undefined && "default " + JSON.stringify(schema.default)]) {
    if (text) out.push(", " + text);
  }
  return out;
}
function fieldsTable(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => {
    const inner = some(field), item = typesOf(inner)[0] === "array" ? some(inner.items || {}) : inner;
    return el("tr", {}, el("td", {}, el("code", {}, name), (schema.required || []).includes(name) ? el("span", { class: "mark" }, " required") : ""),
      el("td", {}, ...typeLine(field), field.description ? el("div", { class: "note" }, field.description) : "",
        item.properties ? fieldsTable(item) : ""));
  });
  return rows.length ? el("table", {}, el("tbody", {}, ...rows)) : el("p", { class: "note" }, "An object without known fields.");
}
function schemaBox(schema, expands) { // expands: with the fields of a named schema
  const inner = expands ? resolved(some(schema)) : some(schema), item = typesOf(inner)[0] === "array" ? some(inner.items || {}) : inner;
  return el("div", { class: "wide" }, el("p", {}, ...typeLine(schema)), item.properties ? fieldsTable(item) : "");
}
// A value that fits, to begin with.
function example(given, depth = 0) {
  const schema = resolved(some(given));
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  switch (typesOf(schema)[0]) {
    case "object": return depth > 8 ? {} : Object.fromEntries(Object.entries(schema.properties || {})
      .filter(([name]) => (schema.required || []).includes(name)).map(([name, field]) => [name, example(field, depth + 1)]));
    case "array": return schema.minItems && schema.items ? [example(schema.items, depth + 1)] : [];
    case "integer": case "number": return schema.minimum !== undefined ? schema.minimum : Math.min(0, schema.maximum ?? 0);
    case "boolean": return false;
    default: return "x".repeat(schema.minLength || 0);
  }
}

// The text of JSON with line breaks and indentation; numbers and strings stay as they are.
function indented(text) {
  let depth = 0;
  const line = (change) => "\n" + "  ".repeat(depth += change);
  return text.trim().replace(/"(?:[^"\\]|\\.)*"|\s+|([{[])\s*([}\]])?|[}\]]|,|:/g, (token, open, close) => (
    open ? (close ? open + close : open + line(1)) : token === "}" || token === "]" ? line(-1) + token
      : token === "," ? "," + line(0) : token === ":" ? ": " : token[0] === '"' ? token : ""));
}

// ---- a request --------------------------------------------------------------------------------------------------------
const login = {}; // by the name of the scheme: what the reader has written
function loginBox() {
  for (const [name, scheme] of Object.entries(schemes)) {
    const fields = scheme.type === "http" && scheme.scheme === "basic" ? ["user", "password"] : scheme.type === "apiKey" ? ["key"] : ["token"];
    login[name] = {};
    const box = el("p", {}, el("b", {}, name), scheme.description ? " " + scheme.description : "", el("br"));
    if (scheme.in === "cookie") {
      box.append(`The browser sends its cookie ${scheme.name}.`);
    } else {
      for (const field of fields) {
        const input = el("input", { type: field === "user" ? "text" : "password", autocomplete: "off" });
        input.addEventListener("input", () => { login[name][field] = input.value; });
        box.append(el("label", {}, field + " ", input));
      }
    }
    byId("login").append(box);
    byId("login").hidden = false;
  }
}
// Whether it sets Authorization. Then the browser sends no login of its own, and does not ask for one.
function authenticate(security, headers, query) {
  for (const name of Object.keys(Object.assign({}, ...(security || [])))) {
    const scheme = schemes[name], given = login[name] || {};
    if (given.user !== undefined || given.password !== undefined) {
      const text = new TextEncoder().encode(`${given.user || ""}:${given.password || ""}`);
      headers.set("Authorization", "Basic " + btoa(String.fromCharCode(...text)));
    } else if (given.token) headers.set("Authorization", "Bearer " + given.token);
    else if (given.key && scheme.in === "header") headers.set(scheme.name, given.key);
    else if (given.key && scheme.in === "query") query.append(scheme.name, given.key);
  }
  return headers.has("Authorization");
}
function input(schema, required) {
  const inner = resolved(some(schema));
  if (inner.enum) {
    return el("select", {}, ...(required ? [] : [el("option", { value: "" }, "")]),
      ...inner.enum.filter((v) => v !== null).map((v) => el("option", { value: v }, String(v))));
  }
  if (typesOf(inner)[0] === "boolean") {
    return el("select", {}, el("option", { value: "" }, ""), el("option", {}, "true"), el("option", {}, "false"));
  }
  const file = inner.contentMediaType || (inner.items && inner.items.contentMediaType);
  return el("input", { type: file ? "file" : "text", multiple: Boolean(file && inner.items), autocomplete: "off",
    placeholder: typesOf(inner)[0] === "array" ? "one or more, separated by commas" : undefined });
}
function valuesOf(control, schema) {
  if (control.type === "file") return [...control.files];
  if (control.value === "") return [];
  return typesOf(resolved(some(schema)))[0] === "array" ? control.value.split(",").map((text) => text.trim()) : [control.value];
}
function tryBox(method, path, operation) {
  const form = el("form", { class: "try" }), controls = [], content = (operation.requestBody || {}).content || {};
  const json = content["application/json"], multipart = content["multipart/form-data"];
  let body, fields = [];
  for (const parameter of operation.parameters || []) {
    const control = input(parameter.schema, parameter.required);
    controls.push([parameter, control]);
    form.append(el("label", {}, `${parameter.name} (${parameter.in})${parameter.required ? ", required" : ""}`, control));
  }
  if (json) {
    body = el("textarea", { spellcheck: "false" });
    body.value = JSON.stringify(example(json.schema), null, 2);
    form.append(el("label", {}, "JSON", body));
  } else if (multipart) {
    const schema = resolved(multipart.schema);
    fields = Object.entries(schema.properties || {}).map(([name, field]) => [name, field, input(field, (schema.required || []).includes(name))]);
    for (const [name, , control] of fields) form.append(el("label", {}, name, control));
  }
  const answer = el("div", { class: "answer", role: "status" });
  form.append(el("button", { type: "submit" }, "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const headers = new Headers(), query = new URLSearchParams();
    let url = path, missing;
    for (const [parameter, control] of controls) {
      const values = valuesOf(control, parameter.schema);
      if (parameter.in === "path") {
        if (!values.length) missing = parameter.name;
        url = url.replace(`{${parameter.name}}`, encodeURIComponent(values[0] || ""));
      } else if (parameter.in === "query") values.forEach((value) => query.append(parameter.name, value));
      else if (values.length) headers.set(parameter.name, values.join(", "));
    }
    answer.replaceChildren();
    if (missing) return answer.append(el("p", { class: "bad" }, `${missing} is missing`));
    const options = { method: method.toUpperCase(), headers };
    if (body) {
      headers.set("Content-Type", "application/json");
      options.body = body.value;
    } else if (multipart) {
      options.body = content["application/x-www-form-urlencoded"] ? new URLSearchParams() : new FormData();
      for (const [name, field, control] of fields) valuesOf(control, field).forEach((value) => options.body.append(name, value));
    }
    if (authenticate(operation.security, headers, query)) options.credentials = "omit";
    try {
      const response = await fetch(base + url + (query.size ? "?" + query : ""), options);
      let text = await response.text();
      if (/json/.test(response.headers.get("Content-Type"))) try { JSON.parse(text); text = indented(text); } catch { /* as it is */ }
      answer.append(el("p", { class: response.ok ? "good" : "bad" }, `${response.status} ${response.statusText}`),
        el("pre", { tabindex: 0 }, [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n")), el("pre", { tabindex: 0 }, text));
    } catch (error) {
      answer.append(el("p", { class: "bad" }, "No answer: " + error.message));
    }
  });
  return form;
}

// ---- routes -----------------------------------------------------------------------------------------------------------
const paragraphs = (text) => (text || "").split(/\n\n+/).filter(Boolean).map((part) => el("p", {}, part));
const table = (heads, rows) => el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))),
  el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, ...[].concat(cell))))))));
function details(method, path, operation) {
  const box = el("div", {}, ...paragraphs(operation.description)), content = (operation.requestBody || {}).content || {};
  const names = Object.keys(Object.assign({}, ...(operation.security || [])));
  const anyone = (operation.security || []).some((one) => Object.keys(one).length === 0);
  if (names.length) box.append(el("p", { class: "note" }, "Authentication: " + names.join(" and ") + (anyone ? ", for some paths" : "")));
  if (operation.parameters) {
    box.append(el("h3", {}, "Parameters"), table(["name", "in", "value"], operation.parameters.map((p) => [
      [el("code", {}, p.name), p.required ? el("span", { class: "mark" }, " required") : ""], p.in,
      [...typeLine(p.schema), p.description ? el("div", { class: "note" }, p.description) : ""]])));
  }
  const [type, media] = Object.entries(content)[0] || [];
  if (media) box.append(el("h3", {}, "Body: " + Object.keys(content).join(" or ")), schemaBox(media.schema || {}, true));
  box.append(el("h3", {}, "Responses"), el("div", { class: "responses" }, table(["status", "", ""], Object.entries(operation.responses || {}).map(([status, given]) => {
    const response = given.$ref ? api.components.responses[nameOf(given)] : given;
    const [kind, body] = Object.entries(response.content || {})[0] || [];
    return [status, [response.description, kind ? el("div", { class: "note" }, kind) : "",
      ...Object.entries(response.headers || {}).map(([name, header]) => el("div", { class: "note" }, name + ": ", ...typeLine(header.schema || {})))],
    [body && body.schema ? schemaBox(body.schema) : ""]];
  }))));
  if (sameOrigin) box.append(el("h3", {}, "Try it"), tryBox(method, path, operation));
  return box;
}
const groups = new Map(), shown = [];
for (const [path, item] of Object.entries(api.paths || {})) {
  for (const method of METHODS.filter((name) => item[name])) {
    const operation = item[method], tag = (operation.tags || [])[0] || path.split("/").find((part) => part && part[0] !== "{") || "/";
    const summary = el("summary", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("code", {}, path),
      el("span", {}, operation.summary || ""), operation.deprecated ? el("span", { class: "mark" }, "deprecated") : "");
    const route = el("details", { class: operation.deprecated ? "route old" : "route", id: operation.operationId }, summary);
    route.addEventListener("toggle", () => { if (route.open && route.children.length === 1) route.append(details(method, path, operation)); });
    if (!groups.has(tag)) groups.set(tag, []);
    groups.get(tag).push(route);
    shown.push({ route, text: [method, path, operation.summary, operation.description, operation.operationId, tag].join(" ").toLowerCase() });
  }
}
const about = Object.fromEntries((api.tags || []).map((tag) => [tag.name, tag.description]));
for (const [tag, routes] of [...groups].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
  byId("groups").append(el("section", {}, el("h2", {}, tag), ...paragraphs(about[tag]), ...routes));
}
for (const [name, schema] of Object.entries(schemas)) {
  byId("schemas").append(el("h3", { id: "schema-" + name }, name), schemaBox(schema));
  byId("schemas").hidden = false;
}
loginBox();
document.title = api.info.title;
byId("title").textContent = api.info.title;
byId("version").textContent = api.info.version;
byId("about").append(...paragraphs(api.info.description));

byId("find").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const one of shown) one.route.hidden = !words.every((word) => one.text.includes(word));
  for (const section of byId("groups").children) section.hidden = ![...section.querySelectorAll(".route")].some((route) => !route.hidden);
  byId("none").hidden = shown.some((one) => !one.route.hidden);
});
byId("tools").addEventListener("submit", (event) => event.preventDefault());
byId("all").addEventListener("click", () => {
  const open = byId("all").getAttribute("aria-pressed") !== "true";
  byId("all").setAttribute("aria-pressed", String(open));
  for (const one of shown) one.route.open = open;
});
function openTarget() {
  const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (target && target.matches("details")) { target.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", openTarget);
openTarget();
document.documentElement.dataset.drawn = "1";
})();
