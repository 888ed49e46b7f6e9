local check = require "check"
local page = require "luaserve.dev_page"

local tests = {}

local function numbers(list)
  local parts = {}
  for i, line in ipairs(list) do parts[i] = (line.marked and ">" or "") .. line.number .. line.text end
  return table.concat(parts, " ")
end

function tests.excerpt()
  local text = "a\nb\nc\nd\ne"
  check.equal(numbers(page.excerpt(text, 3, 1)), "2b >3c 4d")
  check.equal(numbers(page.excerpt(text, 1, 2)), ">1a 2b 3c")
  check.equal(numbers(page.excerpt(text .. "\n", 5, 1)), "4d >5e")
  check.equal(page.excerpt(text, 6, 1), {})
  check.equal(page.excerpt(text, 0, 1), {})
  check.equal(numbers(page.excerpt("", 1)), ">1")
  check.equal(numbers(page.excerpt("a\r\n\r\nb\r\n", 2)), "1a >2 3b")
end

function tests.place()
  check.equal({ page.place("site.lua:12: broken") }, { "site.lua", 12 })
  check.equal({ page.place("./lib/x.lua:3: in function 'f'") }, { "./lib/x.lua", 3 })
  check.equal({ page.place("C:/sites/a b.lua:7: x") }, { "C:/sites/a b.lua", 7 })
  check.equal({ page.place("luaserve/app.lua:1: x\n\tsite.lua:2: y") }, { "site.lua", 2 })
  check.equal({ page.place("[C]: in ?") }, {})
  check.equal({ page.place("no place: 12") }, {})
  check.equal({ page.place("<b>:1: x") }, {})
  check.equal({ page.place("") }, {})
end

function tests.text_of_an_error()
  check.equal(page.text_of("site.lua:1: a", "site.lua:1: a\nstack traceback:\n\t[C]: in ?"), "site.lua:1: a")
  check.equal(page.text_of({}, "{ code = 7 }\nstack traceback:\n\t[C]: in ?"), "{ code = 7 }")
  check.equal(page.text_of(nil, "nil"), "nil")
end

local source = "local a = 1\nlocal b = '<script>'\nreturn a .. nil"

local places = {
  path_of = function(name) return name == "site.lua" and name or nil end,
  read = function() return source end,
  link = function(path, line) return "/at?" .. path .. "&" .. line end,
}

local function contains(text, part)
  if not text:find(part, 1, true) then error("without " .. part .. ":\n" .. text, 2) end
end

function tests.error_page()
  local html = page.failure({
    title = "GET /<a> failed",
    message = "site.lua:3: attempt to concatenate <nil> & \"x\"",
    traceback = "site.lua:3: x\nstack traceback:\n\tsite.lua:3: in <f>\n\tother.lua:1: in g",
    request = {
      method = "GET", path = "/<a>", headers = { { "x-a", "<h>" } }, query = { { "q<", "v<" } }, body = "<body>\0\255",
      body_bytes = 5000,
    },
  }, places)
  contains(html, "<title>GET /&lt;a&gt; failed</title>")
  contains(html, "attempt to concatenate &lt;nil&gt; &amp; &quot;x&quot;")
  contains(html, '<span id="L3" class="marked"><b>3</b>return a .. nil</span>')
  contains(html, "local b = &#39;&lt;script&gt;&#39;")
  contains(html, '<a href="/at?site.lua&amp;3">site.lua:3</a>: in &lt;f&gt;')
  contains(html, "\nother.lua:1: in g</pre>") -- was not loaded: no link
  contains(html, "<tr><th>x-a</th><td>&lt;h&gt;</td></tr>")
  contains(html, "<tr><th>q&lt;</th><td>v&lt;</td></tr>")
  contains(html, "&lt;body&gt;\\x00\\xFF")
  contains(html, "The first 8 of 5000 bytes.")
  for _, part in ipairs { "<script", "http://", "https://", " src=", "@import" } do
    check.equal(html:find(part, 1, true), nil)
  end
end

function tests.the_place_is_in_the_traceback()
  local html = page.failure({
    title = "x", message = "no place", traceback = "no place\nstack traceback:\n\t[C]: in error\n\tsite.lua:1: in f",
  }, places)
  contains(html, '<span id="L1" class="marked"><b>1</b>local a = 1</span>')
end

function tests.without_a_source()
  local html = page.failure({ title = "x", message = "other.lua:1: y" }, places)
  contains(html, "other.lua:1: y")
  check.equal(html:find("marked\">", 1, true), nil)
end

function tests.the_place_of_the_script()
  for _, case in ipairs {
    { "<html><body>a", "</body></html>" }, { "a</body>b", "</BODY >" }, -- the last one
    { "<html>a", "</html>" }, { "<!doctype html><p>a", "" }, { " \r\n<!DOCTYPE HTML><p>a", "" }, { "<HTML><p>a", "" },
    { "<p>page", "", true }, { "", "", true },
  } do
    check.equal(page.script_place(case[1] .. case[2], case[3]), #case[1] + 1)
  end
  for _, part in ipairs { "<p>part", "", "<", "</bod" } do check.equal(page.script_place(part, false), nil) end
end

function tests.the_nonce()
  check.equal(page.nonce("script-src 'nonce-abc123='"), "abc123=")
  check.equal(page.nonce("default-src 'self'; script-src 'self' 'NONCE-x' 'nonce-y'"), "x")
  for _, policy in ipairs { "script-src 'self'", "script-src 'nonce-'", "script-src 'nonce-abc", "script-src 'nonce-",
    "script-src 'nonce-a\"b'", "" } do
    check.equal(page.nonce(policy), nil)
  end
end

function tests.source_page()
  local html = page.source("si<te.lua", source, 2)
  contains(html, "<h1>si&lt;te.lua</h1>")
  contains(html, '<span id="L2" class="marked"><b>2</b>local b = &#39;&lt;script&gt;&#39;</span>')
  contains(html, '<span id="L3"><b>3</b>')
  check.equal(page.source("a", "", nil):find("marked\">", 1, true), nil)
end

return tests
