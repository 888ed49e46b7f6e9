"""The pages of examples/live in a browser: two of each and one that comes late. A relay between the browser and the server
cuts connections.
"""
# sanitizers: none; starts a browser
import contextlib
import os
import shutil
import socket
import threading

from harness import E2E, ROOT, request
from harness.browser import Browser, needs_browser

LIVE = os.path.join(ROOT, "examples", "live")


class Relay:
    """A port in front of a server, whose connections can be cut."""

    def __init__(self, where):
        self.where, self.lock, self.refuses, self.open = where, threading.Lock(), False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return  # closed
            with self.lock:
                if self.refuses:
                    near.close()
                    continue
                far = socket.create_connection(self.where)
                self.open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass(source, sink):
        with contextlib.suppress(OSError):  # cut
            while data := source.recv(65536):
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):  # cut
                sock.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """End all connections, and refuse others until restore()."""
        with self.lock:
            self.refuses = True
            for sock in self.open:
                with contextlib.suppress(OSError):  # ended before
                    sock.shutdown(socket.SHUT_RDWR)
            self.open.clear()

    def restore(self):
        with self.lock:
            self.refuses = False

    def close(self):
        self.cut()
        self.listener.close()


@needs_browser
class Live(E2E):
    EXAMPLE = None

    @classmethod
    def setUpClass(cls):
        if cls.EXAMPLE is not None:
            cls.browser = Browser()
            cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.site = self.start()
        self.relay = Relay(self.site.at())
        self.addCleanup(self.relay.close)
        self.opened = []

    def start(self):
        return self.serve(None, site_path=os.path.join(LIVE, self.EXAMPLE), args=("127.0.0.1:0",))

    def page(self, path="/", relay=False, **window):
        page = self.browser.page("http://127.0.0.1:%d%s" % (self.relay.port if relay else self.site.port(), path), **window)
        self.opened.append(page)
        return page

    def stop(self):
        for page in self.opened:
            page.check()
        for page in self.opened:
            page.close()
        self.site.stop()
        self.assertEqual(self.site.logged(" (error|warn) "), [])


class Chat(Live):
    EXAMPLE = "chat.lua"

    def enter(self, name, room="lobby", **how):
        page = self.page("/" + room, **how)
        page.write("#name", name)
        page.click("#join button")
        return page

    def come_in(self, name, room="lobby", **how):
        page = self.enter(name, room, **how)
        self.sees_people(page, name + " (you)")
        return page

    def say(self, page, text):
        page.write("#text", text)
        page.click("#say button")

    def sees(self, page, *messages):
        """Exactly these messages, each "name text"."""
        page.wait("Array.from(messages.children, (one) => one.firstChild.textContent + one.childNodes[1].textContent)"
                  ".join('|') === %r" % "|".join(messages))

    def sees_people(self, page, name):
        page.wait("Array.from(find('people').children, (one) => one.textContent).includes(%r)" % name)

    def test_two_people_talk(self):
        ada = self.come_in("ada")
        bob = self.come_in("bob")
        self.sees_people(ada, "bob")
        self.sees_people(bob, "ada")
        self.say(ada, "hello bob")
        self.say(bob, "hello ada")
        for page in (ada, bob):
            page.wait("messages.children.length === 2")
        self.assertEqual(ada.text("#messages"), bob.text("#messages"))
        self.say(bob, "<b>&amp;</b><script>window.failed = true</script>")
        ada.wait("messages.children.length === 3")
        self.assertEqual(ada.run("messages.lastChild.childNodes[1].textContent"), " <b>&amp;</b><script>window.failed = true</script>")
        self.assertFalse(ada.run("!!messages.querySelector('script') || 'failed' in window"))
        self.stop()

    def test_who_comes_late_sees_the_last_messages_and_other_rooms_do_not(self):
        ada = self.come_in("ada")
        for number in range(51):
            self.say(ada, "message %d" % number)
        ada.wait("messages.children.length === 51")
        bob = self.come_in("bob")
        self.sees(bob, *("ada message %d" % number for number in range(1, 51)))
        eve = self.come_in("eve", room="other")
        self.say(eve, "nobody here")
        self.sees(eve, "eve nobody here")
        self.assertEqual(eve.run("find('people').children.length"), 1)
        bob.click("#say button")  # an empty message is none
        self.assertEqual(bob.run("messages.children.length"), 50)
        self.stop()

    def test_a_name_is_taken_or_not_valid(self):
        ada = self.come_in("ada")
        other = self.enter("ada")
        other.wait("find('wrong').textContent === 'this name is in use'")
        other.write("#name", "a/b")
        other.click("#join button")
        other.wait("find('wrong').textContent.startsWith('a name has')")
        other.write("#name", "áda")
        other.click("#join button")
        self.sees_people(ada, "áda")
        ada.close()
        other.wait("find('people').children.length === 1")
        self.opened.remove(ada)
        self.stop()

    def test_a_page_that_lost_its_connection_gets_what_it_missed(self):
        ada = self.come_in("ada")
        bob = self.come_in("bob", relay=True)
        self.say(ada, "one")
        self.sees(bob, "ada one")
        self.relay.cut()
        bob.wait("find('status').textContent.startsWith('Connection lost')")
        ada.wait("find('people').children.length === 1")
        self.say(ada, "two")
        self.sees(ada, "ada one", "ada two")
        self.relay.restore()
        self.sees(bob, "ada one", "ada two")
        self.sees_people(ada, "bob")
        self.stop()


