"""WebSocket peers that keep the rules without mercy: messages that never end, floods of fragments, messages and pings,
readers that do not read, connections that vanish. Each test ends with the proof that the server serves."""
import contextlib
import time

from harness import SANITIZER, in_parallel, repeats
from harness.websocket import BINARY, CONTINUATION, PING, PONG, TEXT, WebSocket, frame
from harness.websocket_site import MIB, Hostile


class Time(Hostile):
    def test_a_message_that_never_ends(self):
        for ws in [self.open(path).send_raw(begun) for path in ("/quick", "/quick/event") for begun in (
                frame(TEXT, b"begun", length=500),      # nothing more of the frame
                b"\x81",                                # nothing more of the head
                frame(TEXT, b"begun", fin=False))]:     # the last fragment is missing
            self.is_closed(ws, 1008, "too long")

    def test_a_split_control_frame_is_not_a_message(self):
        """The time of a message begins with its first byte, not with that of a ping; and it ends with the message."""
        opened = [self.open(path) for path in ("/quick", "/quick/event")]
        for ws in opened:
            for sent in (frame(TEXT, b"?"), frame(PING, b"?")):
                ws.send_raw(sent[:3])
                self.assertEqual(self.get("/").text, "served\n")  # the server has received it
                ws.send_raw(sent[3:])
                self.assertEqual(ws.read_frame().payload, b"?")
        time.sleep(2)
        for ws in opened:
            self.assertTrue(ws.conn.silent(0.01))
            self.assertEqual(ws.send("still open").receive(), "still open")
            ws.close()
            self.end()


