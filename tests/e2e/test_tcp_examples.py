"""The TCP examples, each started with the command line that its comment gives."""
import os
import re
import signal
import subprocess
import time

from harness import (E2E, LUASERVE, ROOT, WAIT, WINDOWS, Conn, beside, in_parallel, needs_terminal, read_text, repeats, system)
from harness.terminal import terminal

EXAMPLES = os.path.join(ROOT, "examples")


class Example(E2E):
    def example(self, name, *args, listeners=1, **kw):
        return self.serve(read_text(os.path.join(EXAMPLES, name)), args=[str(arg) for arg in args], listeners=listeners, **kw)

    def script(self, name, *args, timeout=6 * WAIT):
        """Run an example that ends by itself; returns its exit status, its output, and its log."""
        done = subprocess.run([LUASERVE, os.path.join(EXAMPLES, name), *[str(arg) for arg in args]],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout, done.stderr

    def printed(self, server):
        return read_text(server.out_path)


class Echo(Example):
    """S8"""

    LINE = re.compile(r"Thread (\d+): The following message was received: (.*)\Z")

    def test_usage(self):
        server = self.example("echo.lua", listeners=0)
        self.assertNotEqual(server.wait(), 0)
        self.assertIn("usage:", server.log())

    def test_shows_and_sends_back(self):
        server = self.example("echo.lua", "127.0.0.1:0")
        processors = system.processors()
        self.eventually(lambda: "Processors: %d, threads: %d" % (processors, 2 * processors) in self.printed(server),
                        "it prints the numbers of processors and threads")
        texts = ["client %d message %d %s" % (i, j, "z" * (j * 37 % 300)) for i in range(20) for j in range(repeats(50))]
        each = len(texts) // 20

        def client(mine):
            with Conn(server.at()) as conn:
                for text in mine:
                    conn.send(text.encode())
                    self.assertEqual(conn.take(len(text)), text.encode())

        in_parallel([lambda k=k: client(texts[k * each:(k + 1) * each]) for k in range(20)])
        server.stop()
        lines = self.printed(server).splitlines()
        matches = [self.LINE.match(line) for line in lines[1:]]
        self.assertTrue(all(matches), [line for line, match in zip(lines[1:], matches) if not match][:3])
        self.assertEqual(sorted(match.group(2) for match in matches), sorted(texts))
        self.assertTrue(all(1 <= int(match.group(1)) <= 4 * processors + 64 for match in matches))

    def test_partial_sends_are_continued(self):
        server = self.example("echo.lua", "127.0.0.1:0", "quiet")
        data = os.urandom(1 << 20) * 8
        conn = self.connect(server=server, rcvbuf=4096)
        with beside(lambda: conn.try_send(data)):
            self.assertTrue(conn.take(len(data)) == data)

    def test_signal_with_clients_connected(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            server = self.example("echo.lua", "127.0.0.1:0", "quiet")
            conns = [self.connect(server=server) for _ in range(20)]
            for conn in conns:
                conn.send(b"hello")
                self.assertEqual(conn.take(5), b"hello")
            began = time.monotonic()
            server.signal(number)
            for conn in conns:
                conn.expect_end()
            self.assertEqual(server.wait(), 0)
            self.assertLess(time.monotonic() - began, 15)

    def keys(self, stdin, press):
        """Start it with this standard input; `press` sends the key that ends it."""
        process = subprocess.Popen([LUASERVE, os.path.join(EXAMPLES, "echo.lua"), "127.0.0.1:0"], stdin=stdin,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        try:
            for line in process.stderr:
                if b"listening" in line:
                    break
            press(process)
            self.assertEqual(process.wait(2 * WAIT), 0)
            self.assertIn(b"Shutting down", process.stdout.read())
        finally:
            process.kill()
            process.wait()

    def test_key_on_a_pipe(self):
        def press(process):
            process.stdin.write(b"abc")  # does not end it
            process.stdin.flush()
            time.sleep(0.2)
            self.assertIsNone(process.poll())
            process.stdin.write(b"q")
            process.stdin.close()

        self.keys(subprocess.PIPE, press)

    @needs_terminal
    def test_key_on_a_terminal(self):
        with terminal() as (master, slave):
            self.keys(slave, lambda _: os.write(master, b"xyq" if WINDOWS else b"\n"))  # a console of Windows delivers single keys

    @needs_terminal
    def test_signal_at_a_terminal(self):
        """The same while it waits for a key."""
        with terminal() as (master, slave):
            server = self.example("echo.lua", "127.0.0.1:0", "quiet", terminal=slave)
            os.read(master, 1)  # it is running: "Processors: ..."
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0, server.log())

    def test_closed_standard_input_is_no_key(self):
        server = self.example("echo.lua", "127.0.0.1:0")
        time.sleep(0.3)
        self.assertTrue(server.alive())


class Stress(Example):
    """S9"""

    def test_usage(self):
        status, _, err = self.script("stress_client.lua", "127.0.0.1")
        self.assertNotEqual(status, 0)
        self.assertIn("usage:", err)

    def test_against_the_echo_server(self):
        server = self.example("echo.lua", "127.0.0.1:0")
        status, out, err = self.script("stress_client.lua", "127.0.0.1", server.port(), "a message", 5, 20, "show")
        self.assertEqual(status, 0, err)
        for t in range(1, 6):
            for i in range(1, 21):
                self.assertIn("%d. Thread %d - a message\n" % (i, t), out)
        self.assertRegex(out, r"100 messages in [\d.]+ s: \d+ per second")
        self.assertRegex(out, r"latency: median [\d.]+ ms, 99 % below [\d.]+ ms, longest [\d.]+ ms")
        self.assertIn("failed: 0", out)
        server.stop()
        self.assertEqual(self.printed(server).count("The following message was received: "), 100)

    def test_failures_are_counted(self):
        status, out, _ = self.script("stress_client.lua", "127.0.0.1", 1, "m", 3, 4)
        self.assertEqual(status, 1)
        self.assertIn("failed: 12", out)
        self.assertIn("12 x connect: connection refused", out)

    def test_wrong_echoes_are_counted(self):
        server = self.serve("require 'luaserve'.tcp('127.0.0.1:0', function(s) "
                            "while true do local d = s:receiveany() if not d then return end s:send(d:upper()) end end)")
        status, out, _ = self.script("stress_client.lua", "127.0.0.1", server.port(), "low", 2, 3)
        self.assertEqual(status, 1)
        self.assertIn("6 x the echo differs from the message", out)


class Chat(Example):
    def ask(self, server, name):
        conn = self.connect(server=server)
        self.assertEqual(conn.take(11), b"Your name? ")
        conn.send(name.encode() + b"\n")
        return conn

    def join(self, server, name):
        """The client is in the room: it hears who comes next."""
        conn = self.ask(server, name)
        conn.send(b"/who\n")
        self.assertIn(name.encode(), conn.line().split())
        return conn

    def test_chat(self):
        server = self.example("chat.lua", 0, listeners=2)
        ann = self.join(server, "ann")
        bob = self.join(server, "bob")
        self.assertEqual(ann.line(), b"* bob is here")
        third = self.ask(server, "bob")
        self.assertEqual(third.take(64), b"A name has only letters and digits and is not in use. Your name?")
        third.send(b"cid\n")
        self.assertEqual(ann.line(), b"* cid is here")
        self.assertEqual(bob.line(), b"* cid is here")
        bob.send(b"hello all\n")
        self.assertEqual(ann.line(), b"bob: hello all")
        self.assertEqual(third.take(1) + third.line(), b" bob: hello all")
        ann.send(b"/who\n")
        self.assertEqual(ann.line(), b"* ann bob cid")
        bob.send(b"/quit\n")
        self.assertEqual(bob.rest(), b"")
        self.assertEqual(ann.line(), b"* bob has left")
        third.reset()
        self.assertEqual(ann.line(), b"* cid has left")

    def test_one_who_does_not_read_is_put_out(self):
        server = self.example("chat.lua", 0, listeners=2)
        deaf = self.connect(server=server, rcvbuf=4096)
        deaf.take(11)
        deaf.send(b"deaf\n/who\n")
        deaf.line()
        talker = self.join(server, "talker")
        listener = self.join(server, "listener")
        talker.line()
        line = b""
        for _ in range(400):  # at most 80 MB, in step with the reader
            talker.send((b"x" * 4000 + b"\n") * 50)
            heard = 0
            while heard < 50 and line != b"* deaf has left":
                line = listener.line()
                heard += line.startswith(b"talker: ")
            if line == b"* deaf has left":
                break
        self.assertEqual(line, b"* deaf has left")


class KeyValue(Example):
    def test_commands(self):
        server = self.example("kv.lua", 0, listeners=2)
        conn = self.connect(server=server)
        value = b"two\nlines \x00 and \xff"
        conn.send(b"get a\nset a %d\n%s\nget a\ncount\n" % (len(value), value))
        self.assertEqual(conn.line(), b"END")
        self.assertEqual(conn.line(), b"STORED")
        self.assertEqual(conn.line(), b"VALUE a %d" % len(value))
        self.assertEqual(conn.take(len(value) + 1), value + b"\n")
        self.assertEqual(conn.line(), b"END")
        self.assertEqual(conn.line(), b"1")
        other = self.connect(server=server)
        other.send(b"delete a\r\ndelete a\r\nnonsense\r\nset\r\nget " + b"k" * 251 + b"\r\n")
        self.assertEqual([other.line() for _ in range(5)],
                         [b"DELETED", b"NOT_FOUND", b"ERROR unknown command", b"CLIENT_ERROR bad key", b"CLIENT_ERROR bad key"])
        other.send(b"set b x\n")
        self.assertEqual(other.rest(), b"CLIENT_ERROR bad length\n")
        conn.send(b"set c 3\nabcdef\n")
        self.assertEqual(conn.rest(), b"CLIENT_ERROR bad data chunk\n")
        last = self.connect(server=server)
        last.send(b"quit\n")
        self.assertEqual(last.rest(), b"")

    def test_the_values_that_were_not_used_for_longest_go(self):
        server = self.example("kv.lua", 0, listeners=2)
        conn = self.connect(server=server)
        value = os.urandom(1 << 20)
        for n in range(70):  # the dict has 64 MiB
            conn.send(b"set %d %d\n%s\nget 0\n" % (n, len(value), value))
            self.assertEqual(conn.line(), b"STORED")
            self.assertEqual(conn.line(), b"VALUE 0 %d" % len(value))
            conn.take(len(value) + 1)
            self.assertEqual(conn.line(), b"END")
        conn.send(b"get 1\nget 69\n")
        self.assertEqual((conn.line(), conn.line()), (b"END", b"VALUE 69 %d" % len(value)))

    def test_large_values_and_pipelines(self):
        server = self.example("kv.lua", 0, listeners=2)
        conn = self.connect(server=server)
        value = os.urandom(1 << 20)
        with beside(lambda: conn.send(b"set big %d\n%s\n" % (len(value), value) + b"get big\n" * 5)):
            self.assertEqual(conn.line(), b"STORED")
            for _ in range(5):
                self.assertEqual(conn.line(), b"VALUE big %d" % len(value))
                self.assertTrue(conn.take(len(value)) == value)
                self.assertEqual(conn.line() + conn.line(), b"END")
        conn.send(b"x" * 600 + b"\n")  # longer than any command
        self.assertEqual(conn.rest(), b"")


class Proxy(Example):
    def proxied(self, site, listeners=1):
        backend = self.serve("local ls = require 'luaserve' " + site)
        proxy = self.example("proxy.lua", "127.0.0.1:0", "127.0.0.1:%d" % backend.port())
        return backend, proxy

    def test_both_directions(self):
        backend, proxy = self.proxied("ls.tcp('127.0.0.1:0', function(s) for d in s:chunks() do s:send(d) end end)")

        def client(n):
            data = os.urandom(200_000 + n)
            with Conn(proxy.at()) as conn:
                with beside(lambda: (conn.send(data), conn.half_close())):
                    self.assertTrue(conn.rest() == data)

        in_parallel([lambda n=n: client(n) for n in range(16)])

    def test_half_close(self):
        backend, proxy = self.proxied("ls.tcp('127.0.0.1:0', function(s) s:send(s:receive('*a'):upper()) end)")
        with Conn(proxy.at()) as conn:
            conn.send(b"to the end")
            conn.half_close()  # the response still arrives, then the end of the backend
            self.assertEqual(conn.rest(), b"TO THE END")

    def test_backend_ends_first(self):
        backend, proxy = self.proxied("ls.tcp('127.0.0.1:0', function(s) s:send('first') s:shutdown() "
                                      "ls.log.info('heard ' .. s:receive('*a')) end)")
        with Conn(proxy.at()) as conn:
            self.assertEqual(conn.rest(), b"first")
            conn.send(b"and more")
            conn.half_close()
            backend.wait_log("heard and more")

    def test_reset_ends_both(self):
        backend, proxy = self.proxied("ls.tcp('127.0.0.1:0', function(s) s:send('x') "
                                      "ls.log.info('ended ' .. tostring(select(3, s:receive(100)))) end)")
        conn = Conn(proxy.at())
        self.assertEqual(conn.take(1), b"x")
        conn.reset()
        backend.wait_log("ended E")

    def test_slow_reader_bounds_memory(self):
        backend, proxy = self.proxied("ls.tcp('127.0.0.1:0', function(s) local b = ls.buffer(('x'):rep(1024):rep(64)) "
                                      "for _ = 1, 2048 do if not s:send(b) then break end end end)")
        with Conn(proxy.at()) as conn:
            before = proxy.rss()
            time.sleep(1)
            self.assertLess(proxy.rss() - before, 32 << 20)
            self.assertEqual(len(conn.rest()), 2048 * 65536)

    def test_no_backend(self):
        proxy = self.example("proxy.lua", "127.0.0.1:0", "127.0.0.1:1")
        self.assertEqual(self.connect(server=proxy).rest(), b"")
        proxy.wait_log("127.0.0.1:1: connection refused")
