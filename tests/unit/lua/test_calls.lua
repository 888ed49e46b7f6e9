-- luacheck: ignore 631
-- The calls in the code of the pages, examples and templates are as the definitions for editors say: check_calls.lua.
local check = require "check"
local check_calls = require "check_calls"
local documented = require "documented"

local tests = {}
local model = documented.model

local function known()
  local names = { ls = "Module", app = "App", req = "Request", res = "Response" }
  for _, name in ipairs(model.globals) do
    local class = name == "it" and "TestIt" or name == "describe" and "TestDescribe"
    if class then names[name] = class end
  end
  return names
end

-- The problems of a code block, without those of lines that the page states to raise an error: `call() --!> message`. A
-- line that shows a value, `expression --> value`, is a statement.
local function problems_of(code, first)
  local lines, raises, found = {}, {}, {}
  for line in (code .. "\n"):gmatch("([^\n]*)\n") do
    lines[#lines + 1] = line:gsub("%-%->.*$", ";")
    raises[#lines] = line:find("--!>", 1, true) ~= nil
  end
  local fine, list = pcall(check_calls, model, table.concat(lines, "\n"), known())
  if not fine then list = { list } end
  for _, problem in ipairs(list) do
    local line, message = problem:match("^(%d+): (.*)$")
    if not line then error(problem, 0) end
    if not raises[tonumber(line)] then found[#found + 1] = (first + tonumber(line)) .. ": " .. message end
  end
  return found
end

-- The Lua blocks of a page: { { first =, words =, code = }, ... }
local function blocks_of(text)
  local list, open, number = {}, nil, 0
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do
    number = number + 1
    local info = line:match("^ ? ? ?```+(.*)$")
    if info and open then
      if open.words:find("^lua") then list[#list + 1] = open end
      open = nil
    elseif info then
      open = { words = info:match("^%s*(.-)%s*$"), first = number, code = "" }
    elseif open then
      open.code = open.code .. line .. "\n"
    end
  end
  return list
end

function tests.the_pages()
  local count, wrong = 0, {}
  for path, text in pairs(documented.read("README.md lua/docs/*.md lua/docs/*/*.md src/README.md")) do
    for _, block in ipairs(blocks_of(text)) do
      local file = block.words:match("file=(%S+)")
      if (not file or file:find("%.lua$")) and not block.words:find("stress") then
        count = count + 1
        local found = problems_of(block.code, block.first)
        if file == "wrong.lua" then -- the page shows a mistake
          if not found[1] then wrong[#wrong + 1] = path .. ":" .. block.first .. ": no mistake was found in " .. file end
          found = {}
        end
        for _, problem in ipairs(found) do wrong[#wrong + 1] = path .. ":" .. problem end
      end
    end
  end
  check.equal(wrong, {})
  check.equal(count > 180, true)
end

function tests.examples_and_templates()
  local wrong = {}
  for path, text in pairs(documented.read("examples/*.lua examples/live/*.lua lua/templates/*/*.lua lua/templates/*/tests/*.lua")) do
    for _, problem in ipairs(problems_of(text, 0)) do wrong[#wrong + 1] = path .. ":" .. problem end
  end
  check.equal(wrong, {})
end

-- Each mistake is found, with its line and a message that names it; the same code without it is accepted.
function tests.mistakes_are_found()
  for _, case in ipairs {
    { "ls.lissten(8080, app)", "ls has no lissten" }, { "ls.jsn.encode(1)", "ls has no jsn" },
    { "ls.json.encoded(1)", "json has no encoded" }, { "app:gett('/', print)", "app has no gett" },
    { "app.get('/', print)", "called with a colon" }, { "ls:sleep(1)", "called with a dot" },
    { "ls.sleep()", "ls.sleep takes 1, got 0" }, { "ls.sleep(1, 2)", "ls.sleep takes 1, got 2" },
    { "ls.sleep('1')", "number expected, got string" }, { "ls.sleep(app)", "number expected, got App" },
    { "app:mount(app, '/x')", "string expected, got App" },
    { "ls.listen{ port = 1, max_bdy = 1 }", "ListenOptions has no max_bdy" },
    { "ls.listen(8080, app, { tls = { crt = 'a' } })", "TlsOptions has no crt" },
    { "ls.config{ threads = 'x' }", "threads: integer expected, got string" },
    { "ls.config{ threads = 1.5 }", "threads: integer expected, got number" },
    { "ls.on('begin', print)", '"start"|"drain" expected, got string' },
    { "app:get('/', function(a, b) b:redirct('/') end)", "res has no redirct" },
    { "app:get('/', function(a) return a:bdy() end)", "req has no bdy" },
    { "app:get('/', login, { max_body = 1 }, 5)", "expected, got table" },
    { "local a = ls.app() a:pst('/', print)", "app has no pst" },
    { "local d = ls.dict('x', { sise = 1 })", "DictOptions has no sise" },
    { "ls.tcp(1, function(s) for l in s:linse() do end end)", "sock has no linse" },
    { "app:ws('/', { open = function(w) w:sub('x') end })", "ws has no sub" },
    { "local s = assert(ls.connect('h', 1)) s:sendd()", "sock has no sendd" },
    { "local function f(req, res) res:header() end", "res:header takes" },
    { "local test = require 'luaserve.test' test.equal(1)", "test.equal takes" }, { "it('x')", "takes" },
  } do
    local found = check_calls(model, "\n" .. case[1], known())
    local message = found[1] or ""
    check.equal({ case[1], #found, message:find("^2: ") ~= nil, message:find(case[2], 1, true) and case[2] or message },
      { case[1], 1, true, case[2] })
  end
  check.equal(check_calls(model, [[
    local server = ls.listen
    server(8080, app)
    app:get("/", { max_body = false }, function(_, res) return res:json{ ok = true } end)
    app:get("/x", print, function() return ls.json.encode({ ls.now() }) end)
    ls.listen{ port = 1, tls = { { cert = "a" }, { cert = "b" } } }
    local d = ls.dict("x", { size = "4k" })
    d.anything = 1
    app:use(function(req) req.user = 1 end)
    local sock <close> = assert(ls.connect("unix:/x", { read_timeout = false }))
    for line in sock:lines() do sock:send(line, { "a", 1 }) end
    ls.after({ seconds = 1, each_state = true }, print, 1, 2)
    it("x", { timeout = 1 }, function() end)
  ]], known()), {})
end

function tests.other_lua_is_refused()
  for text, message in pairs { ["x ="] = "1: ", ["\nif x the"] = "2: then expected", ["'a"] = "a string without end", ["f("] = "1: ",
    ["--[[ a"] = "a comment without end", ["end"] = "1: a statement expected" } do
    check.raises(message, check_calls, model, text)
  end
end

-- lua/docs/reference/calls.md is what lua/calls.lua makes of the comments of the sources.
function tests.the_page_of_all_calls()
  local pages, path = {}, documented.root .. "/lua/docs/reference/calls.md"
  for name, text in pairs(documented.read("lua/docs/reference/*.md lua/docs/cron.md lua/docs/presence.md")) do
    pages[name:match("reference/(.*)") or name:gsub("^.*/", "../")] = name:find("/calls%.md$") and "" or text
  end
  local page = assert(loadfile(documented.root .. "/lua/calls.lua"))().page(model, pages)
  if os.getenv("WRITE") then
    local file <close> = assert(io.open(path, "wb"))
    assert(file:write(page))
  end
  local file <close> = assert(io.open(path, "rb"))
  if file:read("a"):gsub("\r\n", "\n") ~= page then error("to write the page: WRITE=1 lua5.4 tests/unit/lua/run.lua calls", 0) end
end

return tests
