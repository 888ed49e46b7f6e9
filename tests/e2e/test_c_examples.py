"""The C programs on src/port/*.h (examples/c: S2 to S5) and the baselines S6 and S7 (tests/bench).

Each program prints its address and each event as a line; the tests wait for these lines.
"""
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import unittest
import urllib.request

from harness import LUASERVE, REPORT, WAIT, beside, in_parallel, not_on_windows, repeats, scratch

BUILD = os.path.dirname(LUASERVE)


class Program:
    """A running program, its lines of standard output, and the port it listens on."""

    def __init__(self, test, path, *args):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, path), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        test.addCleanup(self._end)
        self.lines = []
        self.errors = ""
        self.news = threading.Condition()
        self.readers = [threading.Thread(target=self._read, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()
        self.port = int(self.line(r"(?:listening on|luaserve \S+ serves) 127\.0\.0\.1:(\d+).*").group(1))

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.lines.append(None)
            self.news.notify_all()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join(WAIT)
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            if not pipe.closed:
                pipe.close()

    def line(self, pattern):
        """Wait for a line that the whole pattern matches; returns the match."""
        found = []

        def there():
            found[:] = [m for m in (re.fullmatch(pattern, line or "") for line in self.lines) if m]
            return found or (self.lines and self.lines[-1] is None)

        with self.news:
            self.news.wait_for(there, WAIT)
        if not found:
            raise AssertionError("no line matches %r in %r; %s" % (pattern, self.lines, self.errors))
        return found[0]

    def count(self, pattern):
        with self.news:
            return sum(1 for line in self.lines if line is not None and re.fullmatch(pattern, line))

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), WAIT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def status(self):
        """Wait for the end; returns the exit status. Fails when a sanitizer reports anything."""
        status = self.process.wait(2 * WAIT)
        for reader in self.readers:
            reader.join(WAIT)
        if re.search(REPORT.pattern, self.errors):
            raise AssertionError(self.errors)
        return status


def take(sock, count):
    data = b""
    while len(data) < count:
        got = sock.recv(count - len(data))
        if not got:
            raise AssertionError("the connection ended after %d of %d bytes" % (len(data), count))
        data += got
    return data


def reset(sock):
    """Close with a reset instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@not_on_windows("the example is written with POSIX calls")
class DropInForPoll(unittest.TestCase):
    """S2"""

    def start(self):
        return Program(self, "examples/s2_poll", "0")

    def test_receives_until_the_peer_hangs_up(self):
        program = self.start()
        with program.connect() as sock:
            for text in ("one", "two", "three"):
                sock.sendall(text.encode())
                program.line("received %d bytes: %s" % (len(text), text))
        program.line("hang-up")
        program.line("removed after 11 bytes")
        self.assertEqual(program.status(), 0)

    def test_level_tells_again_what_one_receive_left(self):
        program = self.start()
        with program.connect() as sock:
            sock.sendall(b"x" * 5000)  # a receive takes 1024 bytes; the end arrives with the data
        program.line("removed after 5000 bytes")
        self.assertEqual(program.status(), 0)
        self.assertEqual(program.count("received 1024 bytes: x+"), 4)

    def test_error_is_fetched_and_reported(self):
        program = self.start()
        sock = program.connect()
        sock.sendall(b"x")
        program.line("received 1 bytes: x")
        reset(sock)
        program.line("error: Connection reset by peer")
        program.line("removed after 1 bytes")
        self.assertEqual(program.status(), 0)


@not_on_windows("the example is written with POSIX calls")
class EdgeTriggeredUdp(unittest.TestCase):
    """S3"""

    def test_every_datagram_is_seen(self):
        count = 500
        program = Program(self, "examples/s3_udp_edge", "0", str(count))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", program.port))
            for i in range(count):
                sock.send(b"number %d" % i)
                if i % 50 == 49:  # no faster than the program reads: the system drops datagrams when the buffer is full
                    program.line("datagram %d: number %d" % (i + 1, i))
        program.line("removed after %d datagrams" % count)
        self.assertEqual(program.status(), 0)
        for i in range(count):
            self.assertEqual(program.count("datagram %d: number %d" % (i + 1, i)), 1)

    def test_empty_datagrams_count(self):
        program = Program(self, "examples/s3_udp_edge", "0", "2")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", program.port))
            sock.send(b"")
            sock.send(b"x")
        program.line("removed after 2 datagrams")
        self.assertEqual(program.status(), 0)


@not_on_windows("the example is written with POSIX calls")
class SixteenThreads(unittest.TestCase):
    """S4"""

    def test_a_hundred_clients(self):
        program = Program(self, "examples/s4_threads", "0", "100")

        def client(number):
            with program.connect() as sock:
                for turn in range(repeats(50)):
                    message = b"client %d turn %d" % (number, turn)
                    sock.sendall(message)
                    self.assertEqual(take(sock, len(message)), message)
                if number % 4 == 0:  # the rest of the stream arrives after the half-close
                    sock.sendall(b"last words")
                    sock.shutdown(socket.SHUT_WR)
                    self.assertEqual(take(sock, 10), b"last words")
                    self.assertEqual(sock.recv(1), b"")
                elif number % 4 == 1:
                    reset(sock)

        in_parallel([lambda n=n: client(n) for n in range(100)], 100)
        line = program.line(r"100 clients, (\d+) threads served, timer fired")
        self.assertGreater(int(line.group(1)), 1)
        self.assertEqual(program.status(), 0)
        self.assertEqual(program.errors, "")

    def test_more_than_fits_into_the_socket(self):
        program = Program(self, "examples/s4_threads", "0", "2")
        data = bytes(range(256)) * 16384  # 4 MiB, sent completely before the first read

        def client():
            with program.connect() as sock:
                got = []
                with beside(lambda: sock.sendall(data)):
                    got.append(take(sock, len(data)))
                self.assertTrue(got[0] == data)

        in_parallel([client, client], 2)
        program.line(r"2 clients, \d+ threads served, timer fired")
        self.assertEqual(program.status(), 0)


@not_on_windows("the example is written with POSIX calls")
class OrderlyExit(unittest.TestCase):
    """S5"""

    def start(self):
        return Program(self, "examples/s5_exit", "0")

    def test_signal_while_nobody_is_there(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            program = self.start()
            program.process.send_signal(number)
            program.line("1 contexts freed")
            self.assertEqual(program.status(), 0)
            self.assertEqual(program.count("a thread leaves"), 4)

    def test_the_key_changes_and_all_is_freed(self):
        program = self.start()
        socks = [program.connect() for _ in range(20)]
        for i, sock in enumerate(socks):
            self.addCleanup(sock.close)
            sock.sendall(b"name%d\n" % i)
        for i, sock in enumerate(socks):
            program.line("name%d is a member" % i)
            sock.sendall(b"hello %d\n" % i)
            program.line("name%d: hello %d" % (i, i))
        guests = [program.connect() for _ in range(3)]
        for sock in guests:
            self.addCleanup(sock.close)
        for sock in socks[:5]:
            sock.close()
        socks[5].sendall(b"still here\n")
        program.line("name5: still here")
        program.process.send_signal(signal.SIGTERM)
        # Each member was a guest before, under another key; between 0 and 3 of the last three were accepted.
        freed = int(program.line(r"(\d+) contexts freed").group(1))
        self.assertIn(freed, range(1 + 40, 1 + 40 + 3 + 1))
        self.assertEqual(program.status(), 0)
        self.assertEqual(program.count("a thread leaves"), 4)
        for sock in socks[5:]:  # closed by the program
            sock.settimeout(WAIT)
            self.assertEqual(sock.recv(1), b"")

    def test_a_thread_that_fails_tells_the_others(self):
        program = self.start()
        with program.connect() as good, program.connect() as bad:
            good.sendall(b"good\n")
            program.line("good is a member")
            bad.sendall(b"bad\n")
            program.line("bad is a member")
            bad.sendall(b"fail\n")
            program.line(r"\d+ contexts freed, a thread had failed")
            self.assertEqual(program.status(), 1)
            self.assertEqual(program.count("a thread leaves"), 4)


@not_on_windows("the example is written with POSIX calls")
class Embedded(unittest.TestCase):
    """embed.c: functions of C in Lua, lines of standard input posted into Lua by a thread, a clean shutdown"""

    def start(self, *args):
        return Program(self, "examples/embed_static", *args)

    def get(self, program, path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (program.port, path), timeout=WAIT) as response:
            return response.read().decode()

    def test_functions_lines_and_shutdown(self):
        program = self.start()
        for n in range(1, 4):
            self.assertEqual(self.get(program, "/"), "%d\n" % n)
        waiting = []
        with beside(lambda: waiting.append(self.get(program, "/line"))):  # waits for the line, or finds it there
            program.process.stdin.write("first\n")
            program.process.stdin.flush()
        self.assertEqual(waiting, ["first\n"])
        lines = ["line %d\n" % n for n in range(repeats(400))]
        program.process.stdin.write("".join(lines))
        program.process.stdin.flush()
        self.assertEqual(sorted(self.get(program, "/line") for _ in lines), sorted(lines))
        program.process.stdin.close()
        program.line("stopped after %d requests" % (4 + len(lines)))
        self.assertEqual(program.status(), 0)

    def test_a_site_that_does_not_hear_the_lines(self):
        with scratch(site_lua="local ls = require 'luaserve' local app = ls.app() "
                              "app:get('/', function() return 'file' end) ls.listen(0, app)") as where:
            program = self.start(os.path.join(where, "site.lua"))
            program.process.stdin.write("unheard\n")
            self.assertEqual(self.get(program, "/"), "file")
            program.process.stdin.close()
            program.line("stopped after 1 requests")
            self.assertEqual(program.status(), 0)
            self.assertNotIn("not posted", program.errors)


@not_on_windows("the example is written with POSIX calls")
class Baselines(unittest.TestCase):
    """S6 and S7"""

    def test_one_to_one(self):
        program = Program(self, "bench/s6_one_to_one", "0")
        with program.connect() as sock:
            for text in (b"one", b"two" * 1000):
                sock.sendall(text)
                self.assertEqual(take(sock, len(text)), text)
        program.line("acknowledged 3003 bytes")
        self.assertEqual(program.status(), 0)

    def test_pool(self):
        """The handlers of one server wait for four threads of the program."""
        program = Program(self, "examples/pool")

        def reverse(n):
            with urllib.request.urlopen("http://127.0.0.1:%d/reverse/text%d" % (program.port, n), timeout=WAIT) as response:
                self.assertEqual(response.read(), b"%dtxet\n" % n)

        in_parallel([lambda n=n: reverse(n) for n in range(8)])
        program.process.terminate()
        self.assertEqual(program.status(), 0)

    def test_thread_per_client(self):
        program = Program(self, "bench/s7_thread_per_client", "0")
        socks = [program.connect() for _ in range(100)]
        for i, sock in enumerate(socks):
            self.addCleanup(sock.close)
            sock.sendall(b"client %d" % i)
        for i, sock in reversed(list(enumerate(socks))):
            self.assertEqual(take(sock, len(b"client %d" % i)), b"client %d" % i)
        self.assertEqual(len(os.listdir("/proc/%d/task" % program.process.pid)) >= 101, True)
        reset(socks[0])
        socks[1].sendall(b"again")
        self.assertEqual(take(socks[1], 5), b"again")
        program.process.terminate()
        self.assertEqual(program.status(), -signal.SIGTERM)
