local check = require "check"
local misuse = require "luaserve.misuse"

local tests = {}

function tests.distance_counts_each_kind_of_slip_once()
  check.equal(misuse.distance("", ""), 0)
  check.equal(misuse.distance("abc", "abc"), 0)
  check.equal(misuse.distance("abc", ""), 3)
  check.equal(misuse.distance("abc", "abxc"), 1)
  check.equal(misuse.distance("abc", "ac"), 1)
  check.equal(misuse.distance("abc", "abd"), 1)
  check.equal(misuse.distance("abcd", "acbd"), 1)
  check.equal(misuse.distance("kitten", "sitting"), 3)
end

function tests.nearest_finds_slips_and_swapped_words_and_nothing_far()
  local known = { max_body = true, idle_timeout = true, port = true }
  check.equal(misuse.nearest("max_bdoy", known), "max_body")
  check.equal(misuse.nearest("body_max", known), "max_body")
  check.equal(misuse.nearest("Timeout_Idle", known), "idle_timeout")
  check.equal(misuse.nearest("prot", known), "port")
  check.equal(misuse.nearest("completely_else", known), nil)
  check.equal(misuse.nearest(12, known), nil)
end

function tests.raise_names_the_line_of_the_caller()
  check.raises(check.line(1) .. ": no 12", function()
    misuse.raise("no %d", 12)
  end)
end

function tests.show_is_short()
  check.equal(misuse.show("a"), '"a"')
  check.equal(misuse.show(nil), "nil")
  check.equal(misuse.show({}), "a table")
  check.equal(#misuse.show(("x"):rep(1000)), 62)
end

return tests
