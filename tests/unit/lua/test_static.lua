-- app:static without the core: its routes, what it makes of the results of the core, listings, wrong calls.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local tests = {}

-- The response to a request, when the core returns these results; then the arguments of the call of the core.
local function get(app, path, ...)
  core.results.static_get = table.pack(...)
  core.take_calls()
  local response = assert(app:inject { path = path })
  core.results.static_get = nil
  for _, call in ipairs(core.take_calls()) do
    if call[1] == "static_get" then return response, call[4], call[2] end
  end
  return response
end

function tests.the_core_gets_the_number_of_segments_of_the_prefix()
  local inner = ls.app():static("/", "first"):static("/deep/er", "second")
  local app = ls.app():static("/files", "others"):mount("/m/:id", inner)
  for path, skip in pairs { ["/files/x"] = 1, ["/files/"] = 1, ["/files"] = 1, ["/m/7/x"] = 2, ["/m/7/"] = 2,
    ["/m/7/deep/er/x/y"] = 4, ["/m/7/deep/er"] = 4, ["/files/a%2Fb"] = 1 } do
    local _, got = get(app, path, 404)
    check.equal(got, skip)
  end
end

function tests.results_of_the_core()
  local app = ls.app():static("/s", "public")
  check.equal(get(app, "/s/x", nil).status, 204) -- the real core has sent the response
  check.equal(get(app, "/s/x", 404).status, 404)
  local response = get(app, "/s/x", 308, "/s/x/")
  check.equal(response.status, 308)
  check.equal(response.headers.Location, "/s/x/")
  app:not_found(function(req) return "no " .. req.path end)
  response = get(app, "/s/x", 404)
  check.equal(response.status, 404)
  check.equal(response.body, "no /s/x")
end

function tests.other_routes_go_first_and_middleware_runs_around()
  local app = ls.app():static("/", "public"):get("/", function() return "root" end):get("/a/:b", function() return "b" end)
  app:use(function(_, res, next)
    res:header("X-Outer", "1")
    return next()
  end)
  check.equal(get(app, "/", 404).body, "root")
  check.equal(get(app, "/a/x", 404).body, "b")
  local response, skip = get(app, "/a/x/y", 404)
  check.equal(skip, 0)
  check.equal(response.headers["X-Outer"], "1")
  response = assert(app:inject { method = "POST", path = "/x" })
  check.equal(response.status, 405)
  check.equal(response.headers.Allow, "GET, HEAD, OPTIONS")
end

-- The path of a file is remembered; what it names stays the same, also after more paths than are remembered.
function tests.remembered_paths()
  local app = ls.app():static("/s", "public"):head("/s/h", function(_, res) res:header("X", "own") end)
  for _ = 1, 2 do
    for n = 1, 1025 do check.equal(select(2, get(app, "/s/" .. n, 404)), 1) end
    check.equal(get(app, "/s/h", 404).status, 404)
    check.equal(assert(app:inject { method = "HEAD", path = "/s/h" }).headers.X, "own")
    check.equal(assert(app:inject { method = "POST", path = "/s/1" }).status, 405)
    check.equal(assert(app:inject { method = "POST", path = "/s/1", body = ("x"):rep(1001) }).status, 405)
    check.equal(assert(app:inject { method = "GET", path = "/s/1", body = ("x"):rep(1001) }).status, 413)
    check.equal(select(2, get(app, "/s/" .. ("x"):rep(300), 404)), 1)
  end
end

function tests.options_in_the_words_of_the_core()
  local function options_of(options)
    local _, _, object = get(ls.app():static("/s", "public", options), "/s/x", 404)
    return object.options
  end
  check.equal(options_of({}).index, "index.html")
  check.equal(options_of({ index = false }).index, "")
  check.equal(options_of({ index = "a/b.html" }).index, "a/b.html")
  check.equal(options_of({ fallback = "app.html" }).fallback, "app.html")
  check.equal(options_of({ max_age = 3600 }).lines, "Cache-Control: public, max-age=3600\r\n")
  check.equal(options_of({ max_age = 60.0 }).lines, "Cache-Control: public, max-age=60\r\n")
  check.equal(options_of({ max_age = 0 }).lines, "Cache-Control: no-cache\r\n")
  check.equal(options_of({ max_age = 2 ^ 31 }).lines, "Cache-Control: public, max-age=2147483648\r\n")
  check.equal(options_of({}).lines, nil)
  check.equal(options_of({ immutable = "/s/h/" }).immutable, "/s/h/")
