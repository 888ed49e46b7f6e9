"""ws:subscribe with presence, ls.presence, ls.on_presence: joins, ends of all kinds, reloads, several servers."""
# wine: none; Lua code over topics, which test_websocket uses there
import json
import socket

from harness import E2E, WAIT, app_site
from harness.redis import RedisServer, has_redis
from harness.websocket import WebSocket

SITE = app_site(r"""
ls.config { threads = 4 @MORE@ }
local seen = ls.dict("seen")
local function serve(ws, req)
  local topic = req.query.topic or "room"
  assert(ws:subscribe(topic, { presence = req.query.name }))
  ws:send("in")
  for text in ws:messages() do
    if text == "fail" then error("no luck") end
    if text == "leave" then ws:unsubscribe(topic) ws:send("left") end
    if text:find "^rename" then ws:subscribe(topic, { presence = text:sub(8) }) ws:send("renamed") end
  end
end
app:ws("/room", { ping = 600, close_timeout = 1 }, serve)
app:ws("/slow", { ping = 600, close_timeout = 600 }, serve)
app:ws("/silent", { ping = 4, ping_timeout = 1 }, serve)
ls.on_presence("room", function(name, here, topic) seen:rpush("all", (here and "+" or "-") .. name) end)
app:get("/who", function(req) return ls.presence(req.query.topic or "room") end)
app:get("/seen", function() return ls.json.array(seen:range("all")) end)
app:get("/topics", function() return ls.topics() end)
app:get("/wrong", function()
  local wrong = {}
  for i, given in ipairs { { "", print }, { ("x"):rep(801), print }, { "a\0b", print }, { "a", 1 }, { "room", print }, { "late", print } } do
    wrong[i] = select(2, pcall(ls.on_presence, given[1], given[2]))
  end
  return wrong
end)
app:get("/own", function()
  local refused = ls.json.array {}
  for _, topic in ipairs { "luaserve:presence\0room\0eve", "luaserve:presence:changed", "luaserve:presence:sync", "luaserve:" } do
    for _, fn in ipairs { ls.publish, ls.subscribe } do refused[#refused + 1] = select(2, pcall(fn, topic, print)) end
  end
  return refused
end)
app:get("/own/sse", function(_, res)
  local sse = res:sse()
  sse:send(select(2, pcall(sse.subscribe, sse, "luaserve:presence\0room\0eve")))
end)
app:ws("/own/ws", function(ws)
  local topic <const> = "luaserve:presence:changed"
  ws:send(select(2, pcall(ws.subscribe, ws, topic)))
  ws:send(select(2, pcall(ws.unsubscribe, ws, topic)))
  ws:send(select(2, pcall(ws.subscribe, ws, topic, { presence = "eve" })))
end)
app:ws("/refused", function(ws)
  for _, given in ipairs { {}, { presence = "" }, { presence = 1 }, { presence = ("x"):rep(201) }, { presence = "a\0" }, { presense = "a" }, "ada" } do
    ws:send(tostring(select(2, pcall(function() ws:subscribe("room", given) end))))
  end
end)
""")


