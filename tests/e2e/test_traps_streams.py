"""The traps of bodies that are read piece by piece: a body that is not whole must not become a response that is."""
# wine: none; Lua code of a site, the same on every system
import contextlib
import itertools
import json
import re

from harness.program import Program
from harness.websocket import WebSocket


class Topics(Program):
    def test_a_subscriber_gets_the_last_messages_and_all_later_ones_once(self):
        """A chat: what is said between the last messages and the subscription must not be missing."""
        server = self.of("""
            app:ws("/chat", function(ws)
              ws:subscribe("chat")
              for text in ws:messages() do ls.publish("chat", text, { retain = 50 }) end
            end)""")
        with contextlib.ExitStack() as open_ones:
            people = [open_ones.enter_context(WebSocket(server.at(), "/chat"))]
            for n in range(200):
                people[0].send("%d" % n)
                if n % 10 == 0:  # while messages are on their way
                    people.append(open_ones.enter_context(WebSocket(server.at(), "/chat")))
            for ws in people:
                first = int(ws.receive())
                self.assertEqual([int(ws.receive()) for _ in range(first, 199)], list(range(first + 1, 200)))

    def test_an_empty_message_does_not_empty_the_history(self):
        """Any client may send one; retain = true, of the site, removes what is kept."""
        server = self.of("""
            app:ws("/chat", {
              open = function(ws) ws:subscribe("chat") end,
              message = function(ws, text) ls.publish("chat", text, { retain = 3 }) ws:send("published") end,
            })
            app:post("/sse", function(req) ls.publish("sse", req:body(), { retain = 3, id = true }) return 202 end)
            app:get("/sse", function(req, res)
              local sse = res:sse()
              sse:subscribe("sse")
            end)
            app:post("/over", function() return tostring(ls.publish("chat", "", { retain = true })) end)""")
        with contextlib.ExitStack() as open_ones:
            def joins():
                return open_ones.enter_context(WebSocket(server.at(), "/chat"))
            first = joins()
            for text in "m1", "m2", "m3", "":
                first.send(text)
                self.assertEqual({first.receive(), first.receive()}, {text, "published"})
            second = joins()
            self.assertEqual([second.receive() for _ in range(3)], ["m2", "m3", ""])
            self.assertEqual(self.ask_of(server, "POST", "/over").text, "2")
            self.assertEqual([one.receive() for one in (first, second)], ["", ""])
            third = joins()
            third.send("m4")
            self.assertEqual({third.receive(), third.receive()}, {"m4", "published"})
        for text in b"one", b"two", b"":
            self.assertEqual(self.ask_of(server, "POST", "/sse", body=text).status, 202)
        self.assertEqual(re.findall("data: ?(.*)", self.ask_of(server, "GET", "/sse").text), ["one", "two", ""])


