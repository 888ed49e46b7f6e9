"""Many connections: memory for each, of TCP and of HTTP; memory after they close, 16 threads."""

from harness import E2E, SANITIZER, Conn, not_on_windows, repeats

ECHO = """
local ls = require 'luaserve'
ls.config { threads = %d }
ls.tcp({ host = '127.0.0.1', port = 0, backlog = 4096 }, function(sock)
  for data in sock:chunks() do sock:send(data) end
end)
"""


HTTP = """
local ls = require 'luaserve'
ls.config { threads = 1, threads_max = 1 }
local app = ls.app()
app:get('/', function() return 'hello' end)
ls.listen{ host = '127.0.0.1', port = 0, handler = app }
"""

# The number of threads and states that ever ran varies from run to run: a spare thread, which takes over under load or
# while a collection takes 5 ms, allocates coroutines, blocks and a heap of its own, some 300 KiB, and keeps them. So
# memory is measured without spare threads.
NO_SPARE = "ls.config { threads_max = %d }"


class Many(E2E):
    def test_idle_connections_are_small(self):
        if SANITIZER:
            self.skipTest("a sanitizer allocates memory of its own")
        server = self.serve(ECHO % 1 + NO_SPARE % 1)
        count = 2000
        warm = [self.echo(server) for _ in range(50)]
        before = server.rss()
        conns = [self.echo(server) for _ in range(count)]
        each = (server.rss() - before) / count
        self.assertLess(each, 1900 * 1.25)  # 1,849 at 10,000 connections; 2,000 share the fixed costs
        for conn in conns + warm:
            conn.close()

    @not_on_windows("its sockets are larger")
    def test_idle_keep_alive_connections_are_small(self):
        if SANITIZER:
            self.skipTest("a sanitizer allocates memory of its own")
        server = self.serve(HTTP)

        def answered():
            conn = Conn(server.at())
            self.assertEqual(conn.get("/").text, "hello")
            return conn

        count = 2000
        warm = [answered() for _ in range(50)]
        before = server.rss()
        conns = [answered() for _ in range(count)]
        each = (server.rss() - before) / count
        self.assertLess(each, 256 * 1.1)  # 254 at 10,000 connections; 2,000 share the fixed costs
        for conn in conns + warm:
            conn.close()

    @staticmethod
    def echo(server, data=b"x" * 64):
        conn = Conn(server.at())
        conn.send(data)
        if conn.take(len(data)) != data:
            raise AssertionError("wrong echo")
        return conn

    def come_and_go(self, site, rounds):
        """The server's resident bytes after each round of connections."""
        server = self.serve(site)
        count, sizes = repeats(1000), []
        self.echo(server).close()
        fds = server.fds()
        for _ in range(rounds):
            conns = [self.echo(server) for _ in range(count)]
            for i, conn in enumerate(conns):
                if i % 3 == 0:
                    conn.reset()
                else:
                    conn.close()
            self.eventually(lambda: server.fds() <= fds, "the descriptors are closed")
            sizes.append(server.rss())
        server.stop()
        return sizes

    # Heaps settle in the first rounds.

    def test_connections_that_come_and_go(self):
        sizes = self.come_and_go(ECHO % 1 + NO_SPARE % 1, 10)
        if not SANITIZER:  # 100 bytes for each connection of the last five rounds; 40 are usual
            self.assertLess(sizes[9] - sizes[4], 5 * 1000 * 100, sizes)