# ticker.lua, with prices that come when the test asks for them.
STEPPED = """
local ls = require "luaserve"
local listen, tick = ls.listen
ls.init = function(start) start() end -- in each state: any of them may get the request
ls.every = function(_, fn) tick = fn end
ls.listen = function(address, app)
  app:get("/tick", function() tick() return 204 end)
  listen(address, app)
end
assert(loadfile("@LIVE@/ticker.lua"))("127.0.0.1:0")
"""


class Ticker(Live):
    EXAMPLE = "ticker.lua"

    def start(self):
        site = self.serve(STEPPED.replace("@LIVE@", LIVE))
        shutil.copy(os.path.join(LIVE, "ticker.html"), site.dir)
        return site

    def tick(self, count):
        for _ in range(count):
            self.assertEqual(self.site.get("/tick").status, 204)

    def test_pages_show_the_same_and_miss_nothing(self):
        self.tick(3)
        near, far = self.page(), self.page(relay=True)
        for page in (near, far):
            page.wait("count === 3")
            self.assertEqual(page.text("#status"), "Connected")
        self.tick(9)
        for page in (near, far):
            page.wait("count === 12")
            self.assertRegex(page.text("#prices"), r"^(ALPHA|BRAVO|CHARLIE|DELTA)\s+\d+\.\d\d")
        self.relay.cut()
        far.wait("find('status').textContent.startsWith('Connection lost')")
        self.tick(10)
        near.wait("count === 22")
        self.assertEqual(far.run("count"), 12)
        self.relay.restore()
        far.wait("count === 22")
        self.tick(10)
        for page in (near, far):
            page.wait("count === 32")
        self.assertEqual(near.run("last"), far.run("last"))
        self.assertEqual(near.text("#prices"), far.text("#prices"))
        self.stop()


# Prices of 100 kB: 60 of them do not fit into the sockets.
LARGE = """
local ls = require "luaserve"
local dict, encode = ls.dict, ls.json.encode
ls.dict = function(name) return dict(name, { size = "64m" }) end
ls.json.encode = function(price) price.more = ("x"):rep(100000) return encode(price) end
"""


class SlowTicker(E2E):
    def test_no_price_overtakes_those_that_wait_for_a_slow_client(self):
        site = self.serve(LARGE + STEPPED.replace("@LIVE@", LIVE))
        for _ in range(60):
            self.assertEqual(site.get("/tick").status, 204)
        with site.connect(rcvbuf=4096) as conn:
            conn.send(request("GET", "/prices", version="HTTP/1.0"))  # no chunks
            conn.response_head()
            for _ in range(3):
                self.assertEqual(site.get("/tick").status, 204)
            ids = []
            while len(ids) < 63:
                line = conn.line()
                if line.startswith(b"id: "):
                    ids.append(int(line[4:]))
        self.assertEqual(ids, list(range(ids[0], ids[0] + 63)))


class Drawing(Live):
    EXAMPLE = "drawing.lua"
    INK = "Array.from(context.getImageData(%d, %d, 1, 1).data)"

    def ink(self, page, x, y):
        """The colour of a point of the picture, when there is one."""
        at = self.INK % (x, y)
        page.wait("%s[3] === 255" % at)
        return page.run(at)

    def draw(self, page, *points):
        """A line through points of the canvas."""
        left, top = page.run("(({ left, top }) => [left, top])(canvas.getBoundingClientRect())")
        page.drag([(left + x, top + y) for x, y in points])

    def board(self):
        page = self.page()
        page.wait("hue && find('status').textContent === 'Connected'")
        return page

    def test_strokes_are_shared_in_the_colour_of_their_author(self):
        first, second = self.board(), self.board()
        self.assertNotEqual(first.run("hue"), second.run("hue"))
        self.draw(first, (100, 100), (200, 100), (300, 100))
        self.draw(second, (100, 300), (300, 300))
        self.assertEqual(self.ink(first, 200, 100), self.ink(second, 200, 100))
        self.assertEqual(self.ink(first, 200, 300), self.ink(second, 200, 300))
        self.assertNotEqual(self.ink(first, 200, 100), self.ink(first, 200, 300))
        late = self.board()
        self.assertEqual(self.ink(late, 200, 100), self.ink(first, 200, 100))
        self.assertEqual(self.ink(late, 200, 300), self.ink(first, 200, 300))
        late.click("#clear")
        for page in (first, second, late):
            page.wait("strokes.length === 0 && %s[3] === 0" % (self.INK % (200, 100)))
        self.stop()

    def test_a_page_sends_at_most_30_messages_a_second(self):
        first, second = self.board(), self.board()
        first.run("""(() => {
            const send = socket.send;
            window.times = [];
            socket.send = (data) => { times.push(performance.now()); send.call(socket, data); };
        })()""")
        self.draw(first, *((50 + 5 * n, 200) for n in range(100)))
        self.ink(second, 540, 200)
        times = first.run("times")
        self.assertGreater(len(times), 1)
        for one, next_one in zip(times, times[1:]):
            self.assertGreater(next_one - one, 30, times)
        self.stop()

    def test_a_page_that_lost_its_connection_gets_the_picture(self):
        first = self.board()
        second = self.page(relay=True)
        second.wait("hue")
        self.relay.cut()
        second.wait("find('status').textContent.startsWith('Connection lost')")
        self.draw(first, (100, 100), (200, 100))
        colour = self.ink(first, 150, 100)
        self.relay.restore()
        self.assertEqual(self.ink(second, 150, 100), colour)
        self.stop()


del Live  # no tests of its own
