"""The definitions for editors that `luaserve new` writes name exactly what the program has, both ways.

tests/unit/lua/test_definitions.lua checks the annotations."""
# sanitizers: none; reads the definitions
import json
import os
import subprocess

from harness import E2E, ROOT, not_on_windows, read_text, run_program, scratch
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
UNLISTED = {"luaserve.Request.[]", "luaserve.Dict.[]", "luaserve.WebSocket.[]"}

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
INTERNAL = {"luaserve.Test." + name for name in ("running", "describe_error", "collect", "is_failure")} | {
    "luaserve.TestServer." + name for name in ("site", "process", "stopped", "socks")}


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

    def test_they_name_what_test_files_have(self):
        with scratch(names_lua=NAMES_OF_TESTS, site_lua=SITE) as folder:
            status, out, err = run_program(["test", "names.lua"], cwd=folder)
            self.assertEqual((status, err), (0, ""), out)
            found = json.loads(read_text(os.path.join(folder, "names.json")))
        present = {"%s.%s" % (of, name) for of, names in found.items() for name in names} - INTERNAL
        own = {name for name in defined() if name.rpartition(".")[0] in found}
        self.assertEqual(sorted(own), sorted(present))