end

function tests.a_listing_is_sorted_and_escaped()
  local app = ls.app():static("/s", "public", { list = true })
  core.results.file_list = { {
    { name = ".hidden", type = "file", size = 2, mtime = 0.0 }, { name = "a", type = "file", size = 1, mtime = 86400.5 },
    { name = "b & c", type = "file", size = 5, mtime = 0.0 }, { name = "z", type = "directory", size = 0, mtime = 0.0 },
  }, true }
  local response = get(app, "/s/x%20%3Cy%3E/", "list", "/x y/")
  core.results.file_list = nil
  check.equal(response.status, 200)
  local names = {}
  for name in response.body:gmatch('<a href="([^"]*)">') do names[#names + 1] = name end
  check.equal(table.concat(names, " "), "../ z/ a b%20%26%20c")
  check.equal(response.body:find("<td>1</td><td>1970-01-02 00:00:00</td>", 1, true) ~= nil, true)
  check.equal(response.body:find("b &amp; c</a></td><td>5</td>", 1, true) ~= nil, true)
  check.equal(response.body:find("<title>Index of /s/x &lt;y&gt;/</title>", 1, true) ~= nil, true)
  check.equal(response.body:find("There are more files", 1, true) ~= nil, true)
end

function tests.a_folder_that_cannot_be_listed()
  local app = ls.app():static("/s", "public", { list = true })
  for _, code in ipairs { "ENOENT", "ENOTDIR", "EACCES" } do
    core.results.file_list = { nil, "not found", code, n = 3 }
    check.equal(get(app, "/s/x/", "list", "/x/").status, 404)
  end
  core.results.file_list = { nil, "too many open descriptors", "EMFILE", n = 3 }
  check.equal(get(app, "/s/x/", "list", "/x/").status, 500)
  core.results.file_list = nil
end

function tests.wrong_calls()
  local app = ls.app()
  for _, case in ipairs {
    { { "/s" }, "takes the prefix of the paths and a folder" },
    { { "/s", "" }, "takes the prefix of the paths and a folder" }, { { "s", "x" }, 'must begin with "/"' },
    { { "/s/*a", "x" }, "the prefix must not contain *a" }, { { "/s", "nowhere" }, 'there is no folder "nowhere"' },
    { { "/s", "locked" }, 'cannot open the folder "locked": permission denied' },
    { { "/s", "x", "y" }, "options must be a table" }, { { "/s", "x", {}, 1 }, "too many arguments" },
    { { "/s", "x", { max_age = 2 ^ 31 + 1 } }, "max_age must be a whole number of seconds from 0 to 2147483648" },
    { { "/s", "x", { max_age = 1.5 } }, "max_age must be" },
    { { "/s", "x", { index = "" } }, "index must be the name of a file" },
    { { "/s", "x", { index = "a/../b" } }, "index must be the name of a file" },
    { { "/s", "x", { fallback = "none.html" } }, 'fallback: there is no file "none.html" in the folder "x"' },
    { { "/s", "x", { fallback = true } }, "fallback must be the name of a file" },
    { { "/s", "x", { fallback = ("x"):rep(256) } }, "fallback must be the name of a file" },
    { { "/s", "x", { immutable = 1 } }, "immutable must be the beginning of the paths" },
  } do
    local ok, message = pcall(app.static, app, table.unpack(case[1]))
    check.equal(ok, false)
    if not message:find(case[2], 1, true) then error(message .. ": without " .. case[2]) end
  end
  app:static("/s", "x", { fallback = ("x"):rep(255) })
  check.equal(pcall(app.static, app, "/s", "x"), false) -- a second time
end

function tests.private_files_are_not_served()
  local private = require "luaserve.private"
  local function served(folder) ls.app():static("/", folder) end
  private.file("served/own.db", "the database own.db")
  for folder, what in pairs { ["."] = "the ", ["/site/"] = "the ", ["/"] = "the ",
    ["served"] = "the database own.db", ["tests/unit/lua"] = "the module " } do
    check.raises({ "app:static would serve " .. what, "make a folder" }, served, folder)
  end
  served("server")
  served("public")
  private.file("publication/x", "a key")
  check.raises({ "app:static would serve a key, because it lies in" }, private.file, "public/sub/key.pem", "a key")
end

return tests
