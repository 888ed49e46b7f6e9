"""The definitions for editors that `luaserve new` writes name exactly what the program has, both ways.

tests/unit/lua/test_definitions.lua checks the annotations."""
# sanitizers: none; reads the definitions
import glob
import json
import os
import subprocess

from harness import E2E, ROOT, WAIT, app_site, not_on_windows, read_text, run_program, scratch
from test_docs_reference import SITE

# The classes of the objects that the site of the reference reports.
CLASSES = {"ls.": "luaserve", "ls.json.": "luaserve.Json", "ls.log.": "luaserve.Log", "ls.html.": "luaserve.Html",
           "ls.url.": "luaserve.Url", "ls.date.": "luaserve.Date", "ls.file.": "luaserve.File", "ls.crypto.": "luaserve.Crypto", "hasher:": "luaserve.Hasher", "app:": "luaserve.App", "req:": "luaserve.Request", "res:": "luaserve.Response",
           "buffer:": "luaserve.Buffer", "job:": "luaserve.Job", "timer:": "luaserve.Timer", "n:": "luaserve.Notify",
           "socket:": "luaserve.Socket", "sock:": "luaserve.Sock", "ws:": "luaserve.WebSocket", "c:": "luaserve.UdpClient", "dict:": "luaserve.Dict",
           "channel:": "luaserve.Channel", "semaphore:": "luaserve.Semaphore", "stats": "luaserve.Stats"}

# The socket and the peers of ls.udp, which the reference's site does not report.
UDP = """
local udp
udp = ls.udp("127.0.0.1:0", function(data, peer) return ls.json.encode{ udp = names(udp), peer = names(peer) } end)
app:get("/udp", function()
  local c = ls.udp_connect("127.0.0.1", udp.local_port)
  c:send("x")
  return (c:receive())
end)
ls.listen"""
CLASSES.update({"udp": "luaserve.UdpSocket", "peer": "luaserve.Peer"})

# Fields that an object has only at times, or that its table of names does not list.
UNLISTED = {"luaserve.Request.[]", "luaserve.Dict.[]", "luaserve.WebSocket.[]", "luaserve.Stats.certificates"} | {
    "luaserve.Stats.jobs_" + name for name in ("pushed", "done", "retried", "dead")}  # of a site with ls.queue

# A test file that reports the names of luaserve.test, of its objects, and the globals that a site does not have.
NAMES_OF_TESTS = """
local ls, test = require "luaserve", require "luaserve.test"
local function keys(t, list)
  list = list or {}
  for name in pairs(t) do list[#list + 1] = name end
  return list
end
local function methods(object, list)
  local index = getmetatable(object).__index
  local _, upvalue = nil, index
  if type(index) == "function" then _, upvalue = debug.getupvalue(index, 1) end
  return keys(upvalue, list)
end
local server = test.serve "site.lua"
it("has names", function()
  local globals = {}
  for name in pairs(_G) do if rawget(test, name) then globals[#globals + 1] = name end end
  local response = server:get "/"
  local out = assert(io.open("names.json", "w"))
  out:write(ls.json.encode {
    ["luaserve.Test"] = keys(test), ["_G"] = globals,
    ["luaserve.TestDescribe"] = keys(describe), ["luaserve.TestIt"] = keys(it),
    ["luaserve.TestServer"] = methods(server, keys(server)),
    ["luaserve.InjectResponse"] = methods(response, keys(response)),
  })
  out:close()
end)
"""

# What luaserve.test and its servers have for the program that runs the tests.
INTERNAL = {"luaserve.Test." + name for name in ("running", "describe_error", "collect", "is_failure", "record", "take_recorded", "threads")} | {
    "luaserve.TestServer." + name for name in ("site", "process", "stopped", "socks")}

