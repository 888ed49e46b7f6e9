local check = require "check"
local names = require "luaserve.names"
local usage = require "luaserve.usage"

local tests = {}

function tests.edit_distance_counts_each_edit_once()
  check.equal(names.edit_distance("", ""), 0)
  check.equal(names.edit_distance("abc", "abc"), 0)
  check.equal(names.edit_distance("abc", ""), 3)
  check.equal(names.edit_distance("abc", "abxc"), 1)
  check.equal(names.edit_distance("abc", "ac"), 1)
  check.equal(names.edit_distance("abc", "abd"), 1)
  check.equal(names.edit_distance("abcd", "acbd"), 1)
  check.equal(names.edit_distance("kitten", "sitting"), 3)
end

function tests.nearest_finds_misspelled_and_reordered_names_only()
  local known = { max_body = true, idle_timeout = true, port = true }
  check.equal(names.nearest("max_bdoy", known), "max_body")
  check.equal(names.nearest("body_max", known), "max_body")
  check.equal(names.nearest("Timeout_Idle", known), "idle_timeout")
  check.equal(names.nearest("prot", known), "port")
  check.equal(names.nearest("completely_else", known), nil)
  check.equal(names.nearest(12, known), nil)
  check.equal(names.nearest("warning", { warn = true, error = true }), "warn")
  check.equal(names.nearest("on_message", { max_message = true, message = true }), "message")
  check.equal(names.nearest("on_", { message = true }), nil)
  check.equal(names.nearest("idle", known), "idle_timeout")
  for name, right in pairs { setHeader = "header", set = "header", sent_ = "sent", writeHead = "status", ["end"] = "send" } do
    check.equal(names.nearest(name, { header = true, sent = true, send = true, status = true }), right)
  end
end

function tests.misspelled_is_one_letter_away()
  local known = { query = true, path = true, params = true, header = true, headers = true }
  for name, right in pairs { quary = "query", qeury = "query", param = "params", heders = "headers", haeder = "header", args = "query" } do
    check.equal(names.misspelled(name, known), right)
  end
  for _, name in ipairs { "user", "paht", "session", "queue", "account", "" } do
    check.equal(names.misspelled(name, known), nil)
  end
end

function tests.no_more_raises_for_values_that_would_be_ignored()
  usage.no_more("f()", 1)
  usage.no_more("f()", nil, nil, nil)
  check.raises({ check.line(1), "too many arguments for f(): got false as well" }, function()
    usage.no_more("f()", 1, nil, false)
  end)
  usage.no_more("f(module)", require "check")
  usage.no_more("f(module)", check, "./check.lua")
  check.raises("got 1 as well", usage.no_more, "f(module)", check, "./check.lua", 1)
  check.raises('got "x" as well', usage.no_more, "f(table)", {}, "x")
end

function tests.error_names_the_line_of_the_caller()
  check.raises(check.line() .. ": no 12", function() usage.error("no %d", 12) end)
end

function tests.quote_truncates_long_strings()
  check.equal(usage.quote("a"), '"a"')
  check.equal(usage.quote(nil), "nil")
  check.equal(usage.quote({}), "a table")
  check.equal(#usage.quote(("x"):rep(1000)), 62)
end

function tests.lists_have_the_keys_from_1_on()
  for _, fine in ipairs { {}, { "a" }, { "a", "b" } } do
    check.equal(usage.is_list(fine), true)
    usage.check_list("f", "x", fine)
  end
  local wrong = {
    { { a = 1 }, 'with the field "a"' }, { { "a", [3] = "b" }, "with the field 3" }, { { "a", "b", [1.5] = 1 }, "with the field 1.5" },
    { { "a", nil, "b" }, "without a value at 2" }, { { "a", nil, "b", more = 1 }, 'with the field "more"' },
  }
  for _, case in ipairs(wrong) do
    check.equal(usage.is_list(case[1]), false)
    check.raises('f: "x" must be a value or a list of values; got a table ' .. case[2], usage.check_list, "f", "x", case[1])
  end
end

return tests
