"""Traps that recipes of the documentation had. Each test runs the recipe as its page has it today."""
# sanitizers: none; Lua of the pages
# wine: none; Lua code of pages, the same on every system
import hmac
import json
import os
import re
import socket
import sqlite3

from docs_e2e import Run
from docs_pages import DOCS, blocks_of, scopes_of
from harness import E2E, ROOT, WAIT, in_parallel, not_on_windows, read_bytes, read_text, repeats, request
from harness.websocket import WebSocket

COOKBOOK = os.path.join(DOCS, "cookbook")
JOBS, NETWORKS = os.path.join(COOKBOOK, "jobs.md"), os.path.join(COOKBOOK, "networks.md")

# ls.publish of a site in which the message "slow" waits before it leaves until "fast" has left, or 0.3 s have passed.
SLOW_PUBLISH = r"""
local ls = require "luaserve"
local marks, publish, listen = ls.dict("marks"), ls.publish, ls.listen
function ls.publish(topic, data, options)
  local text = type(data) == "string" and data or data.messages and data.messages[1].text or "other"
  marks:set(text, true)
  local late = ls.now() + 0.3
  while text == "slow" and not marks.left and ls.now() < late do ls.sleep(0.01) end
  publish(topic, data, options)
  if text == "fast" then marks.left = true end
end
function ls.listen(address, app)
  app:get("/test/slow", function() return tostring(marks.slow) end)
  listen(address, app)
end
"""

# The same for the call number @SLOW@ and the one that follows it.
SLOW_CALL = r"""
local ls = require "luaserve"
local marks, publish, listen = ls.dict("marks"), ls.publish, ls.listen
function ls.publish(topic, data, options)
  local call, late = marks:incr("calls"), ls.now() + 0.3
  while call == @SLOW@ and not marks.left and ls.now() < late do ls.sleep(0.01) end
  publish(topic, data, options)
  if call == @SLOW@ + 1 then marks.left = true end
end
function ls.listen(address, app)
  app:get("/test/calls", function() return tostring(marks.calls) end)
  listen(address, app)
end
"""


