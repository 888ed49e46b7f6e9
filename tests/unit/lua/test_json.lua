local check = require "check"
local json = require "luaserve.json"

local tests = {}

function tests.empty_arrays_are_encoded_as_brackets()
  check.equal(json.encode {}, "{}")
  check.equal(json.encode(json.empty_array), "[]")
  check.equal(json.encode { a = json.empty_array }, '{"a":[]}')
  check.equal(json.encode { json.array {}, json.array { 1 }, json.array { a = 1 } }, '[[],[1],{"a":1}]')
  check.raises("takes a table", json.array, "x")
end

function tests.sorted_members_are_in_the_order_of_the_bytes_of_their_names()
  local encode = json.encode_sorted
  check.equal(encode { b = { { z = 1, y = {} } }, a = json.null, ["a\0"] = 1, ["B"] = true, [100] = "n", [20] = 1.5, ["é"] = 0 },
    [[{"100":"n","20":1.5,"B":true,"a":null,"a\u0000":1,"b":[{"y":{},"z":1}],"é":0}]])
  check.equal({ encode {}, encode { 1, 2 }, encode(json.array {}), encode "x" }, { "{}", "[1,2]", "[]", '"x"' })
  local deep = {}
  for _ = 1, 900 do deep = { b = 1, a = deep } end
  check.equal(encode(deep), ('{"a":'):rep(900) .. "{}" .. (',"b":1}'):rep(900))
  check.raises({ check.line(), "value.a is a function" }, function() encode { a = print } end)
  check.raises({ check.line(), "a key" }, function() encode { [true] = 1 } end)
end

function tests.the_empty_array_is_read_only()
  for _, write in ipairs {
    function() table.insert(json.empty_array, 1) end,
    function() json.empty_array[1] = "x" end,
    function() json.empty_array.name = "x" end,
  } do
    check.raises("ls.json.empty_array is read-only; make a table of your own", write)
  end
  check.raises({ check.line(), "is read-only" }, function() json.empty_array[1] = 1 end)
  check.equal(#json.empty_array, 0)
  check.equal(json.encode { json.empty_array }, "[[]]")
end

function tests.an_array_may_be_marked_before_it_is_filled_and_after_it_is_emptied()
  local list = json.array {}
  check.equal(json.encode(list), "[]")
  list[1] = "x"
  check.equal(json.encode(list), '["x"]')
  table.remove(list)
  check.equal(json.encode(list), "[]")
  check.equal(json.array(list) == list, true)
  local own = setmetatable({}, { __len = function() return 7 end })
  check.equal(json.array(own) == json.empty_array, true)
  check.equal(json.encode(own), "{}")
  own[1] = 5
  check.equal(json.array(own) == own, true)
  check.equal(json.encode(own), "[5]")
end

function tests.empty_arrays_of_a_text_stay_arrays()
  for _, text in ipairs { "[]", "{}", '[[],{},[[]],[{}]]', '{"a":[]}' } do
    check.equal(json.encode(json.decode(text)), text)
  end
  local items = json.decode('{"items":[ ]}').items
  items[1] = 1
  check.equal(json.encode(items), "[1]")
  local other = json.decode("[]")
  other.name = "x"
  check.equal(json.encode(other), '{"name":"x"}')
end

function tests.control_characters_of_a_text_must_be_escaped() -- RFC 8259 section 7
  for byte = 0, 31 do
    for _, form in ipairs { '["a%sb"]', '["\\na%sb"]', '["a%s\\n"]', '{"a%sb":1}' } do
      local value, message = json.decode((form:gsub("%%s", (string.char(byte):gsub("%%", "%%%%")))))
      check.equal({ byte, form, value, type(message) }, { byte, form, nil, "string" })
    end
  end
  check.equal(json.decode('["a\127b\\t"]')[1], "a\127b\t")
  check.equal(json.decode('[\t"a"\r\n]')[1], "a")
end

function tests.strings_keep_their_bytes()
  for byte = 0, 255 do
    local text = byte < 128 and string.char(byte, 120, byte) or utf8.char(byte, 120, byte)
    check.equal(json.decode(json.encode(text)), text)
    check.equal(json.decode(json.encode { [text] = text })[text], text)
  end
  check.equal(json.encode { "a/b", "\0\127\"\\" }, '["a/b","\\u0000\\u007f\\"\\\\"]')
  check.equal(json.decode '["\\/\\u0041\\ud83d\\ude00\\u00e9"]'[1], "/A😀é")
  check.equal(require("cjson").encode { "\xFF", "xxxxxxxx\xe2\x82" }, '["\xFF","xxxxxxxx\xe2\x82"]')
  for _, text in ipairs { "\xFF", "xxxxxxxx\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xc3", "\xf4\x90\x80\x80" } do
    check.raises("UTF-8", json.encode, { text })
    check.raises("UTF-8", json.encode, { [text] = 1 })
  end
  for n = 0, 9 do -- beside and inside of eight bytes
    for _, special in ipairs { "\"", "\\", "\n", "\127", "\u{e9}", "\u{20ac}", "\u{d55c}", "\u{1f600}" } do
      local text = ("x"):rep(n) .. special .. ("y"):rep(9 - n) .. special
      check.equal(json.decode(json.encode(text)), text)
    end
  end
  for _, text in ipairs { '["\xFF"]', '["\xC3"]', '{"\xED\xA0\x80":1}' } do
    local value, message = json.decode(text)
    check.equal({ value, message }, { nil, "JSON must be UTF-8" })
  end
end

function tests.integers_stay_integers_and_floats_stay_floats()
  check.equal(json.encode { 1, 1.0, -0.0, 2^53, 1e300, 0.1, math.maxinteger, math.mininteger, 1234567890123456 },
    "[1,1.0,-0.0,9007199254740992.0,1e+300,0.1,9223372036854775807,-9223372036854775808,1234567890123456]")
  check.equal(json.decode "[1,1.0,1e2,9223372036854775807,9223372036854775808,-9223372036854775808]",
    { 1, 1.0, 100.0, math.maxinteger, 2.0^63, math.mininteger })
  check.equal(json.encode { [9007199254740993] = 1 }, '{"9007199254740993":1}')
  check.equal(json.encode { [1.5] = 1 }, '{"1.5":1}')
end

function tests.null_is_decoded_and_encoded()
  check.equal(json.encode { a = json.null }, '{"a":null}')
  check.equal(json.decode("null") == json.null, true)
  check.equal(json.decode('{"a":null}').a == json.null, true)
end

function tests.invalid_json_gives_nil_and_a_message()
  for _, bad in ipairs { "", "{", "[1,]", "NaN", "0x10", "01", "-Infinity", "[1] x",
    '"\\ud800"', "1.", "1\0", "[1]\0 ", ("["):rep(2000) } do
    local value, message = json.decode(bad)
    check.equal(value, nil)
    check.equal(type(message), "string")
  end
  check.raises("takes a string; got nil", json.decode, nil)
end

function tests.values_without_a_json_form_raise_at_the_caller()
  check.raises({ check.line(), "function" }, function() return (json.encode { print }) end)
  check.raises("NaN", json.encode, 0 / 0)
  check.raises("UTF-8", json.encode, "\xe9")
  local loop = {}
  loop.loop = loop
  check.raises("value.loop is a table that contains itself", json.encode, loop)
end

function tests.integer_keys_with_gaps_make_an_object()
  check.equal(json.encode { [1001] = "x" }, '{"1001":"x"}')
end

return tests