# Calls each function with one argument more than the definitions give it; of these, the functions with "..." take any number.
EVERY = r"""
local generator = assert(loadfile("@ROOT@/lua/definitions.lua"))()
local sources, model = generator.read("@ROOT@", { @SOURCES@ }), nil
_, model = generator.generate(sources)
local given = { -- where the first of its kind is no such value
  ["Module.postgres"] = { "postgres://x@127.0.0.1:1/y", {} }, ["Module.process"] = { { "true" } }, ["Notify:rearm"] = { "in" },
  ["Module.notify"] = { 1, "in", {} }, ["PostgresPool:copy_in"] = { "t", {}, {} }, ["App:mount"] = { "/x", app },
  ["App:route"] = { "GET", "/x", {}, print }, ["TestServer:request"] = { "GET", "/", {} } }
local as_string = " byte find gmatch gsub len lower match rep reverse unpack upper " -- of buffers: the functions of Lua
local bad, seen, count = {}, {}, 0

local aliases = { string = "x", number = 1, integer = 1, boolean = true, any = 1 }
for _, entry in ipairs(model.types) do aliases[entry.name] = entry.kind end
local function sample(kind)
  local first = generator.split(kind:gsub("%?$", ""):gsub("^%((.*)%)$", "%1"), "%s*|%s*")[1]
  if first:find '^"' then return first:sub(2, -2) elseif first:find "^fun" or first == "function" then return print end
  local of = aliases[first]
  if model.types[1] and type(of) == "string" and first ~= "string" then return sample(of) end
  return of == nil and {} or of
end

local function every(name, object)
  seen[name] = true
  for _, entry in ipairs(model.classes[name].functions) do
    local form, arguments = entry.form, {}
    for _, other in ipairs(form.overloads) do if #other.parameters > #form.parameters then form = other end end
    for i, parameter in ipairs(form.parameters) do arguments[i] = parameter.name ~= "..." and sample(parameter.kind) or nil end
    local whole = name .. form.mark .. entry.name
    arguments = #arguments == #form.parameters and (given[whole] or arguments)
    if arguments and not (name == "Buffer" and as_string:find(" " .. entry.name .. " ", 1, true)) then
      arguments[#arguments + 1] = "extra"
      if form.mark == ":" then table.insert(arguments, 1, object) end
      local _, why = pcall(object[entry.name], table.unpack(arguments))
      count = count + 1
      if not tostring(why):find "too many arguments for" and not tostring(why):find 'got "extra"' then bad[#bad + 1] = whole .. ": " .. tostring(why) end
    end
  end
end

local function result()
  local unseen = {}
  for name, class in pairs(model.classes) do if next(class.functions) and not seen[name] then unseen[name] = true end end
  return { bad = table.concat(bad, "\n"), count = count, unseen = unseen }
end
"""

ARGUMENTS = "ls.config { states = 1 }\n" + EVERY + r"""
for name, of in pairs { MetricCounter = "counter", MetricGauge = "gauge", MetricHistogram = "histogram" } do
  every(name, ls.metrics[of] { name = "a_" .. of, help = "x", buckets = of == "histogram" and { 1 } or nil })
end
every("Metrics", ls.metrics)
local views, subscription = ls.templates(ls.dir), ls.subscribe("x", print)
local _, store = app:proxy("/proxy", "http://127.0.0.1:1", { cache = {} })
every("App", app)
every("Module", ls)
local udp
udp = ls.udp("127.0.0.1:0", function(_, peer)
  every("UdpSocket", udp)
  every("Peer", peer)
  ls.channel("peer"):send(true)
end)
app:get("/sse", function(_, res) every("Sse", res:sse()) end)
app:ws("/ws", { message = print })
app:get("/json", function() return {} end)
app:post("/", ls.session { secret = "@SECRET@" }, function(req, res)
  local at, socket = assert(req.local_addr), ls.socket("udp")
  ls.udp_connect("127.0.0.1", udp.local_port):send("x")
  ls.channel("peer"):receive()
  socket:bind("127.0.0.1", 0)
  local db, wait = ls.sqlite(":memory:"), ls.spawn(ls.fetch, "http://" .. at .. "/sse")
  for part in req:parts() do every("Part", part) end
  db:transaction(function(tx) every("Transaction", tx) end)
  for name, object in pairs {
    Json = ls.json, Log = ls.log, Html = ls.html, Url = ls.url, Date = ls.date, File = ls.file, Crypto = ls.crypto, Request = req,
    Response = res, Buffer = ls.buffer("x"), Job = wait, Timer = ls.after(9, print), Notify = ls.notify(socket, "in"),
    Socket = socket, Sock = assert(ls.connect(at)), WebSocket = assert(ls.websocket("ws://" .. at .. "/ws")), Database = db,
    Hasher = ls.crypto.hasher("sha256"), Dict = ls.dict("x"), Channel = ls.channel("x"), Semaphore = ls.semaphore("x", 1),
    UdpClient = ls.udp_connect("127.0.0.1", 9), CookieJar = ls.cookie_jar(), Redis = ls.redis("redis://127.0.0.1:1"),
    PostgresPool = ls.postgres("postgres://x@127.0.0.1:1/y"), Views = views, Subscription = subscription, ProxyStore = store,
    Jwt = ls.crypto.jwt, Password = ls.crypto.password, TextCode = ls.crypto.hex, Csrf = require "luaserve.csrf",
    Queue = ls.queue("x", { file = ":memory:" }), Session = req.session, Compress = require "luaserve.compress", InjectResponse = app:inject { path = "/json" },
    Answer = assert(ls.fetch("http://" .. at .. "/json", { stream = true })) } do every(name, object) end
  wait:wait()
  return result()
end)
ls.listen"""

