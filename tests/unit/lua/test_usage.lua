local check = require "check"
local usage = require "luaserve.usage"

local tests = {}

function tests.distance_counts_each_kind_of_slip_once()
  check.equal(usage.distance("", ""), 0)
  check.equal(usage.distance("abc", "abc"), 0)
  check.equal(usage.distance("abc", ""), 3)
  check.equal(usage.distance("abc", "abxc"), 1)
  check.equal(usage.distance("abc", "ac"), 1)
  check.equal(usage.distance("abc", "abd"), 1)
  check.equal(usage.distance("abcd", "acbd"), 1)
  check.equal(usage.distance("kitten", "sitting"), 3)
end

function tests.nearest_finds_slips_and_swapped_words_and_nothing_far()
  local known = { max_body = true, idle_timeout = true, port = true }
  check.equal(usage.nearest("max_bdoy", known), "max_body")
  check.equal(usage.nearest("body_max", known), "max_body")
  check.equal(usage.nearest("Timeout_Idle", known), "idle_timeout")
  check.equal(usage.nearest("prot", known), "port")
  check.equal(usage.nearest("completely_else", known), nil)
  check.equal(usage.nearest(12, known), nil)
end

function tests.raise_names_the_line_of_the_caller()
  check.raises(check.line(1) .. ": no 12", function()
    usage.raise("no %d", 12)
  end)
end

function tests.show_is_short()
  check.equal(usage.show("a"), '"a"')
  check.equal(usage.show(nil), "nil")
  check.equal(usage.show({}), "a table")
  check.equal(#usage.show(("x"):rep(1000)), 62)
end

return tests
