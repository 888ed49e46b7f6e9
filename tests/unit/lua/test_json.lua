local check = require "check"
local json = require "luaserve.json"

local tests = {}

function tests.empty_arrays_are_encoded_as_brackets()
  check.equal(json.encode {}, "{}")
  check.equal(json.encode(json.empty_array), "[]")
  check.equal(json.encode { a = json.empty_array }, '{"a":[]}')
  check.equal(json.encode { json.array {}, json.array { 1 }, json.array { a = 1 } }, '[[],[1],{"a":1}]')
  check.raises({ check.line(1), "is read-only" }, function()
    table.insert(json.empty_array, 1)
  end)
  check.raises("takes a table", json.array, "x")
end

function tests.other_bytes_ff_are_unchanged()
  check.equal(json.encode { "\xFF" }, '["\xFF"]')
end

function tests.null_is_decoded_and_encoded()
  check.equal(json.encode { a = json.null }, '{"a":null}')
  check.equal(json.decode("null") == json.null, true)
  check.equal(json.decode('{"a":null}').a == json.null, true)
end

function tests.invalid_json_gives_nil_and_a_message()
  for _, bad in ipairs { "", "{", "[1,]", "NaN", "0x10", "01", "-Infinity", "[1] x", '"\\ud800"', ("["):rep(2000) } do
    local value, message = json.decode(bad)
    check.equal(value, nil)
    check.equal(type(message), "string")
  end
  check.raises("takes a string; got nil", json.decode, nil)
end

function tests.values_without_a_json_form_raise_at_the_caller()
  check.raises({ check.line(1), "function" }, function()
    return (json.encode { print })
  end)
  check.raises("NaN", json.encode, 0 / 0)
  local loop = {}
  loop.loop = loop
  check.raises("nesting", json.encode, loop)
end

function tests.integer_keys_with_gaps_make_an_object()
  check.equal(json.encode { [1001] = "x" }, '{"1001":"x"}')
end

return tests
