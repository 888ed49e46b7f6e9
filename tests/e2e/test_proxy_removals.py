"""The cache of app:proxy with a second store: after a removal nothing older is served or kept, whatever reads and writes the
store at that moment, in whichever Lua state and generation of the site."""
import itertools
import os
import shutil
import threading
import time

from harness import E2E, app_site, not_on_windows, request, temporary_folder, write_text
from harness.environment import WAIT, repeats
from harness.peer import response
from test_proxy_cache import FRESH, Upstream

# A dict that waits at a point of a call, once, when /stop has named it: until /go.
HELD = r"""
local ls = require "luaserve"
ls.config { threads = 2 }
local pages, stops = ls.dict("pages"), ls.dict("stops")
local reached, go = ls.channel("reached"), ls.channel("go")
local function pass(point)
  if stops:get(point) then
    stops:delete(point)
    reached:send(point)
    go:receive(@WAIT@)
  end
end
local held = setmetatable({
  get = function(_, line)
    local bytes = pages:get(line)
    pass("read")
    return bytes
  end,
  set = function(_, line, bytes)
    pass("set")
    local done = pages:set(line, bytes)
    pass("written")
    return done
  end,
  delete = function(_, line)
    pass("delete")
    return pages:delete(line)
  end,
  keys = function() return pages:keys() end,
  replace = function() end,
}, { __tostring = function() return "dict 'held'" end })
local app = ls.app()
app:get("/stop", function(req) stops:set(req.query.at, true) return 204 end)
app:get("/reached", function() return reached:receive(@WAIT@) or 504 end)
app:get("/go", function() go:send(true) return 204 end)
app:get("/kept", function(req) return pages:get(req.query.path) or "" end)
local _, store = app:proxy("/", "@SERVER@", { cache = { dict = held, size = "64k", max_body = "1m" } })
app:get("/purge", function(req) return tostring(store:purge(req.query.path)) end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
"""
LINE = "/a"
REMOVALS = ("GET", "/purge?path=/a"), ("GET", "/purge?path=/*"), ("GET", "/purge"), ("POST", LINE)


class Upstreams(E2E):
    @classmethod
    def setUpClass(cls):
        cls.up = Upstream()
        cls.addClassCleanup(cls.up.close)
        super().setUpClass()

    def until(self, ready):
        end = time.monotonic() + WAIT
        while not ready():
            self.assertLess(time.monotonic(), end)


