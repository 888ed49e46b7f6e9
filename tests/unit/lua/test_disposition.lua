-- disposition: names of downloads.
local check = require "check"
local value = require("luaserve.disposition").value

local tests = {}

function tests.names()
  for name, expected in pairs {
    ["report.pdf"] = '"report.pdf"', ["two words.txt"] = '"two words.txt"', ['a"b'] = [["a\"b"]],
    ["na\u{EF}ve.txt"] = [["na_ve.txt"; filename*=UTF-8''na%C3%AFve.txt]],
    ["\u{20AC} '*%"] = [["_ '*%"; filename*=UTF-8''%E2%82%AC%20%27%2A%25]], ["100%"] = [["100%"; filename*=UTF-8''100%25]],
    [("a"):rep(255)] = '"' .. ("a"):rep(255) .. '"',
  } do
    check.equal(value("x", name), "attachment; filename=" .. expected)
  end
  for _, name in ipairs { "", "a/b", "a\\b", "a\nb", "a\x7f", "a\0", "\xff", "\xc3", ("a"):rep(256) } do
    check.raises("res:attachment: name must be the name of a file in UTF-8", value, "res:attachment: name", name)
  end
end

return tests
