-- luaserve.cache_rules: Cache-Control, and what a shared cache stores (RFC 9111, RFC 5861).
local check = require "check"
local rules = require "luaserve.cache_rules"

local tests = {}

function tests.directives()
  for text, expected in pairs {
    [""] = {}, ["max-age=5"] = { ["max-age"] = "5" }, ["MAX-AGE=5 , No-Store"] = { ["max-age"] = "5", ["no-store"] = true },
    ['private="a, b", public'] = { private = "a, b", public = true }, ["max-age=\"7\""] = { ["max-age"] = "7" },
    [",,a,, b ,"] = { a = true, b = true }, ["a=1,a=2"] = { a = "1" }, ["a=2,a=1"] = { a = "1" },
    ["a=1,a=x"] = { a = "x" },
    ["a= 1, b"] = { a = "1", b = true }, ["a="] = { a = "" }, ['a="open, b'] = { a = "open, b" }, ["=1, b"] = { b = true },
    ['"no-store", b'] = { b = true }, ["a b=1"] = { a = true, b = "1" },
  } do
    check.equal({ text, rules.directives(text) }, { text, expected })
  end
  check.equal(rules.directives(nil), {})
end

function tests.long_texts_take_linear_time() -- else this does not end
  for _, one in ipairs { ",", " ", '"', "=", '",', "a " } do
    check.equal(type(rules.directives(one:rep(1000000) .. '"')), "table")
  end
end

function tests.any_text_has_directives()
  math.randomseed(7)
  local parts = { "no-store", "max-age", "=", ",",
    '"', " ", "\t", "1", "9999999999999999999", "\\", "x", "\0", ";" }
  for _ = 1, 20000 do
    local text = {}
    for n = 1, math.random(0, 12) do text[n] = parts[math.random(#parts)] end
    text = table.concat(text)
    for name, value in pairs(rules.directives(text)) do
      check.equal({ text, name:find('[%s,="]'), value == true or type(value) == "string" }, { text, nil, true })
    end
    local stored = rules.store(200, { ["cache-control"] = text, etag = "e" }, 0, nil)
    if stored then
      for _, name in ipairs { "lifetime_ms", "age_ms", "refresh_ms", "error_ms" } do
        local value = stored[name]
        check.equal({ text, value >= 0 and value < 2 ^ 42, math.type(value) }, { text, true, "integer" })
      end
      check.equal({ text, rules.directives(text)["no-store"] }, { text, nil })
    end
  end
end

function tests.what_a_request_asks_for()
  local function asked(text, pragma)
    local a = rules.asked(text, pragma)
    return { a.reload, a.no_store, a.only_if_cached, a.age_max, a.fresh_min, a.stale_max }
  end
  check.equal(asked("no-cache"), { true, false, false, -1, -1, -1 })
  check.equal(asked(nil, "no-cache"), { true, false, false, -1, -1, -1 })
  check.equal(asked("max-age=0", "no-cache"), { false, false, false, 0, -1, -1 })
  check.equal(asked("no-store, only-if-cached, min-fresh=3, max-stale"), { false, true, true, -1, 3, 2147483647 })
  check.equal(asked("max-stale=4, max-age=x"), { false, false, false, 0, -1, 4 })
end

function tests.times()
  local now = 777 -- the fake core has dates such as "http 777"
  local function times(fields, lifetime)
    local s = rules.store(200, fields, now, lifetime)
    return s and { s.age_ms, s.lifetime_ms, s.refresh_ms, s.error_ms, s.strict }
  end
  local function control(text) return { ["cache-control"] = text, etag = "e" } end
  check.equal(times(control("max-age=5")), { 0, 5000, 0, 0, false })
  check.equal(times(control("max-age=5, s-maxage=6")), { 0, 6000, 0, 0, true })
  check.equal(times(control("s-maxage=6, stale-while-revalidate=7, stale-if-error=8")), { 0, 6000, 7000, 8000, false })
  check.equal(times(control("max-age=5, must-revalidate, stale-if-error=8")), { 0, 5000, 0, 8000, true })
  check.equal(times(control("max-age=5, proxy-revalidate")), { 0, 5000, 0, 0, true })
  check.equal(times(control("no-cache, max-age=5")), { 0, 0, 0, 0, true })
  check.equal(times(control("max-age=99999999999")), { 0, 2147483647000, 0, 0, false })
  check.equal(times({ ["cache-control"] = "max-age=5", age = "3" }), { 3000, 5000, 0, 0, false })
  check.equal(times({ ["cache-control"] = "max-age=5", date = "http 775", age = "1" }),
    { 2000, 5000, 0, 0, false })
  check.equal(times({ ["cache-control"] = "max-age=5", date = "http 779", age = "x" }),
    { 0, 5000, 0, 0, false })
  check.equal(times({ expires = "http 787" }), { 0, 10000, 0, 0, false })
  check.equal(times({ expires = "http 787", date = "http 767" }),
    { 10000, 20000, 0, 0, false })
  check.equal(times({}, 9), { 0, 9000, 0, 0, false })
  check.equal(times({}, 0.25), { 0, 250, 0, 0, false })
  check.equal(times({ expires = "0", etag = "e" }, 9), { 0, 0, 0, 0, false })
  check.equal(times({ expires = "0" }, 9), nil)
end

function tests.event_streams_are_not_stored()
  local function stored(content_type)
    return rules.store(200, { ["content-type"] = content_type }, 0, 9) ~= nil
  end
  check.equal({ stored("text/event-stream"), stored("Text/Event-Stream; charset=utf-8"), stored("text/event-stream ;a=b"),
    stored("text/event-stream2"), stored("text/event-stream-x"), stored("text/plain") },
    { false, false, false, true, true, true })
end

function tests.what_selects_a_response()
  local function vary(text)
    local s = rules.store(200, { ["cache-control"] = "max-age=5", vary = text }, 0, nil)
    return s and s.vary
  end
  check.equal({ vary(nil), vary("Accept-Encoding"), vary(" A ,, b,"), vary("*"), vary("a, *") },
    { "", "accept-encoding", "a,b", nil, nil })
end

return tests