class Held(Upstreams):
    def setUp(self):
        self.source = HELD.replace("@WAIT@", str(WAIT))
        self.one = self.serve(self.source.replace("@SERVER@", "http://127.0.0.1:%d" % self.up.port))
        self.up.on(LINE, response(b"old", [FRESH]))

    def get(self, target, headers=()):
        with self.one.connect() as conn:
            return conn.get(target, headers)

    def stop_at(self, *points):
        for point in points:
            self.get("/stop?at=" + point)

    def go(self, reached=None):
        """Let a call go on, and wait for the next one that stops at this point."""
        self.get("/go")
        if reached:
            self.reached(reached)

    def reached(self, point):
        self.assertEqual(self.get("/reached").text, point)

    def in_memory(self):
        return self.get(LINE, [("Cache-Control", "only-if-cached")]).status == 200

    def kept(self):
        return self.get("/kept?path=" + LINE).body.decode("latin-1")

    def store_old(self):
        self.assertEqual(self.get(LINE).text, "old")
        self.until(lambda: "old" in self.kept())

    def evict(self):
        """Fill the memory with others; a response that the client has may be stored a moment later."""
        numbers = itertools.count()

        def evicted():
            for _ in range(3):
                target = self.up.on("/big/%d" % next(numbers), response(b"x" * 30000, [FRESH]))
                self.get(target)
            return not self.in_memory()
        self.until(evicted)

    def begin(self, removal):
        """Send a removal, whose response is not read, and wait until it has begun. -> its connection"""
        self.up.on(LINE, lambda seen: response(b"new", [] if seen["method"] == "POST" else [FRESH]))
        conn = self.connect(server=self.one).send(request(*removal))
        self.until(lambda: not self.in_memory())
        return conn

    def ends_new(self, conn):
        self.assertEqual(conn.response().status, 200)
        self.assertNotIn("old", self.kept())
        self.assertEqual(self.get(LINE).text, "new")
        self.until(lambda: "new" in self.kept())
        self.evict()
        self.assertEqual(self.get(LINE).text, "new")
        self.one.stop()

    def removal_while_a_copy_is_written(self, removal):
        self.stop_at("set", "written")
        self.assertEqual(self.get(LINE).text, "old")
        self.reached("set")
        conn = self.begin(removal)
        self.go("written")
        self.assertIn("old", self.kept())
        self.assertEqual(self.get(LINE).text, "new")
        self.go()
        self.ends_new(conn)

    def test_a_purge_while_a_copy_is_written(self):
        self.removal_while_a_copy_is_written(REMOVALS[0])

    def test_a_purge_of_a_prefix_while_a_copy_is_written(self):
        self.removal_while_a_copy_is_written(REMOVALS[1])

    def test_a_purge_of_everything_while_a_copy_is_written(self):
        self.removal_while_a_copy_is_written(REMOVALS[2])

    def test_an_unsafe_method_while_a_copy_is_written(self):
        self.removal_while_a_copy_is_written(REMOVALS[3])

    def test_a_copy_is_read_before_the_removal(self):
        """And the reader goes on behind it."""
        self.store_old()
        self.evict()
        self.stop_at("read")
        reader = self.connect(server=self.one).send(request("GET", LINE))
        self.reached("read")
        conn = self.begin(REMOVALS[0])
        self.assertEqual(conn.response().status, 200)
        self.go()
        self.assertEqual(reader.response().text, "new")
        self.assertEqual(self.get(LINE).text, "new")
        self.one.stop()

    def test_a_copy_is_read_during_the_removal(self):
        for removal in REMOVALS:
            with self.subTest(removal):
                self.up.on(LINE, response(b"old", [FRESH]))
                self.get("/purge")
                self.store_old()
                self.stop_at("delete")
                conn = self.begin(removal)
                self.reached("delete")
                self.assertEqual(self.get(LINE).text, "new")
                self.until(self.in_memory)
                self.assertIn("old", self.kept())
                self.go()
                self.assertEqual(conn.response().status, 200)
                self.until(lambda: "new" in self.kept())  # the copy of what was stored meanwhile waited for the removal
                self.assertEqual(self.get(LINE).text, "new")
        self.one.stop()

    def test_the_client_of_a_removal_leaves(self):
        """The removal goes on."""
        self.store_old()
        self.stop_at("delete")
        conn = self.begin(REMOVALS[3])
        self.reached("delete")
        conn.close()
        self.go()
        self.until(lambda: "old" not in self.kept())
        self.assertEqual(self.get(LINE).text, "new")
        self.one.stop()

    def test_copies_are_written_in_the_order_of_their_responses(self):
        self.stop_at("set")
        self.assertEqual(self.get(LINE).text, "old")
        self.reached("set")
        self.up.on(LINE, response(b"new", [FRESH]))
        self.assertEqual(self.get(LINE, [("Cache-Control", "no-cache")]).text, "new")
        self.assertEqual(self.kept(), "")
        self.stop_at("written")
        self.go("written")
        self.assertIn("old", self.kept())
        self.go()
        self.until(lambda: "new" in self.kept())
        self.evict()
        self.assertEqual(self.get(LINE).text, "new")
        self.one.stop()

    def test_a_copy_takes_no_place_of_a_newer_response(self):
        self.store_old()
        self.evict()
        self.stop_at("read")
        reader = self.connect(server=self.one).send(request("GET", LINE))
        self.reached("read")
        self.up.on(LINE, response(b"new", [FRESH]))
        self.stop_at("set")
        self.assertEqual(self.get(LINE, [("Cache-Control", "no-cache")]).text, "new")
        self.reached("set")
        self.go()
        self.go()
        self.assertEqual(reader.response().text, "new")
        self.one.stop()

    @not_on_windows("Windows has no SIGHUP")
    def test_a_copy_of_the_old_site_of_a_reload(self):
        """The new site has another server, so that the memory of a cache without a second store would be another one."""
        self.stop_at("set", "written")
        self.assertEqual(self.get(LINE).text, "old")
        self.reached("set")
        write_text(self.one.site, self.source.replace("@SERVER@", "http://localhost:%d" % self.up.port))
        self.one.reload("reloaded")
        conn = self.begin(REMOVALS[0])
        self.go("written")
        self.assertEqual(self.get(LINE).text, "new")
        self.go()
        self.ends_new(conn)


