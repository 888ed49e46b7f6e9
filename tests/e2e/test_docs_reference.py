"""The reference (lua/docs/reference) names every function, method, field, option and counter that the program has."""
# sanitizers: none; reads pages
import json
import os
import re

from docs_pages import DOCS
from harness import E2E, ROOT, app_site, not_on_windows, read_text

# Answers with the names that its objects have: what __index finds, in a table or behind a function that looks into one.
SITE = app_site("""
local seen = {}

local function names(object)
  local list, index = {}, debug.getmetatable(object).__index
  for n = 1, type(index) == "function" and 9 or 0 do
    local _, value = debug.getupvalue(index, n)
    if type(value) == "table" and next(value) ~= nil then index = value break end
  end
  for name in pairs(index) do list[#list + 1] = name end
  return list
end
local function keys(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  return list
end

app:get("/", function(req, res)
  local socket = ls.socket("udp")
  socket:bind("127.0.0.1", 0)
  local at = assert(req.local_addr)
  local job = ls.spawn(function() end)
  return {
    ["ls."] = keys(ls), ["ls.json."] = keys(ls.json), ["ls.log."] = keys(ls.log), ["ls.html."] = keys(ls.html),
    ["ls.crypto."] = ls.crypto.equal and keys(ls.crypto), ["ls.url."] = keys(ls.url), ["ls.file."] = keys(ls.file), stats = keys(ls.stats()),
    ["app:"] = names(app), ["req:"] = names(req), ["res:"] = names(res), ["buffer:"] = names(ls.buffer("x")),
    ["job:"] = names(job), ["timer:"] = names(ls.after(0, function() end)), ["n:"] = names(ls.notify(socket, "in")),
    ["socket:"] = names(socket), ["sock:"] = names(assert(ls.connect(at))),
    ["ws:"] = names(assert(ls.websocket("ws://" .. at .. "/ws"))),
    ["hasher:"] = names(ls.crypto.hasher("sha256")), ["dict:"] = names(ls.dict("x")), ["channel:"] = names(ls.channel("x")), ["semaphore:"] = names(ls.semaphore("x", 1)),
    ["c:"] = names(ls.udp_connect("127.0.0.1", 9)),
  }
end)
app:ws("/ws", { message = print })
""")


def reference():
    text = []
    folder = os.path.join(ROOT, DOCS, "reference")
    for name in sorted(os.listdir(folder)):
        text.append(read_text(os.path.join(folder, name)))
    return "\n".join(text)


def options():
    """The names of options, out of the tables that define them."""
    found = set()
    for name in ("options", "tcp", "udp", "ws", "channel", "dict", "file", "session"):
        with open(os.path.join(ROOT, "lua", "luaserve", name + ".lua"), encoding="utf-8") as source:
            names = re.findall(r'\b(\w+) = \{ "\w+", "(?:seconds|size|count|rate|flag)"', source.read())
        assert names, "no options found in %s.lua" % name
        found.update(names)
    return found


@not_on_windows("one system suffices")
class Reference(E2E):
    def test_it_names_everything(self):
        text = reference()
        server = self.serve(SITE)
        found = json.loads(server.get("/").text)
        server.stop()
        missing = []
        for prefix, names in found.items():
            for name in names:
                if prefix == "stats":
                    known = "`%s`" % name in text
                else:  # `ls.name`, `ls.other\|name`, or `name` in the row or the list of the object's names
                    known = re.search(r"\b%s[.:](\w+\\\|)*%s\b" % (re.escape(prefix[:-1]), name), text) or re.search(
                        r"`%s[.:].*`%s\b" % (re.escape(prefix[:-1]), name), text)
                if not known:
                    missing.append(prefix + name)
        missing += ["option " + name for name in options() if "`%s`" % name not in text]
        self.assertEqual(missing, [])
