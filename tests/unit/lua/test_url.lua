local check = require "check"
local url = require "luaserve.url"

local tests = {}

function tests.query_sorts_names_and_repeats_lists()
  check.equal(url.query{}, "")
  check.equal(url.query{ b = { "x y", 2, true }, a = "1&2", c = false, d = {} }, "a=1%262&b=x%20y&b=2&b=true&c=false")
  check.equal(url.query{ ["a b"] = "" }, "a%20b=")
end

function tests.query_raises_for_other_values()
  check.raises({ check.line(1), "ls.url.query takes a table such as { page = 2 }; got nil" }, function()
    url.query(nil)
  end)
  check.raises("got the key 1", url.query, { "a" })
  check.raises('"a" must be a string, a number, a boolean or a list of them; got a function', url.query, { a = print })
  check.raises("got a table", url.query, { a = { {} } })
end

function tests.decode_keeps_plus_and_refuses_invalid_escapes()
  check.equal(url.decode("a%20b+c%2f"), "a b+c/")
  check.equal({ url.decode("%zz") }, { nil, 'invalid escape in "%zz"', "EINVAL" })
  check.equal(select(3, url.decode("%00")), "EINVAL")
  check.raises({ check.line(), "ls.url.decode takes a string; got 5" }, function() url.decode(5) end)
end

return tests
