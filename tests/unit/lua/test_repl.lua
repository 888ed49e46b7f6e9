-- luacheck: ignore 631
-- luaserve.repl: which text is a whole chunk, the text of values, completion.
local check = require "check"
local repl = require "luaserve.repl"

local tests = {}

local function compiled(text)
  local chunk, message, incomplete = repl.compile(text, {})
  if chunk then return "whole", table.pack(chunk()) end
  return incomplete and "more" or "error", message
end

function tests.whole_texts_and_their_values()
  for text, value in pairs { ["1"] = 1, ["1 + 1"] = 2, ["return 3"] = 3, ["(function() return 4 end)()"] = 4,
    ["'a\\\nb'"] = "a\nb", ["[[\na]]"] = "a", ["  5  -- five"] = 5, ["local x = 6\nreturn x"] = 6 } do
    local kind, results = compiled(text)
    check.equal({ text, kind }, { text, "whole" })
    check.equal(results[1], value)
  end
  for _, text in ipairs { "", "-- nothing", "x = 1", "local x", ";", "goto e ::e::" } do
    check.equal({ text, (compiled(text)) }, { text, "whole" })
  end
end

function tests.incomplete_texts()
  for _, text in ipairs { "for i = 1, 2 do", "if x then", "function f(", "f(", "x =", "1 +", "return 1 +", "{", "{ 1,", "[[a",
    "--[[ a", "x = [==[ ]] ", "while true", "repeat", "local function f()", "a.", "a:", "not", "#", "goto", "::a",
    "print(1,\n2", "(" } do
    check.equal({ text, (compiled(text)) }, { text, "more" })
  end
end

function tests.wrong_texts()
  for _, text in ipairs { "x = = 1", ")", "end", "1 2", "'abc", '"abc', "x ==== 1", "for for", "return return", "goto 1",
    "1 + )" } do
    check.equal({ text, (compiled(text)) }, { text, "error" })
  end
end

function tests.no_bytecode()
  check.equal((compiled(string.dump(function() end))), "error")
end

function tests.values()
  for _, case in ipairs { { nil, "nil" }, { true, "true" }, { 1, "1" }, { 1.5, "1.5" }, { 2^53, "9.007199254741e+15" },
    { "a", '"a"' }, { "", '""' }, { 'a"b\\c', '"a\\"b\\\\c"' }, { "a\nb\tc\r", '"a\\nb\\tc\\r"' }, { "\0\27[31m\127", '"\\x00\\x1B[31m\\x7F"' },
    { "h\u{e4}\u{1f600}", '"h\u{e4}\u{1f600}"' }, { "\xff\xe4", '"\\xFF\\xE4"' }, { "\u{9b}31m", '"\\u{9B}31m"' }, { {}, "{}" },
    { { 1, 2, 3 }, "{ 1, 2, 3 }" }, { { b = 1, a = 2 }, "{ a = 2, b = 1 }" }, { { 1, nil, 3, x = true }, nil },
    { { [2] = "b", [10] = "j", [1.5] = 0, z = 1 }, '{ [1.5] = 0, [2] = "b", [10] = "j", z = 1 }' },
    { { ["a b"] = 1, ["end"] = 2, [true] = 3 }, '{ ["a b"] = 1, ["end"] = 2, [true] = 3 }' },
    { { { { { { 1 } } } } }, "{ { { { { ... } } } } }" }, { { { { {} } } }, "{ { { {} } } }" } } do
    if case[2] then check.equal(repl.show(case[1]), case[2]) end
  end
  check.equal(repl.show(print):match("^function: "), "function: ")
  check.equal(repl.show_all(3, 1, nil, "a"), '1\tnil\t"a"')
  check.equal(repl.show_all(0), "")
end

function tests.long_tables_have_a_line_for_each_entry()
  check.equal(repl.show { name = ("x"):rep(40), other = ("y"):rep(40), t = { 1, 2 } },
    '{\n  name = "' .. ("x"):rep(40) .. '",\n  other = "' .. ("y"):rep(40) .. '",\n  t = { 1, 2 }\n}')
  check.equal(repl.show { { a = ("x"):rep(80) } }, '{\n  {\n    a = "' .. ("x"):rep(80) .. '"\n  }\n}')
end

function tests.cycles_and_repetitions()
  local t = { 1 }
  t.self = t
  check.equal(repl.show(t), "{ 1, self = { <cycle> } }")
  local shared = { 2 }
  check.equal(repl.show { shared, shared }, "{ { 2 }, { 2 } }")