class Load(Upstreams):
    """Many changes of few responses beside many readers."""
    SOURCE = app_site("""
        ls.config { threads = 2 }
        local _, store = app:proxy("/", "http://127.0.0.1:%d", { cache = { %s } })
        app:get("/purge", function(req) store:purge(req.query.path) return 204 end)
""")

    def changes(self, options, remove):
        """`remove(conn, target, change)` calls change(), after which the server has the next version."""
        server = self.serve(self.SOURCE % (self.up.port, options))
        versions, failures, done = [0] * 4, [], threading.Event()

        def change(number):
            versions[number] += 1

        def answer(number):
            def fn(seen):
                if seen["method"] == "POST":
                    change(number)
                return response(b"%d" % versions[number], [FRESH] if seen["method"] == "GET" else [])
            return fn

        def writer(number):
            target = "/load/%d" % number
            with server.connect() as conn:
                for _ in range(repeats(100)):
                    remove(conn, target, lambda: change(number))
                    got = int(conn.get(target).text)
                    if got != versions[number]:
                        failures.append((target, got, versions[number]))

        def reader():
            with server.connect() as conn:
                while not done.is_set():
                    for number in range(len(versions)):
                        conn.get("/load/%d" % number)
        for number in range(len(versions)):
            self.up.on("/load/%d" % number, answer(number))
        writers = [threading.Thread(target=writer, args=(number,)) for number in range(len(versions))]
        readers = [threading.Thread(target=reader) for _ in range(6)]
        for thread in readers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
        server.stop()
        self.assertEqual(failures, [])

    def both(self, options):
        def purge(conn, target, change):
            change()
            conn.get("/purge?path=" + target)
        self.changes(options, purge)
        self.changes(options, lambda conn, target, change: conn.ask("POST", target))

    def test_a_folder(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        self.both('folder = "%s"' % folder)

    def test_a_dict(self):
        self.both('dict = ls.dict("pages")')


class Failures(Upstreams):
    def test_what_cannot_be_removed(self):
        """A directory in the place of the file: purge raises, an unsafe method logs it."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        server = self.serve(Load.SOURCE % (self.up.port, 'folder = "%s"' % folder))
        self.up.on(LINE, lambda seen: response(b"x", [FRESH] if seen["method"] == "GET" else []))

        def files():
            return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if len(name) == 32]
        with server.connect() as conn:
            conn.get(LINE)
            self.until(files)
            name = files()[0]
            os.remove(name)
            os.makedirs(name + "/in/it")
            self.assertEqual(conn.get("/purge?path=" + LINE).status, 500)
            server.wait_log("error request .*app:proxy: cache: .*not empty")
            self.assertEqual(conn.ask("POST", LINE).status, 200)
            server.wait_log("error app:proxy: cache: .*not empty")
            self.assertEqual(conn.get("/purge").status, 204)  # of the files alone

    def test_where_a_purge_waits(self):
        """Not at the top of a site, which each Lua state runs."""
        source = 'local ls = require "luaserve"\nlocal dict = ls.dict("pages")\n%s' % """
            local _, store = ls.app():proxy("/", "http://127.0.0.1:1", { cache = { dict = dict } })
            dict:set("/a", "x")
            %s"""
        self.refuses(source % "store:purge()", "store:purge: cannot wait while the site loads")
        server = self.serve(source % """
            local app = ls.app()
            ls.init(function() store:purge("/*") end)
            app:get("/", function() return #dict .. "" end)
            ls.listen { host = "127.0.0.1", port = 0, handler = app }""")
        with server.connect() as conn:
            self.assertEqual(conn.get("/").text, "0")