@not_on_windows("as the pages")
class Traps(E2E):
    def recipe(self, title, change=None, page=JOBS, flags=()):
        """The program of a section, served. `change`: a function of the text of its site."""
        text = read_text(os.path.join(ROOT, page))
        first = text[:re.search("(?m)^##? %s$" % re.escape(title), text).start()].count("\n") + 1
        scope = next(scope for scope in scopes_of(blocks_of(page, text)) if scope.site and scope.site.line > first)
        if change:
            changed = change(scope.site.text)
            self.assertNotEqual(changed, scope.site.text)
            scope.site.lines = changed.strip("\n").split("\n")
        run = Run(scope)
        self.addCleanup(run.close)
        run.write_all()
        server = run.serve("site.lua", flags)
        server.wait_log("listening on")
        return run, server

    def test_a_cache_of_each_state_is_filled_in_later_states_too(self):
        # ls.subscribe at the top, publish without retain: states made later, and all of a reload, had an empty cache
        run, server = self.recipe("ls.subscribe", lambda site: site.replace("ls.listen(", """
app:get("/block", function() -- blocks this state until the test has written
  local fifo <close> = io.open("fifo")
  return fifo:read("a")
end)
ls.listen("""), os.path.join(DOCS, "reference", "topics.md"), ["--threads", "1"])
        fifo = os.path.join(run.folder, "fifo")
        os.mkfifo(fifo)

        def price():
            answer = server.get("/prices/tea")
            return answer.status == 200 and json.loads(answer.text) == {"price": 3}

        with server.connect() as conn:
            self.assertEqual(conn.ask("PUT", "/prices", (), b'{"tea":3}').status, 204)
        self.eventually(price, "the first state has the price")
        with server.connect() as blocked:
            blocked.send(request("GET", "/block"))
            with open(fifo, "w") as end:  # the handler blocks now: another state answers
                self.eventually(price, "a later state has the price")
                end.write("done")
            self.assertEqual(blocked.response("GET").text, "done")
        server.reload()
        server.wait_log("reloaded")
        self.eventually(price, "the states of the new site have the price")
        run.stop(server)

    def test_counters_for_a_database_after_a_kill(self):
        """Of those that the database had not shown some may be lost, and none is counted twice, at any moment of the timer."""
        run, server = self.recipe("Counters for a database", lambda site: site.replace("ls.every(1, ", "ls.every(0.001, "),
                                  os.path.join(DOCS, "reference", "dict.md"))

        def stored(server):
            return sum(row["n"] for row in json.loads(server.get("/visits").text))

        before = 0
        for _ in range(repeats(30)):
            with server.connect() as conn:
                conn.send(300 * request("GET", "/"))
                shown = stored(server)
                self.assertEqual(conn.response("GET").text, "hello\n")
                server.kill()
            server = run.serve("site.lua")
            server.wait_log("listening on")
            now = stored(server)
            self.assertTrue(shown <= now <= before + 300, (before, shown, now))
            before = now
        server.get("/")
        self.eventually(lambda: stored(server) == before + 1, "it goes on counting")
        run.stop(server)

    def test_the_number_of_workers(self):
        """Each row of the table of the recipe, with two states. No job ends, and each further one waits in the queue."""
        with open(os.path.join(ROOT, JOBS), encoding="utf-8") as page:
            rows = re.findall(r'(?m)^\| `(ls\.(?:on|init)\(.*worker.*)` \| (one|four) in (each|the whole)', page.read())
        self.assertEqual([row[1:] for row in rows], [("one", "each"), ("four", "each"), ("four", "the whole")])
        for start, each, where in rows:
            count = {"one": 1, "four": 4}[each] * {"each": 2, "the whole": 1}[where]

            def change(site, start=start):
                site = site.replace("ls.sleep(0.01) -- stands", "ls.log.info('works') ls.sleep(3600) -- stands")
                site = site.replace('ls.on("start", worker)', start).replace("ls.app()", """ls.app()
ls.config { threads = 2, states = 2, drain_timeout = 0.1 }""")
                return site.replace("ls.listen(", 'app:get("/left", function() return tostring(jobs:len()) end)\nls.listen(')

            with self.subTest(start):
                run, server = self.recipe("A worker queue", change)
                with server.connect() as conn:
                    for n in range(20):
                        self.assertEqual(conn.ask("POST", "/jobs/%d" % n).status, 202)
                server.wait_log("info works", count=count)
                self.eventually(lambda: server.get("/left").text == str(20 - count), "the rest of the jobs waits")
                self.assertEqual(len(server.logged("info works")), count)
                server.kill()

    def test_t21_statsd_counts_all_of_a_long_datagram(self):
        # datagrams above 2048 bytes were cut: of 200 counters 108 arrived, one with a tenth of its value
        run, server = self.recipe("A statsd server", page=NETWORKS)
        names = ["counter.%03d" % n for n in range(200)]
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            counts = "\n".join("%s:1000|c" % name for name in names)
            client.sendto(counts.encode(), ("127.0.0.1", int(run.ports.free_of["8125"])))
        expected = "".join("%s 1000\n" % name for name in names)
        self.eventually(lambda: server.get("/").text == expected, "all counters have their values")
        run.stop(server)

    def test_a_login_that_cannot_be_stored_is_none(self):
        # the result of sessions:set was ignored: with a full dict a login got a cookie and a 303, but no session
        run, server = self.recipe("A login", lambda site: site.replace(
            'ls.dict("sessions")', 'ls.dict("sessions", { size = 4096 })').replace(
            "limit = 20", "limit = 1000").replace("not ls.crypto.password.verify(given.password, user and user.hash)", "not user"),
            os.path.join(DOCS, "login.md"))
        form, account = [("Content-Type", "application/x-www-form-urlencoded")], b"name=ada&password=correct+horse"
        with server.connect() as conn:
            login = conn.ask("POST", "/register", form, account)
            for _ in range(100):
                if login.status != 303:
                    break
                cookie = login.header("Set-Cookie").partition(";")[0]
                self.assertIn("Hello, ada", conn.get("/", [("Cookie", cookie)]).text)
                login = conn.ask("POST", "/login", form, account)
            self.assertEqual((login.status, login.header("Set-Cookie")), (500, None))
            for name in ("get", "keys", "len"):
                self.assertEqual(conn.get("/", [("Cookie", "session=" + name)]).status, 303)
        run.stop(server)

    def slow_waits(self, server):
        self.eventually(lambda: server.get("/test/slow").text == "true", "the slow message has its number")

    def test_events_leave_in_the_order_of_their_ids(self):
        # ids:incr and ls.publish were two steps: event 2 left before 1, and a client that connected again with 2 never got 1
        run, server = self.recipe("sse:send", lambda site: SLOW_PUBLISH + site, page=os.path.join(DOCS, "reference", "sse.md"))

        def post(text):
            with server.connect() as conn:
                return conn.ask("POST", "/messages", (), text).status

        with socket.create_connection(server.at(), WAIT) as stream:
            stream.sendall(request("GET", "/messages"))
            text = stream.recv(1000)

            def fast():
                self.slow_waits(server)
                return post(b"fast")

            self.assertEqual(in_parallel([lambda: post(b"slow"), fast]), [202, 202])
            while text.count(b"data: ") < 2:
                more = stream.recv(1000)
                self.assertTrue(more, text)
                text += more
        ids = re.findall(rb"id: (\d+)", text)
        self.assertEqual((len(ids), sorted(ids)), (2, ids), text)
        run.stop(server)

    def slow_call(self, server, number):
        self.eventually(lambda: server.get("/test/calls").text == str(number), "the slow call has begun")

    def test_the_newest_value_is_published_last(self):
        # incr and ls.publish were two steps: 2 left before 1, and each later page got the retained 1
        run, server = self.recipe("Order", lambda site: SLOW_CALL.replace("@SLOW@", "1") + site,
                                  page=os.path.join(DOCS, "reference", "topics.md"))

        def vote():
            with server.connect() as conn:
                return conn.ask("POST", "/votes", (), b"").status

        def second():
            self.slow_call(server, 1)
            return vote()

        self.assertEqual(in_parallel([vote, second]), [204, 204])
        with socket.create_connection(server.at(), WAIT) as stream:
            stream.sendall(request("GET", "/votes"))
            text = b""
            while b"data: " not in text:
                more = stream.recv(1000)
                self.assertTrue(more, text)
                text += more
        self.assertIn(b"data: 2", text)
        run.stop(server)

    def test_a_room_knows_who_is_there(self):
        # of two who came at once, the older number could be published last: the room showed it until the next change
        run, server = self.recipe("Rooms, names, presence", lambda site: SLOW_CALL.replace("@SLOW@", "2") + site,
                                  page=os.path.join(DOCS, "reference", "websocket.md"))

        def member():
            return WebSocket(server.at(), "/rooms/1")

        with member() as stays:
            self.assertEqual(json.loads(stays.receive()), {"people": 1})
            with member():
                self.slow_call(server, 2)
                with member():
                    self.assertEqual([json.loads(stays.receive()) for _ in range(2)], [{"people": 2}, {"people": 3}])
            self.assertEqual([json.loads(stays.receive()) for _ in range(2)], [{"people": 2}, {"people": 1}])
        run.stop(server)

    def test_messages_of_the_chat_leave_in_the_order_of_their_numbers(self):
        path = os.path.join(ROOT, "examples", "live", "chat.lua")
        self.order_of_a_chat('assert(loadfile("%s"))("127.0.0.1:0")' % path, "/lobby/live?name=%s&id=%s")

    def test_messages_of_the_template_leave_in_the_order_of_their_numbers(self):
        # it had no semaphore: a page that had got 2 before 1, and connected again, never got 1
        folder = os.path.join(ROOT, "lua", "templates", "chat")
        self.order_of_a_chat("""
ls.file.mkdir("public", { parents = true })
package.path = "%s/?.lua;" .. package.path
ls.listen("127.0.0.1:0", require("chat").app)
""" % folder, "/live?room=lobby&name=%s&id=%s")

    def order_of_a_chat(self, site, target):
        server = self.serve(SLOW_PUBLISH + site)

        def member(name):
            return WebSocket(server.at(), target % (name, name))

        def received(ws, key):
            while key not in (data := json.loads(ws.receive())):
                pass
            return data[key]

        with member("ada") as ada, member("bob") as bob, member("eve") as eve:
            self.assertEqual([received(eve, "messages"), received(eve, "people")], [[], ["ada", "bob", "eve"]])
            ada.send("slow")
            self.slow_waits(server)
            bob.send("fast")
            first, second = received(eve, "messages")[0], received(eve, "messages")[0]
            self.assertEqual([first["text"], second["text"]], ["slow", "fast"])
            self.assertEqual(second["number"], first["number"] + 1)
            with member("late") as late:
                self.assertEqual([message["text"] for message in received(late, "messages")], ["slow", "fast"])
        server.stop()

    # ---- under load, and with clients that leave

    def test_a_change_is_saved_although_its_client_leaves(self):
        # the dict was changed first; then the wait for a semaphore ended with the client: changed, and never saved
        run, server = self.recipe("How do I keep data over a restart?", page=os.path.join(DOCS, "faq.md"))
        with server.connect() as conn:
            self.assertEqual(conn.ask("PUT", "/todos/old", (), b"tea").status, 204)
        leaver, half = server.connect(), server.connect()
        leaver.send(request("DELETE", "/todos/old"))
        leaver.reset()
        half.send(request("PUT", "/todos/half", [("Content-Length", "4")], b"milk"))
        half.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(half.response("PUT").status, 204)  # a client that ends only its sending side gets the answer
        half.close()
        left = server.get("/todos/old").status  # the server may have seen the reset before the request
        run.stop(server)
        with sqlite3.connect(os.path.join(run.folder, "todos.db")) as stored:
            self.assertEqual(stored.execute('SELECT count(*) FROM "dict todos"').fetchone(), (1 if left == 404 else 2,))

    def test_the_newest_data_are_written_last(self):
        # two writes of a file at a time ended in the other order: the file was older than the dict
        run, server = self.recipe("ls.file.write", lambda site: r"""
local ls = require "luaserve"
local marks, write = ls.dict("marks"), ls.file.write
function ls.file.write(path, data) -- the first call waits until the second one has ended, or 0.3 s have passed
  local call, late = marks:incr("calls"), ls.now() + 0.3
  while call == 1 and not marks.ended and ls.now() < late do ls.sleep(0.01) end
  local result, message = write(path, data)
  if call == 2 then marks.ended = true end
  return result, message
end
""" + site.replace("ls.listen(", """app:get("/test/calls", function() return tostring(marks.calls) end)
ls.listen("""), os.path.join(DOCS, "reference", "file.md"))

        def visit():
            with server.connect() as conn:
                return conn.ask("POST", "/visits", (), b"").status

        def second():
            self.slow_call(server, 1)
            return visit()

        self.assertEqual(in_parallel([visit, second]), [204, 204])
        self.assertEqual(read_text(os.path.join(run.folder, "visits")), "2")
        run.stop(server)

    def test_two_uploads_of_one_name_do_not_mix(self):
        # both wrote to the file itself: its bytes were those of both, and a client that left replaced it by a half
        run, server = self.recipe("9. Files", lambda site: site.replace("ls.listen(", """
app:get("/test/parts", function()
  local bytes = 0
  for _, file in ipairs(ls.file.list("public", { details = true })) do bytes = bytes + file.size end
  return tostring(bytes)
end)
ls.listen("""), os.path.join(DOCS, "tutorial.md"))
        half, length = 100000, [("Content-Length", "200000")]

        def written(bytes_in_all):
            self.eventually(lambda: server.get("/test/parts").text == str(bytes_in_all), "%d bytes are written" % bytes_in_all)

        slow = server.connect()
        slow.send(request("PUT", "/files/same", length, b"A" * half))
        written(half)
        with server.connect() as fast:
            self.assertEqual(fast.ask("PUT", "/files/same", (), b"B" * 50).status, 201)
        self.assertEqual(server.get("/files/same").body, b"B" * 50)
        slow.send(b"A" * half)
        self.assertEqual(slow.response("PUT").text, "200000 bytes\n")
        slow.close()
        written(2 * half)
        leaver = server.connect()
        leaver.send(request("PUT", "/files/same", length, b"C" * half))
        written(3 * half)
        leaver.close()
        written(2 * half)
        self.assertEqual(read_bytes(os.path.join(run.folder, "public", "same")), b"A" * 2 * half)
        run.stop(server)

    def test_a_delivery_that_no_job_takes_is_not_known(self):
        # seen:add came before ls.spawn, which raises at max_jobs: the sender's next try was "known", and nothing was delivered
        run, server = self.recipe("A webhook receiver with retries", lambda site: "local ls = require 'luaserve'\n"
                                  "ls.config { max_jobs = 1, states = 1 }\n" + site.replace("ls.listen { port", """
app:get("/test/job", function()
  ls.dict("test"):set("job", true)
  ls.spawn(function() while ls.dict("test").job do ls.sleep(0.005) end end)
  return 204
end)
app:get("/test/end", function() ls.dict("test"):delete("job") return 204 end)
app:get("/test/tasks", function() return tostring(ls.stats().tasks) end)
ls.listen { port"""), flags=["--threads", "1"])
        signature = hmac.new(b"s3cret", b"order", "sha256").hexdigest()
        fields = [("X-Hub-Signature-256", "sha256=" + signature), ("X-GitHub-Delivery", "1")]

        def deliver():
            with server.connect() as conn:
                return conn.ask("POST", "/hook", fields, b"order").status

        self.assertEqual(server.get("/test/job").status, 204)
        self.assertEqual(deliver(), 503)
        self.assertEqual(server.get("/test/end").status, 204)
        self.eventually(lambda: server.get("/test/tasks").text == "0", "the job has ended")
        self.assertEqual(deliver(), 202)
        self.eventually(lambda: server.get("/arrived", index=2).text == '["order"]', "the delivery arrives")
        self.eventually(lambda: server.get("/test/tasks").text == "0", "its job has ended")
        self.assertEqual(deliver(), 200)
        run.stop(server)
