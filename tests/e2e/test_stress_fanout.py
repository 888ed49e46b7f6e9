"""luaserve stress --fanout: messages from publishers to subscribers, over WebSocket and server-sent events. The servers are raw
ones of a few lines, which lose, change and repeat messages."""
import re
import socket
import threading
import time

from harness import in_parallel
from harness.stress import OK, head_of, stress
from harness.stress_sockets import Hub, WebSockets
from harness.websocket import CLOSE, close_payload


class Fanout(WebSockets):
    def test_deliveries_are_counted(self):
        for how in (), ("-R", "500"), ("--pipeline", "4"), ("--binary", "--size", "48"), ("--size", "70000"), ("-t", "1"):
            server = self.sockets(Hub())
            ran = stress("--fanout", "-c", "5", "-n", "20", "--publish-path", "/pub", *how, server.url + "sub")
            if "-R" in how and ran.status == 1:  # the machine stalled
                continue
            self.good(ran, 100)
            fanout = ran.report["fanout"]
            self.assertEqual({key: fanout[key] for key in ("published", "expected", "delivered", "lost", "reordered", "duplicated")},
                             {"published": 20, "expected": 100, "delivered": 100, "lost": 0, "reordered": 0,
                              "duplicated": 0}, ran)
            self.assertEqual(ran.report["latency_us"]["uncorrected"]["count"], 100, ran)
            self.assertIn("Delivered: 100 of 100, lost 0, reordered 0, duplicated 0\n", ran.out)
            self.assertEqual(ran.report["websocket"]["handshakes"], 6, ran)

    def test_lost_messages(self):
        server = self.sockets(Hub(lambda number, data: [data] if number % 4 else []))
        ran = stress("--fanout", "-c", "3", "-n", "8", "--pipeline", "8", "--timeout", "3s", "--publish-path", "/pub",
                     "--threshold", "lost == 0", "--threshold", "lost < 50%", server.url)
        self.assertEqual(ran.status, 99, ran)
        self.assertEqual(ran.report["fanout"]["expected"], 24, ran)
        self.assertEqual(ran.report["fanout"]["lost"], 6, ran)
        self.assertEqual(ran.report["fanout"]["delivered"], 18, ran)
        self.assertEqual([(t["metric"], t["met"], t["actual"]) for t in ran.report["thresholds"]],
                         [("lost", False, 6), ("lost", True, 25)])

    def test_reordered_and_duplicated_messages(self):
        held = []

        def change(number, data):
            if number == 2:
                held.append(data)
                return []
            return [data, held.pop(), data] if number == 3 else [data]
        server = self.sockets(Hub(change))
        ran = stress("--fanout", "-c", "2", "-n", "5", "--pipeline", "5", "--publish-path", "/pub", "--threshold",
                     "reordered == 2", "--threshold", "duplicated == 2", server.url)
        self.good(ran, 10)
        self.assertEqual([ran.report["fanout"][key] for key in ("lost", "reordered", "duplicated")], [0, 2, 2], ran)

    def test_changed_and_foreign_messages(self):
        def change(number, data):
            if number == 1:
                return [b"hello", b"LS" + b"0" * 46 + data[48:], data]
            return [data[:-1] + b"!"] if number == 2 else [data]
        server = self.sockets(Hub(change))
        ran = stress("--fanout", "-c", "1", "-n", "3", "--pipeline", "3", "--timeout", "3s", "--publish-path", "/pub", server.url)
        self.assertEqual([ran.report["fanout"][key] for key in ("delivered", "lost", "ignored")], [2, 1, 2], ran)
        self.assertEqual(ran.errors["answer"], 1, ran)
        self.assertIn("a delivery differs from the message", ran.err)

    def test_a_closed_loop_continues_after_a_loss(self):
        server = self.sockets(Hub(lambda number, data: [data] if number != 2 else []))
        ran = stress("--fanout", "-c", "2", "-n", "4", "--timeout", "3s", "--publish-path", "/pub", server.url)
        self.assertEqual([ran.report["fanout"][key] for key in ("published", "delivered", "lost")], [4, 6, 2], ran)
        self.assertEqual(ran.errors["timeout"], 1, ran)

    def test_topics_and_the_first_message(self):
        hub = Hub(join=True)
        server = self.sockets(hub)
        ran = stress("--fanout", "-c", "4", "--publishers", "3", "--topics", "2", "-n", "6", "--publish-path",
                     "/pub/{topic}", "--subscribe", "join {topic}, {topic}", server.url + "room/{topic}")
        self.good(ran)
        self.assertEqual(sorted(hub.asked), ["join 0, 0"] * 2 + ["join 1, 1"] * 2)
        self.assertEqual(sorted(hub.paths), ["/pub/0", "/pub/0", "/pub/1", "/room/0", "/room/0", "/room/1", "/room/1"])
        self.assertEqual(ran.report["fanout"]["expected"], ran.totals["requests"], ran)
        self.assertEqual(ran.totals["requests"], 12, ran)
        self.assertGreaterEqual(ran.report["fanout"]["ignored"], 1, ran)  # of the other topic: this hub has one

    def test_probes_before_the_run_are_not_counted(self):
        hub = Hub()

        def play(peer, number):
            while peer.path == "/room/1" and hub.probes < 6:
                threading.Event().wait(0.01)
            hub(peer, number)
        ran = stress("--fanout", "-c", "2", "--publishers", "2", "--topics", "2", "-n", "2", "--publish-path", "/pub/{topic}",
                     self.sockets(play).url + "room/{topic}")
        self.good(ran, 2)
        self.assertLessEqual(ran.report["fanout"]["ignored"], 4, ran)  # two messages, and the last probes

    def test_a_run_with_a_number_ends_with_the_last_delivery(self):
        server = self.sockets(Hub())
        for threads in "1", "2":
            ran = stress("--fanout", "-t", threads, "-c", "2", "-n", "1", "-R", "10", "--publish-path", "/pub", server.url)
            self.all_due(ran, 2)  # at the start of the run
            self.assertEqual(round(ran.totals["duration_s"] * 1e9), round(ran.report["latency_us"]["corrected"]["max"] * 1e3), ran)

    def test_stages(self):
        """They are rates: all subscribers stay."""
        server = self.sockets(Hub())
        ran = stress("--fanout", "-c", "4", "--publishers", "3", "--stages", "300ms:60,300ms:60", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["connects"], 7, ran)
        self.assertEqual(ran.report["fanout"]["expected"], 4 * ran.report["fanout"]["published"], ran)
        self.assertEqual(ran.report["fanout"]["lost"], 0, ran)

    def test_stalled_subscribers(self):
        """They do not read, and nothing is expected of them."""
        server = self.sockets(Hub())
        ran = stress("--fanout", "-c", "4", "--stalled", "1", "-n", "10", "--publish-path", "/pub", server.url)
        self.good(ran, 30)
        self.assertEqual(ran.report["fanout"]["expected"], 30, ran)
        self.assertIn("to 4 subscribers, 1 of them stalled", ran.out)

    def test_nothing_is_published(self):
        def play(peer, _):
            while peer.read().opcode != CLOSE:
                pass
        ran = stress("--fanout", "-c", "2", "-d", "1s", "--timeout", "300ms", self.sockets(play).url)
        self.assertEqual(ran.status, 1, ran)
        self.assertEqual(ran.errors["subscribe"], 2, ran)
        self.assertLess(ran.totals["duration_s"], 1, ran)  # it did not begin
        self.assertLess(ran.report["series"][-1]["to_s"], 1, ran)
        self.assertIn("a subscriber received no message within the time limit", ran.err)

    def test_an_event_that_never_ends(self):
        """It is an error after 1 MiB, and not a wait for --timeout: before the run, which does not begin, and in it."""
        for before in (0, 1):
            news, posted = threading.Condition(), []

            def handle(conn, _, before=before, posted=posted, news=news):
                while head := head_of(conn):
                    if head.startswith(b"POST"):
                        body = head.partition(b"\r\n\r\n")[2]
                        while len(body) < 64:
                            body += conn.recv(64)
                        with news:
                            posted.append(body)
                            news.notify_all()
                        conn.sendall(OK)
                        continue
                    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    if before:
                        with news:
                            news.wait_for(lambda: posted, 10)
                            conn.sendall(b"data: " + posted[-1] + b"\n\n")
                    conn.sendall(b"data: ")
                    while True:
                        conn.sendall(b"x" * 65536)

            began = time.monotonic()
            ran = stress("--fanout", "--sse", "-c", "2", "-d", "300ms", "--timeout", "60s", "--publish-path", "/publish",
                         self.small(handle).url)
            self.assertLess(time.monotonic() - began, 50, ran)
            self.assertGreaterEqual(ran.errors["answer"], 2, ran)
            self.assertIn("an event is more than 1 MiB longer than the message", ran.err)

    def test_the_server_closes_a_subscriber(self):
        hub = Hub()

        def play(peer, number):
            if hub.serves_until_published(peer):
                peer.send(CLOSE, close_payload(1013))
                peer.read()
            else:
                hub(peer, number)
        ran = stress("--fanout", "-c", "3", "-n", "4", "-R", "50", "--timeout", "3s", "--publish-path", "/pub",
                     self.sockets(play).url + "sub")
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1013": 1}, ran)
        self.assertGreaterEqual(ran.report["fanout"]["lost"], 1, ran)
        self.assertEqual(ran.errors["read"], 1, ran)

    def test_a_subscriber_that_cannot_come_back(self):
        """Its connects fail; the publisher sends all its messages."""
        hub = Hub()

        def play(peer, number):
            if hub.serves_until_published(peer):
                server.ended = True
                server.threads[0].join()
                server.sock.close()
            else:
                hub(peer, number)
        server = self.sockets(play)
        ran = stress("--fanout", "-t", "1", "-c", "2", "-n", "10", "-R", "10", "--timeout", "3s", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertGreaterEqual(ran.errors["connect"], 1, ran)
        self.assertEqual(ran.report["fanout"]["published"], 10, ran)

    def test_the_server_ends(self):
        """Without connections nothing is waited for."""
        hub, peers = Hub(), []

        def play(peer, number):
            peers.append(peer)
            if peer.path != "/sub":
                hub(peer, number)
                return
            hub.add(peer)
            while hub.count == 0:
                threading.Event().wait(0.01)
            server.ended = True
            server.threads[0].join()
            server.sock.close()
            for each in peers:
                each.conn.shutdown(socket.SHUT_RDWR)
        server = self.sockets(play)
        ran = stress("--fanout", "-t", "1", "-c", "1", "-n", "60", "-R", "20", "--timeout", "10m", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertGreaterEqual(ran.errors.get("connect", 0), 1, ran)


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


class Sse(WebSockets):
    def events(self, head, form, closes=lambda count: False):
        """A server whose GET is a stream of the events that are POSTed. form(data) -> bytes. It closes the connection of the
        POST with the number `count` if closes(count): it does not read what follows."""
        lock, streams, posts = threading.Lock(), [], []

        def handle(conn, _):
            rest = b""
            while True:
                while b"\r\n\r\n" not in rest:
                    got = conn.recv(65536)
                    if not got:
                        return
                    rest += got
                asked, rest = rest.split(b"\r\n\r\n", 1)
                if asked.startswith(b"GET"):
                    assert b"\r\nAccept: text/event-stream" in asked
                    conn.sendall(head)
                    with lock:
                        streams.append(conn)
                    try:
                        conn.recv(1)
                    finally:
                        with lock:
                            streams.remove(conn)
                    return
                size = int(re.search(rb"Content-Length: (\d+)", asked)[1])
                while len(rest) < size:
                    rest += conn.recv(65536)
                data, rest = rest[:size], rest[size:]
                with lock:
                    posts.append(data)
                    last = closes(len(posts))
                    for stream in streams:
                        for part in form(data):
                            stream.sendall(part)
                conn.sendall(b"HTTP/1.1 204 No Content\r\n%s\r\n" % (b"Connection: close\r\n" if last else b""))
                if last:
                    conn.shutdown(socket.SHUT_WR)
                    while conn.recv(65536):  # so that no reset destroys the response
                        pass
                    return
        return self.small(handle)

    def test_events(self):
        def plain(data):
            return [b": comment\nevent: x\nid: 1\ndata: " + data + b"\n\n"]

        def chunks(data):
            for part in (b"da", b"ta:" + data[:10], data[10:] + b"\r", b"\n\r\n", b"retry: 5\n\n"):
                yield b"%x\r\n%s\r\n" % (len(part), part)
        for head, form in ((EVENTS + b"\r\n", plain), (EVENTS + b"Transfer-Encoding: chunked\r\n\r\n", chunks)):
            server = self.events(head, form)
            ran = stress("--fanout", "--sse", "-c", "3", "-n", "10", "--publish-path", "/pub", server.url + "events")
            self.good(ran, 30)
            self.assertEqual(ran.report["fanout"]["lost"], 0, ran)
            self.assertEqual(ran.report["fanout"]["sse"], True, ran)
            self.assertEqual(ran.report["status"], {"204": 10}, ran)  # without the probes before the run
            self.assertIsNone(ran.report["websocket"], ran)

    def test_messages_that_are_sent_again(self):
        """The server closes the connection of a publisher with requests in flight: they are sent again, and keep their
        numbers."""
        for how in (), ("-R", "200"):
            server = self.events(EVENTS + b"\r\n", lambda data: [b"data: " + data + b"\n\n"], lambda count: count % 3 == 0)
            ran = stress("--fanout", "--sse", "-c", "2", "-n", "20", "--pipeline", "8", "--publish-path", "/pub", *how,
                         server.url + "events")
            if "-R" in how and ran.status == 1:  # the machine stalled
                continue
            self.good(ran, 40)
            self.assertEqual([ran.report["fanout"][name] for name in ("published", "expected", "lost", "reordered", "duplicated")],
                             [20, 40, 0, 0, 0], ran)

    def test_responses_that_are_no_streams(self):
        def ran(answer):
            def handle(conn, _):
                while head := head_of(conn):
                    if head.startswith(b"GET"):
                        conn.sendall(answer)
                        return
                    conn.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")  # to the publisher
            url = self.small(handle).url
            return lambda: stress("--fanout", "--sse", "-c", "1", "-n", "1", "--timeout", "3s", url)
        texts = {b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n": "needs a response with status 200",
                 OK: "of the type text/event-stream",
                 EVENTS + b"Content-Length: 5\r\n\r\n": "has a Content-Length"}
        for ran, text in zip(in_parallel([ran(answer) for answer in texts]), texts.values()):
            self.assertEqual(ran.status, 1, ran)
            self.assertIn(text, ran.err)