class Presence(E2E):
    def join(self, server, name, topic="room", path="/room"):
        ws = WebSocket(server.at(), "%s?name=%s&topic=%s" % (path, name, topic))
        self.addCleanup(ws.conn.close)
        self.assertEqual(ws.receive(), "in")
        return ws

    def who(self, server, topic="room"):
        return json.loads(server.get("/who?topic=" + topic).text)

    def until(self, server, names, topic="room"):
        self.eventually(lambda: self.who(server, topic) == names, "the members %s" % names)

    def seen(self, server, expected):
        self.eventually(lambda: json.loads(server.get("/seen").text) == expected, "the calls %s" % expected)

    def test_members_join_leave_and_change(self):
        server = self.serve(SITE.replace("@MORE@", ""))
        ada, bob, twin = self.join(server, "ada"), self.join(server, "bob"), self.join(server, "ada")
        self.assertEqual(self.who(server), ["ada", "bob"])
        self.seen(server, ["+ada", "+bob"])
        self.join(server, "eve", "other")
        self.assertEqual(self.who(server, "other"), ["eve"])
        self.assertEqual(self.who(server, "oth"), [])
        ada.close()
        bob.send("leave")
        self.assertEqual(bob.receive(), "left")
        self.assertEqual(self.who(server), ["ada"])  # the twin
        twin.send("rename zoe")
        self.assertEqual(twin.receive(), "renamed")
        self.assertEqual(self.who(server), ["zoe"])
        self.eventually(lambda: len(json.loads(server.get("/seen").text)) == 5, "five calls")
        self.assertEqual(sorted(json.loads(server.get("/seen").text)[2:]), ["+zoe", "-ada", "-bob"])
        self.assertEqual(sorted(json.loads(server.get("/topics").text)), ["other", "room"])

    def test_no_member_stays_after_an_error_or_without_a_sign_of_life(self):
        server = self.serve(SITE.replace("@MORE@", ""))
        fails, lost = self.join(server, "fails", path="/slow"), self.join(server, "lost")
        self.seen(server, ["+fails", "+lost"])
        fails.send("fail")  # it does not answer the Close frame, for which the server waits
        self.until(server, ["lost"])
        self.seen(server, ["+fails", "+lost", "-fails"])
        fails.conn.close()
        lost.conn.close()  # without a Close frame
        self.until(server, [])
        self.seen(server, ["+fails", "+lost", "-fails", "-lost"])
        self.join(server, "silent", path="/silent")  # it answers no ping
        self.seen(server, ["+fails", "+lost", "-fails", "-lost", "+silent", "-silent"])
        self.assertEqual(self.who(server), [])
        self.assertTrue(server.logged("no luck"))

    def test_connections_of_tcp_are_members(self):
        server = self.serve(SITE.replace("@MORE@", "") + """
            ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
              for line in sock:lines() do
                if line == "leave" then sock:unsubscribe "room" elseif line == "fail" then error "no luck"
                elseif line == "wrong" then sock:send(select(2, pcall(sock.subscribe, sock, "room", { presense = "x" })) .. "\\n")
                else sock:subscribe("room", { presence = line }) sock:send("in\\n") end
              end
            end)""", listeners=2)
        peers = [socket.create_connection(server.at(1), WAIT) for _ in range(3)]
        texts = [peer.makefile("rb") for peer in peers]
        for n, words in enumerate((b"ada\nfay\n", b"bob\n", b"carl\nwrong\n")):
            peers[n].sendall(words)
            self.assertEqual(texts[n].readline(), b"in\n")
        self.assertIn(b"sock:subscribe: unknown option \"presense\"; did you mean 'presence'?", texts[2].readline())
        self.until(server, ["bob", "carl", "fay"])
        server.reload("reload")
        peers[1].sendall(b"fail\n")
        peers[2].sendall(b"leave\n")
        self.until(server, ["fay"])
        for peer, text in zip(peers, texts):
            text.close()
            peer.close()
        self.until(server, [])
        self.assertEqual(server.logged("ends with the previous site"), [])  # of ls.subscribe

    def test_members_stay_over_a_reload(self):
        server = self.serve(SITE.replace("@MORE@", ""))
        ada = self.join(server, "ada")
        self.seen(server, ["+ada"])
        server.reload("reload")
        self.eventually(lambda: json.loads(server.get("/topics").text) == {"room": 1}, "the next site")
        bob = self.join(server, "bob")
        self.seen(server, ["+ada", "+bob"])  # ada is told once
        self.assertEqual(self.who(server), ["ada", "bob"])
        ada.close()
        self.seen(server, ["+ada", "+bob", "-ada"])
        bob.close()
        self.until(server, [])

    def test_several_servers(self):
        if not has_redis():
            self.skipTest("this luaserve has no ls.redis, or redis-server is not installed")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        site = SITE.replace("@MORE@", ", redis = 'redis://127.0.0.1:%d'" % redis.port)
        one = self.serve(site)
        ada = self.join(one, "ada")
        two = self.serve(site)
        self.until(two, ["ada"])  # from before its start
        self.join(two, "bob")
        self.join(two, "bob").close()
        for server in one, two:
            self.until(server, ["ada", "bob"])
        self.seen(one, ["+ada", "+bob"])
        ada.close()
        self.until(two, ["bob"])
        carl = self.join(one, "carl")
        self.until(two, ["bob", "carl"])
        carl.send("fail")
        self.until(two, ["bob"])
        two.stop()
        self.until(one, [])

    def test_a_server_that_is_killed(self):
        if not has_redis():
            self.skipTest("this luaserve has no ls.redis, or redis-server is not installed")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        site = SITE.replace("@MORE@", ", redis = 'redis://127.0.0.1:%d'" % redis.port)
        one, two = self.serve(site), self.serve(site)
        self.join(two, "bob")
        self.until(one, ["bob"])
        two.kill()
        self.eventually(lambda: self.who(one) == [], "the end of its members", 15 + WAIT)

    def test_topics_of_luaserve_are_not_for_sites(self):
        """A site may let its clients name topics: they must not become members by that, or see who joins elsewhere."""
        server = self.serve(SITE.replace("@MORE@", ""))
        with WebSocket(server.at(), "/own/ws") as ws:
            texts = json.loads(server.get("/own").text) + [server.get("/own/sse").text] + [ws.receive() for _ in range(3)]
        self.assertEqual([text for text in texts if "topics that begin with 'luaserve:' are those of luaserve itself" not in text], [])
        self.assertEqual((len(texts), self.who(server)), (12, []))

    def test_wrong_calls(self):
        server = self.serve(SITE.replace("@MORE@", ""))
        for text, part in zip(json.loads(server.get("/wrong").text), (
                "ls.on_presence: a topic with members must be", "got \"xxx", "without a zero byte", "the second argument must be a function",
                'the topic "room" has a function already', "call it while the site loads"), strict=True):
            self.assertIn(part, text)
        ws = WebSocket(server.at(), "/refused")
        for part in ("presence must be the name of a member",) * 5 + ("did you mean 'presence'?", "options must be a table"):
            self.assertIn(part, ws.receive())
