local check = require "check"
local json = require "luaserve.json"

local tests = {}

function tests.empty_arrays()
  check.equal(json.encode {}, "{}")
  check.equal(json.encode(json.empty_array), "[]")
  check.equal(json.encode { a = json.empty_array }, '{"a":[]}')
  check.equal(json.encode { json.array {}, json.array { 1 }, json.array { a = 1 } }, '[[],[1],{"a":1}]')
  check.raises({ check.line(1), "cannot be filled" }, function()
    table.insert(json.empty_array, 1)
  end)
  check.raises("takes a table", json.array, "x")
end

function tests.other_bytes_ff_stay()
  check.equal(json.encode { "\xFF" }, '["\xFF"]')
end

function tests.null_both_ways()
  check.equal(json.encode { a = json.null }, '{"a":null}')
  check.equal(json.decode("null") == json.null, true)
  check.equal(json.decode('{"a":null}').a == json.null, true)
end

function tests.bad_text_gives_nil_and_a_message()
  for _, bad in ipairs { "", "{", "[1,]", "NaN", "0x10", "01", "-Infinity", "[1] x", '"\\ud800"', ("["):rep(2000) } do
    local value, message = json.decode(bad)
    check.equal(value, nil)
    check.equal(type(message), "string")
  end
  check.raises("takes a text; got nil", json.decode, nil)
end

function tests.what_json_cannot_say_raises_at_the_caller()
  check.raises({ check.line(1), "function" }, function()
    return (json.encode { print })
  end)
  check.raises("NaN", json.encode, 0 / 0)
  local loop = {}
  loop.loop = loop
  check.raises("nesting", json.encode, loop)
end

function tests.gaps_make_an_object()
  check.equal(json.encode { [1001] = "x" }, '{"1001":"x"}')
end

return tests