class Loops(Program):
    def test_the_log_names_a_loop_that_sends_to_a_client_that_has_left(self):
        server = self.of("""
            app:ws("/ws/:n", function(ws, req)
              ws:receive()
              for _ = 1, req.params.n do
                ws:send("tick")
              end
              ls.log.info("ended", req.params.n)
            end)
            ls.tcp("127.0.0.1:0", function(sock)
              local n = sock:receive("*l")
              sock:close()
              for _ = 1, n do
                sock:send("tick")
              end
              ls.log.info("ended", "tcp", n)
            end)""", listeners=2)
        for n in (999, 1000, 2500):
            WebSocket(server.at(1), "/ws/%d" % n).conn.close()
            server.wait_log("info ended\t%d" % n)
            with server.connect(0) as conn:
                conn.send(b"%d\n" % n)
                server.wait_log("info ended\ttcp\t%d" % n)
            late = [re.search(r"site\.lua:(\d+): a function has sent 1000 times .* while ws:send", line).group(1) for line in server.warnings()]
            self.assertEqual(late, {999: [], 1000: ["7", "15"], 2500: ["7", "15"] * 2}[n])


    def test_a_loop_that_receives_after_the_end_raises(self):
        """It would neither wait nor end; a few calls after the end are in order."""
        server = self.of("""
            app:ws("/ws", function(ws) while true do local m = ws:receive() if m then ws:send(m) end end end)
            app:get("/sse", function(_, res) local sse = res:sse() while true do sse:send("x") sse:wait(0.01) end end)
            app:get("/few", function(_, res) local sse = res:sse() for _ = 1, 900 do sse:wait() end ls.log.info("few") end)
            local function serve(sock) while true do if sock:receive() == "quit" then break end end end
            local function each(sock) while true do for line in sock:lines() do sock:send(line) end end end
            ls.tcp({ host = "127.0.0.1", port = 0, handler = serve })
            ls.tcp({ host = "127.0.0.1", port = 0, handler = each })""", listeners=3)
        with WebSocket(server.at(2), "/ws") as ws:
            ws.send("a")
            self.assertEqual(ws.receive(), "a")
        for path in "/sse", "/few":
            with server.connect(2) as conn:
                conn.send(("GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % path).encode())
                conn.take(15)
        for index in 0, 1:
            with server.connect(index) as conn:
                conn.send(b"a\n")
        for call in "ws:receive", "sse:wait", "sock:receive", "sock:receive":
            server.wait_log("%s has returned nil 1000 times in a row, since the connection has ended: end the loop then" % call, count=2 if call[1] == "o" else 1)
        server.wait_log("info few")


class Traps(Program):
    def test_the_body_of_a_request_is_read_once(self):
        server = self.of("""
            app:post("/twice", { max_body = false }, function(req)
              for chunk in req:chunks() do break end
              for chunk in req:chunks() do return "the rest" end
            end)
            app:post("/on", function(req)
              local n, next_chunk = 0, req:chunks()
              for chunk in next_chunk do n = n + #chunk break end
              for chunk in next_chunk do n = n + #chunk end
              return tostring(n)
            end)
            app:post("/whole", function(req)
              local n = 0
              req:buffer()
              for _ = 1, 2 do for chunk in req:chunks() do n = n + #chunk end end
              return tostring(n)
            end)
            app:post("/parts", function(req)
              for part in req:parts() do break end
              for part in req:parts() do return "the rest" end
            end)
            app:post("/other", function(req)
              local first, second = req:chunks(), req:chunks()
              first()
              second()
            end)
            app:post("/dot", function(req) return req.chunks() end)""")
        body = b"x" * 300000
        form = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nbuy milk\r\n--b--\r\n'
        self.assertEqual(self.ask_of(server, "POST", "/on", {}, body).text, "300000")
        self.assertEqual(self.ask_of(server, "POST", "/whole", {}, body).text, "600000")
        self.assertEqual(self.ask_of(server, "POST", "/dot", {}, b"x").status, 500)
        server.wait_log(r"POST /dot: .*site.lua:\d+: 'chunks' is a method of a request: .*; got no value for the object")
        for target, headers, sent in (("/twice", {}, b"x"), ("/twice", {}, body), ("/other", {}, b"x"),
                                      ("/parts", {"Content-Type": "multipart/form-data; boundary=b"}, form)):
            self.assertEqual(self.ask_of(server, "POST", target, headers, sent).status, 500)
            server.wait_log(r"error request \w+ POST %s: .*site.lua:\d+: the request body was already begun by req:chunks\(\) or "
                            r"req:parts\(\).*req:buffer\(\).*local next_chunk = req:chunks\(\)" % target)

    GATEWAY = """
        local n, other = ls.dict("n"), ls.app()
        local function pass(req, res, body)
          for _ = 1, 3 do
            local answer <close> = assert(ls.fetch("http://127.0.0.1:" .. req.query.to .. "/store?case=" .. req.query.case, { method = "POST", body = body, stream = true }))
            if answer.status ~= 503 then return answer.status, answer:body() end
          end
        end
        app:post("/retry", { max_body = false }, function(req, res) return pass(req, res, function() return req:chunks() end) end)
        app:post("/iterator", { max_body = false }, function(req, res) return pass(req, res, req:chunks()) end)
        app:post("/wrapped", { max_body = false }, function(req, res)
          local bytes, next_chunk = 0, req:chunks()
          return pass(req, res, function()
            local chunk = next_chunk()
            bytes = bytes + #(chunk or "")
            return chunk
          end)
        end)
        app:post("/coroutine", { max_body = false }, function(req, res)
          local next_chunk = req:chunks()
          return pass(req, res, function()
            return coroutine.wrap(function() for chunk in next_chunk do coroutine.yield(chunk) end end)
          end)
        end)
        app:post("/framed", { max_body = false }, function(req, res)
          local next_chunk, last = req:chunks(), false
          return pass(req, res, function()
            local chunk = next_chunk()
            if not chunk and not last then last, chunk = true, "end" end
            return chunk
          end)
        end)
        app:post("/answer", { max_body = false }, function(req, res)
          local answer <close> = assert(ls.fetch("http://127.0.0.1:" .. req.query.to .. "/echo", { body = req:buffer(), stream = true }))
          return pass(req, res, answer:chunks())
        end)
        app:post("/part", { max_body = false }, function(req, res)
          for part in req:parts() do return pass(req, res, part:chunks()) end
        end)
        app:post("/beside", { max_body = false }, function(req, res)
          local bytes, next_chunk = 0, req:chunks()
          local answer = assert(ls.fetch("http://127.0.0.1:" .. req.query.to .. "/store?case=" .. req.query.case, { body = next_chunk }))
          if answer.status == 200 then return 200, answer:body() end
          for chunk in next_chunk do bytes = bytes + #chunk end
          return "stored here: " .. bytes
        end)
        app:post("/after", { max_body = false }, function(req, res)
          local bytes, next_chunk = 0, req:chunks()
          for chunk in next_chunk do bytes = bytes + #chunk end
          return pass(req, res, next_chunk)
        end)
        app:post("/buffer", function(req, res) return pass(req, res, req:buffer()) end)
        other:post("/echo", function(req) return req:buffer() end)
        other:post("/store", { max_body = false }, function(req)
          local case = req.query.case -- a request of a case before may be late
          local bytes, refuses = 0, n:incr("refusals" .. case, -1) >= 0
          if not refuses or n["reads" .. case] then for chunk in req:chunks() do bytes = bytes + #chunk end end
          if refuses then return 503 end
          n:incr("stored" .. case)
          return tostring(bytes)
        end)
        other:post("/refuse", function(req)
          local q = req.query
          n["refusals" .. q.case], n["reads" .. q.case], n["stored" .. q.case] = tonumber(q.times), q.reads, 0
        end)
        other:get("/stored", function(req) return tostring(n["stored" .. req.query.case]) end)
        ls.listen("127.0.0.1:0", other)"""

    def test_a_retry_never_stores_a_part_of_the_body(self):
        server = self.of(self.GATEWAY, """ls.listen("127.0.0.1:0", app)""", listeners=2)
        begun = r"%s: the bytes arrive once, and ls.fetch has begun to send them: .* by %s or into a file"
        chunks = begun % (r"req:chunks\(\)", r"req:buffer\(\)")
        ended = r"req:chunks\(\): the bytes arrive once, and this iterator has ended: .* by req:buffer\(\)"

        cases = itertools.count()

        def ask(target, size, times, reads=""):
            """The result of a request of so many bytes, while the other server refuses the first so many."""
            headers, body, case = {}, b"x" * size, next(cases)
            if target == "/part":
                headers["Content-Type"] = "multipart/form-data; boundary=b"
                body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + body + b"\r\n--b--\r\n"
            self.assertEqual(self.ask_of(server, "POST", "/refuse?case=%d&times=%d%s" % (case, times, reads)).status, 204)
            with server.connect(1) as conn:
                response = conn.ask("POST", target + "?to=%d&case=%d" % (server.port(), case), headers, body)
            return response.status, response.text, self.ask_of(server, "GET", "/stored?case=%d" % case).text

        for size in (0, 1, 11, 3000000):
            for target, error in (("/retry", "the request body was already begun"), ("/iterator", chunks), ("/wrapped", chunks), ("/coroutine", chunks),
                                  ("/answer", begun % (r"answer:chunks\(\)", r"answer:body\(\)")),
                                  ("/part", begun % (r"part:chunks\(\)", r"part:body\(\)")), ("/beside", chunks)):
                self.assertEqual(ask(target, size, 0), (200, str(size), "1"), target)
                if size > 0:
                    for reads in ("", "&reads=1"):
                        mark = server.mark()
                        self.assertEqual(ask(target, size, 1, reads)[::2], (500, "0"), target)
                        server.wait_log(r"error request \w+ POST %s: .*site.lua:\d+: %s" % (target, error), mark)
            self.assertEqual(ask("/framed", size, 0), (200, str(size + 3), "1"))
            self.assertEqual(ask("/buffer", size, 2), (200, str(size), "1"))
            self.assertEqual(ask("/iterator", 0, 2), (200, "0", "1"))
        self.assertEqual(ask("/after", 0, 0), (200, "0", "1"))
        self.assertEqual(ask("/after", 1, 0)[::2], (500, "0"))
        server.wait_log(r"error request \w+ POST /after: .*site.lua:\d+: " + ended)

    def test_a_stream_that_breaks_off_never_becomes_a_whole_response(self):
        for middleware in ("", "app:use(function(req, res, next) next() end)\n"):
            server = self.of(middleware + """
                local other = ls.app()
                other:get("/feed", { timeout = 1 }, function(req, res)
                  for i = 1, 3 do res:write('{"n":', i, "}\\n") end
                  res:flush()
                  if req.query.stall then ls.sleep(60) else res:abort() end
                end)
                local function feed(req, stall)
                  return assert(ls.fetch("http://127.0.0.1:" .. req.query.to .. "/feed" .. (stall or ""), { stream = true, timeout = stall and 0.2 }))
                end
                app:get("/proxy", function(req, res)
                  for piece in feed(req):chunks() do if not res:write(piece) then return end res:flush() end
                end)
                app:get("/sum", function(req)
                  local sum = 0
                  for line in feed(req):lines() do sum = sum + ls.json.decode(line).n end
                  return { sum = sum }
                end)
                app:get("/save", function(req) for piece in feed(req, "?stall=1"):chunks() do end return 201, "stored" end)
                app:get("/whole", function(req) local a = feed(req) return a.status, a:body(), { ["X-A"] = "1" } end)
                app:get("/read", function(req)
                  local count, answer, message, code, piece = 0, feed(req), nil, nil, nil
                  repeat
                    piece, message, code = answer:read()
                    count = count + (piece and #piece or 0)
                  until not piece
                  return { count = count, code = code }
                end)
                ls.listen("127.0.0.1:0", other)""", listeners=2)
            to = "?to=%d" % server.port()
            for target, why in (("/sum", "site.lua:.*: cannot fetch .*: the response was cut off before its end"),
                                ("/save", "site.lua:.*: cannot fetch .*: timeout after 0.2 s"),
                                ("/whole", "GET /whole: the handler returned 200, nil, a table; the body is nil, which a call")):
                self.assertEqual(server.get(target + to, index=1).status, 500, target)
                server.wait_log(r"error request \w+ GET %s: .*%s" % (target, why))
            self.assertEqual(json.loads(server.get("/read" + to, index=1).text), {"count": 24, "code": "ETRUNCATED"})
            with server.connect(1) as conn:
                conn.send(b"GET /proxy%s HTTP/1.1\r\nHost: h\r\n\r\n" % to.encode())
                got = conn.rest()
                self.assertIn(b'{"n":3}', got)
                self.assertFalse(got.endswith(b"0\r\n\r\n"), got)