end

function tests.limits()
  local limits = repl.limits
  local function list(n) local t = {} for i = 1, n do t[i] = 1 end return t end
  check.equal(repl.show(list(limits.items)):find("more", 1, true), nil)
  check.equal(repl.show(list(limits.items + 1)):match("%.%.%. %((%d+) more%)"), "1")
  local map = {}
  for i = 1, limits.items + 5 do map["k" .. i] = i end
  check.equal(repl.show(map):match("%((%d+) more%)"), "5")
  check.equal(repl.show(("x"):rep(limits.string_bytes)), '"' .. ("x"):rep(limits.string_bytes) .. '"')
  check.equal(repl.show(("x"):rep(limits.string_bytes + 1)), '"' .. ("x"):rep(limits.string_bytes) .. '"... (' .. limits.string_bytes + 1 .. " bytes)")
  check.equal(repl.show(("\u{e4}"):rep(limits.string_bytes)):sub(-19), '\u{e4}"... (' .. 2 * limits.string_bytes .. " bytes)")
  local cut = repl.show("x" .. ("\u{e4}"):rep(limits.string_bytes))
  check.equal(utf8.len(cut) ~= nil and not cut:find("\\x", 1, true), true)
  local large = {}
  for i = 1, limits.items do large[i] = ("x"):rep(limits.string_bytes) end
  check.equal(#repl.show(large) < limits.bytes + 2 * limits.string_bytes, true)
  check.equal(repl.show(large):match("%((%d+) more%)") ~= nil, true)
end

function tests.metatables()
  check.equal(repl.show(setmetatable({}, { __tostring = function() return "an object" end })), "an object")
  check.equal(repl.show(setmetatable({}, { __tostring = function() return "\27[2J" end })), "\\x1B[2J")
  check.equal(repl.show(setmetatable({}, { __tostring = function() error("no") end })), "<table: __tostring failed>")
  check.equal(repl.show(setmetatable({ 1 }, { __name = "thing" })), "thing { 1 }")
  check.equal(repl.show(setmetatable({ 1 }, { __index = error, __len = error, __pairs = error })), "{ 1 }")
  check.equal(repl.show(setmetatable({ 1 }, { __metatable = "hidden" })), "{ 1 }")
end

local env = setmetatable({
  ls = setmetatable({ sleep = print, spawn = print, json = { encode = print, decode = print }, version = "1" }, { __index = error }),
  app = setmetatable({ routes = {} }, { __index = { get = print, post = print } }),
  s = "text", long_name = 1, [1] = 2,
}, { __index = { string = string, print = print, unpack = 1 } })

function tests.completion()
  for _, case in ipairs {
    { "ls.s", "s", "sleep spawn" }, { "x = ls.sl", "sl", "sleep" }, { "ls.", "", "json sleep spawn version" },
    { "ls.json.", "", "decode encode" }, { "ls.nothing.", "", "" }, { "ls.sleep.", "", "" }, { "ls.version:up", "up", "upper" },
    { "app:", "", "get post" }, { "app.", "", "get post routes" }, { "app:g", "g", "get" },
    { "lo", "lo", "local long_name" }, { "pri", "pri", "print" }, { "return pr", "pr", "print" }, { "f(pr", "pr", "print" },
    { "s:re", "re", "rep reverse" }, { "nothing.", "", "" }, { "", "", "" }, { "  ", "", "" }, { "f().x", "x", "" }, { "a[1].x", "x", "" },
    { "ls.json.en", "en", "encode" }, { "whi", "whi", "while" }, { "1.", "", "" }, { "'ls.", "", "" } } do
    local words, word = repl.complete(case[1], env)
    check.equal({ case[1], word }, { case[1], case[2] })
    check.equal({ case[1], table.concat(words, " ") }, { case[1], case[3] })
  end
end

function tests.completion_calls_nothing()
  local touchy = setmetatable({}, { __index = function() error("called") end, __pairs = error })
  check.equal(#(repl.complete("t.x.y", { t = touchy })), 0)
  local loop = {}
  setmetatable(loop, { __index = loop })
  check.equal(#(repl.complete("l.x.y", { l = loop })), 0)
end

function tests.the_environment_writes_to_the_globals()
  local own = repl.environment(error)
  own.repl_test = 5
  check.equal(rawget(_G, "repl_test"), 5)
  check.equal(own.repl_test, 5)
  _G.repl_test = nil
  check.equal(own.print, error)
  check.equal(own.ls, require "luaserve")
end

return tests
