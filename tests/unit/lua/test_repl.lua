-- luacheck: ignore 631
-- luaserve.repl: which text is a whole chunk, completion.
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