class Floods(Hostile):
    KEY = b"\x11\x22\x33\x44"
    # ThreadSanitizer records a frame for each yield of a coroutine, at most 65,536 in a thread: then it crashes.
    MESSAGES = 10000 if SANITIZER == "tsan" else repeats(1000000)

    def memory(self):
        return 0 if SANITIZER else self.server.rss()

    def test_one_byte_fragments_by_the_million(self):
        count = repeats(MIB - 2)  # and the first and the last make the limit
        before = self.memory()
        for ws in self.both():
            ws.send_frame(BINARY, b"x", fin=False)
            batch = frame(CONTINUATION, b"x", fin=False, mask=self.KEY) * 1024
            for n in range(0, count, 1024):
                ws.send_raw(batch[:7 * min(1024, count - n)])
            ws.send_frame(CONTINUATION, b"x")
            self.assertEqual(ws.receive(), b"x" * (count + 2))
            ws.close()
            self.end()
        self.assertLess(self.memory() - before, 24 * MIB)

    def test_one_byte_messages_by_the_million(self):
        count = self.MESSAGES
        before = self.memory()
        ws = self.open("/count")
        batch = frame(TEXT, b"x", mask=self.KEY) * 1000
        for _ in range(count // 1000):
            ws.send_raw(batch)
        self.assertEqual(ws.send("count").receive(), "%d %d" % (count, count))
        self.assertLess(self.memory() - before, 24 * MIB)

    def test_empty_fragments_without_end(self):
        before = self.memory()
        batch = frame(CONTINUATION, fin=False, mask=self.KEY) * 10000

        def flood(path):
            ws = self.open(path).send_frame(TEXT, fin=False)
            while ws.try_send(batch):
                pass
        for _ in in_parallel([lambda path=path: flood(path) for path in ("/quick", "/quick/event")]):
            self.assertEqual(self.end().split()[0], "1008")
        self.assertLess(self.memory() - before, 16 * MIB)

    def test_pings_without_reading(self):
        """The queue of pongs is bounded: the server reads on, or waits; it does not collect."""
        before = self.memory()
        for path in ("/echo", "/echo/event", "/deaf"):
            with WebSocket(self.server.at(), path, rcvbuf=4096, timeout=1) as ws:
                batch = frame(PING, b"p" * 125, mask=self.KEY) * 500
                with contextlib.suppress(TimeoutError):  # it waits
                    for _ in range(repeats(1000)):  # 64 MiB
                        ws.send_raw(batch)
                self.assertLess(self.memory() - before, 24 * MIB)
            if path != "/deaf":
                self.assertEqual(self.end(), "1006 ")

    def test_messages_without_reading(self):
        """The echo waits for the reader, and then the server for the echo."""
        before = self.memory()
        for ws in self.both():
            ws.conn.sock.settimeout(1)
            with self.assertRaises(TimeoutError):
                for _ in range(10000):
                    ws.send(b"x" * 65536)
            self.assertLess(self.memory() - before, 24 * MIB)
            self.assertEqual(self.get("/").text, "served\n")
            ws.conn.reset()
            self.assertEqual(self.end(), "1006 ")

    def test_a_reader_that_never_reads(self):
        before = self.memory()
        stalled = [self.open("/flood", rcvbuf=4096) for _ in range(20)]
        self.assertEqual(self.get("/").text, "served\n")
        for ws in stalled:
            ws.conn.take(2)  # it has begun
        self.assertLess(self.memory() - before, 64 * MIB)
        for ws in stalled:
            ws.conn.reset()
        for _ in stalled:
            self.assertEqual(self.end(), "1006 ")


class Ends(Hostile):
    def test_half_close(self):
        for sent in (b"", frame(TEXT, b"whole"), frame(TEXT, b"cut", length=10), frame(TEXT, b"begun", fin=False), b"\x81"):
            for ws in self.both():
                with self.subTest(sent):
                    ws.send_raw(sent)
                    ws.conn.half_close()
                    ws.lost()
                    self.assertEqual(self.end(), "1006 ")

    def test_resets(self):
        held = self.quiet_fds()

        def client(number):
            for n in range(repeats(50)):
                with WebSocket(self.server.at(), "/any" if n % 2 else "/any/event") as ws:
                    ws.send_raw((b"", frame(TEXT, b"x" * 1000), frame(TEXT, b"x", fin=False), frame(BINARY, b"x", length=70000),
                                 frame(TEXT, b"x" * 100000), frame(PING, b"?"))[(n + number) % 6])
                    ws.conn.reset()
            return True

        in_parallel([lambda number=number: client(number) for number in range(8)], 8)
        for _ in range(8 * repeats(50)):
            self.assertEqual(self.end(), "1006 ")
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")


class Topics(Hostile):
    def test_subscribers_that_do_not_read(self):
        """They are closed, or miss messages, and the others get everything; the memory is bounded."""
        readers = [self.open("/news") for _ in range(4)] + [self.open("/news/skip", deflate=True)]
        stalled = [self.open("/news", rcvbuf=4096) for _ in range(4)]
        skipping = self.open("/news/skip", rcvbuf=4096)
        for ws in readers + stalled + [skipping]:
            self.assertEqual(ws.receive(), "subscribed")
        before = 0 if SANITIZER else self.server.rss()
        block = b"n" * 65536
        for n in range(200):  # 12.8 MiB to each
            got = self.ask("POST", "/news", body=b"%d " % n + block)
            self.assertEqual(got.status, 200)
            for ws in readers:
                self.assertTrue(ws.receive().startswith(b"%d n" % n))
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 32 * MIB)
        for _ in stalled:
            self.assertRegex(self.end(), "1006 ")  # they have not answered the Close frame either
        skipping.send_frame(PING, b"alive")
        seen = [skipping.read_frame()]
        while seen[-1].opcode != PONG:
            seen.append(skipping.read_frame())
        numbers = [int(got.payload.split()[0]) for got in seen[:-1]]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertLess(len(numbers), 200)
        stats = self.get("/stats").text.split()
        self.assertEqual((stats[0], int(stats[1]) > 0), ("4", True), stats)
        for ws in [*readers, skipping]:
            ws.conn.close()
        for _ in range(6):
            self.assertEqual(self.end(), "1006 ")