ARGUMENTS_OF_TESTS = 'local ls, test = require "luaserve", require "luaserve.test"\nlocal app = {}\n' + EVERY + """
local server = test.serve "site.lua"
it("counts", function()
  for name, object in pairs { Test = test, TestClock = test.clock, TestDescribe = describe, TestIt = it, TestServer = server } do
    every(name, object)
  end
  assert(ls.file.write("found.json", ls.json.encode(result())))
end)
"""


def arguments(text):
    """The program with the files that the definitions are made from."""
    sources = [os.path.relpath(path, ROOT) for pattern in ("src/script/bind/**/*.c", "lua/luaserve/*.lua", "lua/luaserve/test/*.lua")
               for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)]
    sources += ["src/luaserve.h", "lua/docs/reference/module.md"]
    return text.replace("@ROOT@", ROOT).replace("@SECRET@", os.urandom(16).hex()).replace("@SOURCES@", json.dumps(sources)[1:-1])


def defined():
    with scratch() as folder:
        status, _, err = run_program(["new", "site"], cwd=folder)
        assert (status, err) == (0, ""), err
        files = [os.path.join(folder, "site", ".luaserve", name) for name in ("luaserve.lua", "test.lua")]
        parser = os.path.join(ROOT, "tests", "unit", "lua", "parse_definitions.lua")
        done = subprocess.run(["lua5.4", parser] + files, capture_output=True, text=True, check=True)
    return {name.replace(":", ".") for name in done.stdout.split()}


@not_on_windows("one system suffices")
class Definitions(E2E):
    def test_they_name_what_the_program_has(self):
        before, listen = SITE.rsplit("ls.listen", 1)
        server = self.serve(before + UDP + listen)
        found = json.loads(server.get("/").text)
        found.update(json.loads(server.get("/udp").text))
        server.stop()
        names = defined()
        present = {"%s.%s" % (CLASSES[prefix], name) for prefix, list_of in found.items() if prefix in CLASSES
                   for name in list_of if not name.startswith("__")}
        known = {CLASSES[prefix] for prefix in found if prefix in CLASSES}
        self.assertEqual(sorted(present - names), [], "the program has more than the definitions")
        own = {name for name in names if name.rpartition(".")[0] in known} - UNLISTED
        self.assertEqual(sorted(own - present), [], "the definitions have more than the program")

    def test_each_function_counts_its_arguments(self):
        before, listen = app_site("").rsplit("ls.listen", 1)
        server = self.serve(arguments(before + ARGUMENTS + listen))
        kind = ("Content-Type", "multipart/form-data; boundary=b")
        with server.connect() as conn:
            found = json.loads(conn.ask("POST", "/", [kind], b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--\r\n').text)
        with scratch(arguments_lua=arguments(ARGUMENTS_OF_TESTS), site_lua=SITE) as folder:
            status, out, _ = run_program(["test", "--timeout", str(WAIT), "arguments.lua"], cwd=folder)
            self.assertEqual(status, 0, out)
            of_tests = json.loads(read_text(os.path.join(folder, "found.json")))
        # These two take the results of a call that fails.
        bad = [line for line in (found["bad"] + of_tests["bad"]).split("\n") if not line.startswith(("Test.truthy:", "Test.falsy:"))]
        self.assertEqual("".join(bad), "")
        # test_postgres.py calls the methods of a transaction, test_queue.py that of a job, test_oidc.py those of a login
        self.assertEqual(set(found["unseen"]) & set(of_tests["unseen"]), {"PostgresTransaction", "QueueJob", "Oidc"})
        self.assertGreater(found["count"] + of_tests["count"], 240)

    def test_they_name_what_test_files_have(self):
        with scratch(names_lua=NAMES_OF_TESTS, site_lua=SITE) as folder:
            status, out, err = run_program(["test", "--timeout", str(WAIT), "names.lua"], cwd=folder)
            self.assertEqual((status, err), (0, ""), out)
            found = json.loads(read_text(os.path.join(folder, "names.json")))
        present = {"%s.%s" % (of, name) for of, names in found.items() for name in names} - INTERNAL
        own = {name for name in defined() if name.rpartition(".")[0] in found}
        self.assertEqual(sorted(own), sorted(present))
