"""lua/definitions/luaserve.lua, the definitions for editors, names exactly what the program has, both ways.

tests/unit/lua/test_definitions.lua checks the annotations and the options."""
import json
import os
import subprocess
import unittest

from harness import E2E, ROOT, main, not_on_windows
from test_docs_reference import SITE

# The classes of the objects that the site of the reference reports.
CLASSES = {"ls.": "luaserve", "ls.json.": "luaserve.Json", "ls.log.": "luaserve.Log", "ls.html.": "luaserve.Html",
           "ls.url.": "luaserve.Url", "app:": "luaserve.App", "req:": "luaserve.Request", "res:": "luaserve.Response",
           "buffer:": "luaserve.Buffer", "job:": "luaserve.Job", "timer:": "luaserve.Timer", "n:": "luaserve.Notify",
           "socket:": "luaserve.Socket", "sock:": "luaserve.Sock", "c:": "luaserve.UdpClient", "dict:": "luaserve.Dict",
           "channel:": "luaserve.Channel", "semaphore:": "luaserve.Semaphore"}

# The socket and the peers of ls.udp, which the reference's site does not report.
UDP = """
local udp
udp = ls.udp("127.0.0.1:0", function(data, peer) return ls.json.encode{ udp = names(udp), peer = names(peer) } end)
app:get("/udp", function()
  local c = ls.udp_connect("127.0.0.1", udp.port)
  c:send("x")
  return (c:receive())
end)
ls.listen"""
CLASSES.update({"udp": "luaserve.UdpSocket", "peer": "luaserve.Peer"})

# Fields that an object has only at times, or that its table of names does not list.
UNLISTED = {"luaserve.Request.[]", "luaserve.Dict.[]"}


def defined():
    done = subprocess.run(["lua5.4", os.path.join(ROOT, "tests", "unit", "lua", "definitions.lua")], capture_output=True,
                          text=True, check=True)
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
        for name in ("dict", "channel", "semaphore"):  # a build without them
            if name not in found["ls."]:
                own.discard("luaserve." + name)
        self.assertEqual(sorted(own - present), [], "the definitions have more than the program")


if __name__ == "__main__":
    main()
