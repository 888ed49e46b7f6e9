"""luaserve stress against ws and wss targets: echoes, idle connections, compression, scripts. The server is a raw one of a few
lines, which can break the protocol."""
import contextlib
import os
import ssl
import zlib

from harness import repeats, scratch
from harness.stress import Stress, head_of, stress
from harness.stress_sockets import Hub, Peer, WebSockets, echo, upgrade
from harness.tls import certificate
from harness.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, accept, close_payload, frame


class Echo(WebSockets):
    def test_messages_are_sent_and_compared(self):
        for sizes in ("1",), ("65536",), ("16384", "--pipeline", "8"):
            server = self.sockets(echo)
            ran = self.good(stress("-t", "1", "-c", "2", "-n", "20", "--size", *sizes, server.url), 20)
            self.assertEqual(ran.report["websocket"]["handshakes"], 2, ran)
            self.assertEqual(ran.report["websocket"]["failed"], 0, ran)
            self.assertEqual(ran.report["websocket"]["handshake_us"]["count"], 2, ran)
            self.assertEqual(ran.report["websocket"]["close_codes"], {}, ran)
            self.assertIn("WebSocket handshakes: 2, failed 0; mean", ran.out)

    def test_kinds_and_an_open_loop(self):
        kinds = set()

        def play(peer, _):
            while (got := peer.read()).opcode != CLOSE:
                kinds.add(got.opcode)
                peer.send(got.opcode, got.payload)
        server = self.sockets(play)
        self.good(stress("-n", "10", "--text", server.url), 10)
        self.assertEqual(kinds, {TEXT})
        kinds.clear()
        self.all_due(stress("-n", "10", "--binary", "-R", "1000", server.url), 10)
        self.assertEqual(kinds, {BINARY})

    def test_the_handshake_and_the_end(self):
        ends = []

        def play(peer, _):
            ends.append(peer.echo())
        server = self.sockets(play, "Sec-WebSocket-Protocol: b\r\n")
        ran = stress("-c", "1", "-n", "1", "-H", "Host: a.example", "-H", "X-A: 1", "--protocol", "a", "--protocol", "b",
                     server.url + "x?y=z")
        self.good(ran, 1)
        head = server.seen[0]
        self.assertTrue(head.startswith("GET /x?y=z HTTP/1.1\r\nHost: a.example\r\n"), head)
        self.assertIn("\r\nX-A: 1\r\n", head)
        self.assertIn("\r\nSec-WebSocket-Protocol: a, b\r\n", head)
        server.close()
        self.assertEqual(ends, [close_payload(1000)])

    def test_fragments_and_control_frames(self):
        pongs = []

        def play(peer, _):
            peer.send(PING, b"before")
            while (got := peer.read()).opcode != CLOSE:
                if got.opcode == PONG:
                    pongs.append(got.payload)
                    continue
                third = len(got.payload) // 3
                peer.send(TEXT, got.payload[:third], fin=False)
                peer.send(PING, b"between")
                peer.send(PONG, b"nobody asked")
                for byte in frame(CONTINUATION, got.payload[third:2 * third], fin=False, mask=False):
                    peer.conn.sendall(bytes([byte]))
                peer.send(CONTINUATION, b"", fin=False)
                peer.send(CONTINUATION, got.payload[2 * third:])
        server = self.sockets(play)
        self.good(stress("-c", "1", "-n", "5", "--size", "200", server.url), 5)
        server.close()
        self.assertEqual(sorted(pongs), [b"before"] + [b"between"] * 5)

    def test_numbered_messages(self):
        server = self.sockets(echo)
        ran = self.good(stress("-t", "1", "-c", "1", "--sends", "2", "--show", "--message", "ho", server.url), 2)
        self.assertIn("1. Thread 1 - ho\n2. Thread 1 - ho\n", ran.out)

    def test_a_new_connection_for_each_message(self):
        server = self.sockets(echo)
        ran = self.good(stress("-t", "1", "-c", "1", "-n", "5", "--no-keepalive", server.url), 5)
        self.assertGreaterEqual(ran.report["websocket"]["handshakes"], 5, ran)

    def test_wrong_echoes(self):
        for answer in ((TEXT, b"hellO"), (TEXT, b"hell"), (TEXT, b"hello!"), (BINARY, b"hello"), (TEXT, b"")):
            def play(peer, _, answer=answer):
                peer.read()
                peer.send(*answer)
                peer.read()
            ran = stress("-c", "1", "-n", "1", self.sockets(play).url)
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"answer"}, ran)
            self.assertIn("the echo differs from the message", ran.err)

    def test_broken_frames(self):
        for data, text in ((frame(TEXT, b"hello"), "mask"), (frame(CLOSE, b"x", mask=False), "invalid Close frame"),
                           (frame(TEXT, b"he", mask=False, fin=False) + frame(TEXT, b"llo", mask=False), "inside another")):
            def play(peer, _, data=data):
                peer.read()
                peer.conn.sendall(data)
                peer.read()
            ran = stress("-c", "1", "-n", "1", self.sockets(play).url)
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"answer"}, ran)
            self.assertIn(text, ran.err)

    def test_the_server_closes(self):
        def play(peer, number):
            got = peer.read()
            if number % 2 == 0:
                peer.send(CLOSE, close_payload(1013, "busy"))
                self.assertEqual(peer.read(), Frame(CLOSE, close_payload(1013), True, 0))
            else:
                peer.send(TEXT, got.payload)
                peer.echo()
        ran = stress("-t", "1", "-c", "1", "-n", "3", self.sockets(play).url)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1013": 1}, ran)
        self.assertEqual({k: v for k, v in ran.errors.items() if k != "total"}, {"read": 1}, ran)
        self.assertIn("Closed by the server: 1013 1", ran.out)
        self.assertIn("the server closed the WebSocket with the code 1013", ran.err)

    def test_the_server_ends_without_a_close_frame(self):
        def play(peer, number):
            got = peer.read()
            if number > 2:
                peer.send(TEXT, got.payload)
                peer.echo()
        ran = stress("-t", "1", "-c", "1", "-n", "3", self.sockets(play).url)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1006": 1}, ran)

    def test_refused_handshakes(self):
        for answer, text in ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ": the server answered 404 Not Found\n"),
                             (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 11\r\n\r\nno\xc3\xa9 key\r\n2\n",
                              ": the server answered 403 Forbidden: no\u00e9 key\n"),
                             (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 90\r\n\r\n" + b"x" * 79 + b"\xc3\xa9", ": " + 79 * "x" + "\n"),
                             (b"HTTP/1.1 403 \r\nContent-Length: 4\r\n\r\na\x1b[m", "answered 403\n"),
                             (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              b"Sec-WebSocket-Accept: " + accept("no").encode() + b"\r\n\r\n", "does not match the key"),
                             (b"SSH-2.0-x\r\n", ""), (b"", "closed the connection")):
            def handle(conn, _, answer=answer):
                if head_of(conn):
                    conn.sendall(answer)
            server = self.small(handle)
            ran = stress("-c", "1", "-n", "1", server.url.replace("http", "ws"))
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"handshake"}, ran)
            self.assertEqual(ran.report["websocket"]["handshakes"], 0, ran)
            self.assertGreaterEqual(ran.report["websocket"]["failed"], 1, ran)
            self.assertIn("WebSocket handshake: ", ran.err)
            self.assertIn(text, ran.err)

    def test_a_handshake_has_a_time_limit(self):
        def handle(conn, _):
            if head_of(conn):
                conn.recv(1)
        server = self.small(handle)
        ran = stress("-c", "1", "-n", "1", "--timeout", "200ms", server.url.replace("http", "ws"))
        self.assertEqual(set(ran.errors) - {"total"}, {"handshake"}, ran)
        self.assertIn("WebSocket handshake: ", ran.err)

    def test_frames_behind_the_handshake(self):
        """The server's first frames may be in the segment of its 101, which may follow an interim response."""
        def handle(conn, _):
            head = head_of(conn)
            if head:
                conn.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 ")
                conn.sendall(upgrade(head)[len("HTTP/1.1 "):] + frame(PING, b"early", mask=False))
                peer = Peer(conn, head)
                assert peer.read().payload == b"early"
                peer.echo()
        server = self.small(handle)
        self.good(stress("-c", "1", "-n", "3", server.url.replace("http", "ws")), 3)


class Idle(WebSockets):
    def test_hold(self):
        pongs, asked = [], []

        def play(peer, _):
            asked.append(peer.read().payload)
            peer.send(PING, b"there?")
            while (got := peer.read()).opcode != CLOSE:
                pongs.append(got.payload)
        server = self.sockets(play)
        ran = self.good(stress("--hold", "-c", "3", "-d", "500ms", "--subscribe", "join", server.url), 0)
        server.close()
        self.assertEqual(ran.totals["connects"], 3, ran)
        self.assertEqual((pongs, asked), ([b"there?"] * 3, [b"join"] * 3))
        self.good(stress("--hold", "-c", "3", "-d", "200ms", self.url), 0)  # HTTP
        self.good(stress("--hold", "-c", "3", "-d", "200ms", self.tcp), 0)

    def test_hold_counts_lost_connections(self):
        def play(peer, number):
            if number == 2:
                peer.send(CLOSE, close_payload(1001))
            peer.read()
        ran = stress("--hold", "-c", "1", "-d", "1s", self.sockets(play).url)
        self.assertEqual(ran.errors["read"], 1, ran)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1001": 1}, ran)

    def test_cycles(self):
        plays = []

        def play(peer, _):
            plays.append((peer.read(), peer.read()))
            peer.send(CLOSE, plays[-1][1].payload)
        server = self.sockets(play)
        ran = self.good(stress("-t", "1", "--cycles", "3", "-c", "2", "--subscribe", "join", server.url), 6)
        server.close()
        self.assertEqual(plays, [(Frame(TEXT, b"join", True, 0), Frame(CLOSE, close_payload(1000), True, 0))] * 6)
        self.assertEqual(ran.report["websocket"]["handshakes"], 6, ran)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1000": 6}, ran)


def inflated(got):
    """The message of a frame."""
    return zlib.decompressobj(-15).decompress(got.payload + b"\0\0\xff\xff") if got.rsv == 4 else got.payload


class Compressed(WebSockets):
    NO_TAKEOVER = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"

    def compressed(self, *args, **how):
        ran = stress("--compress", *args, **how)
        if "built without" in ran.err:
            self.skipTest("without zlib")
        return ran

    def test_messages_are_compressed_and_inflated(self):
        def play(peer, _):
            self.assertIn("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                          "client_no_context_takeover", peer.head)
            for number in range(100):
                got = peer.read()
                if got.opcode == CLOSE:
                    return
                self.assertEqual((got.rsv, len(inflated(got))), (4, 20000))
                packer = zlib.compressobj(wbits=-15)
                packed = (packer.compress(inflated(got)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
                if number % 2:
                    peer.send(TEXT, packed, rsv=4)
                else:
                    peer.send(TEXT, packed[:3], rsv=4, fin=False)
                    peer.send(CONTINUATION, packed[3:])
        server = self.sockets(play, self.NO_TAKEOVER)
        ran = self.compressed("-c", "1", "-n", "6", "--size", "20000", "--pipeline", "3", server.url)
        self.good(ran, 6)
        self.assertEqual(ran.report["websocket"]["deflate"], 1, ran)
        self.assertLess(ran.totals["bytes_in"], 60000, ran)
        self.assertLess(ran.totals["bytes_out"], 60000, ran)

    def test_which_messages_are_compressed(self):
        """Those of 256 bytes or more if the server agrees, also numbered ones and those of scripts."""
        words = "seven words of eight bytes, seven words "
        for extra, args, files, rsv in (
                (self.NO_TAKEOVER, ("--message", (words * 7)[:255]), None, 0),
                (self.NO_TAKEOVER, ("--message", (words * 7)[:256]), None, 4), ("", ("--message", words * 7), None, 0),
                (self.NO_TAKEOVER, ("--message", words * 7, "--sends", "1"), None, 4), (self.NO_TAKEOVER, ("script.lua",), words * 7, 4),
                (self.NO_TAKEOVER, ("script.lua",), "short", 0)):
            seen = []

            def play(peer, _, seen=seen):
                while (got := peer.read()).opcode != CLOSE:
                    seen.append((got.rsv, inflated(got).decode()))
                    peer.send(TEXT, inflated(got))
            server = self.sockets(play, extra)
            script = """return { requests = 1, scenario = function(vu)
              local ws = vu:ws()
              ws:send("%s")
              vu:check(ws:receive() == "%s", "echo")
            end }""" % (files, files)
            count = () if "--sends" in args or files else ("-n", "1")
            self.good(self.compressed("-c", "1", *count, *args, server.url, files={"script.lua": script}), 1)
            server.close()
            self.assertEqual([got for got, _ in seen], [rsv], seen)
            self.assertTrue(seen[0][1].endswith(files or args[1]), seen)

    def test_publications_are_compressed(self):
        hub, kinds = Hub(), set()

        def play(peer, number):
            read = peer.read

            def read_inflated():
                got = read()
                kinds.add(got.rsv)
                return got._replace(payload=inflated(got))
            peer.read = read_inflated
            hub(peer, number)
        server = self.sockets(play, self.NO_TAKEOVER)
        ran = self.compressed("--fanout", "-c", "3", "-n", "5", "--size", "1000", "--publish-path", "/pub", server.url)
        self.good(ran, 15)
        self.assertEqual(kinds, {0, 4})  # Close frames, messages

    def test_the_server_may_decline(self):
        ran = self.compressed("-c", "1", "-n", "2", "--size", "1000", self.sockets(echo).url)
        self.good(ran, 2)
        self.assertEqual(ran.report["websocket"]["deflate"], 0, ran)

    def test_data_that_does_not_inflate(self):
        def play(peer, _):
            peer.read()
            peer.send(TEXT, b"\xff\xff\xff", rsv=4)
            peer.read()
        server = self.sockets(play, "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n")
        ran = stress("-c", "1", "-n", "1", "--compress", server.url)
        if "built without" in ran.err:
            self.skipTest("without zlib")
        self.assertIn("cannot be inflated", ran.err)
        self.assertEqual(ran.errors["answer"], 1, ran)


class Scripts(WebSockets):
    def script(self, text, server, *args):
        return stress("script.lua", *args, files={"script.lua": text.replace("@URL@", server.url)})

    def test_a_chat_user(self):
        server = self.sockets(echo, "Sec-WebSocket-Protocol: chat\r\n")
        ran = self.script("""
            return { target = "@URL@", connections = 2, requests = 6, scenario = function(vu)
              local ws = assert(vu:ws("/room?id=" .. vu.id, { protocols = { "other", "chat" }, headers = { ["X-A"] = "b" } }))
              vu:check(ws == vu:ws(), "the same")
              vu:check(ws.protocol == "chat" and ws.code == nil, "fields")
              ws:send("€") ws:send("\\xff", "binary") ws:send(12)
              local data, kind = ws:receive()
              vu:check(data == "€" and kind == "text", "text")
              data, kind = ws:receive()
              vu:check(data == "\\xff" and kind == "binary", "binary")
              for data in ws:messages() do vu:check(data == "12", "number") break end
              vu:check(ws:close(4000, "bye"), "close")
              local _, message, code = ws:receive()
              vu:check(message == "closed" and code == "ECLOSED" and ws.code == 4000, "closed")
              vu:check(select(3, ws:send("x")) == "ECLOSED" and select(3, vu:ws()) == "ECLOSED", "over")
            end }""", server)
        self.good(ran, 6)
        self.assertEqual(set(ran.checks.values()), {(6, 0)}, ran)
        self.assertEqual(len(ran.checks), 8, ran)
        self.assertIn("GET /room?id=1 HTTP/1.1", server.seen[0] + server.seen[1])
        self.assertIn("\r\nX-A: b\r\n", server.seen[0])
        self.assertEqual(ran.report["websocket"]["close_codes"], {"4000": 6}, ran)

    def test_a_connection_that_stays_open(self):
        server = self.sockets(echo)
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 5, scenario = function(vu)
              local ws = vu:ws()
              ws:send("x")
              vu:check(ws:receive() == "x", "echo")
            end }""", server)
        self.good(ran, 5)
        self.assertEqual(ran.report["websocket"]["handshakes"], 1, ran)

    def test_on_an_http_target(self):
        server = self.sockets(echo)
        server.url = server.url.replace("ws", "http")
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 2, scenario = function(vu)
              local ws = assert(vu:ws("/a"))
              ws:send("x")
              vu:check(ws:receive() == "x", "echo")
            end }""", server)
        self.good(ran, 2)
        self.assertTrue(server.seen[0].startswith("GET /a HTTP/1.1"), server.seen)

    def test_failures(self):
        def play(peer, _):
            peer.read()
            peer.send(CLOSE, close_payload(1008))
            peer.read()
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 1, scenario = function(vu)
              local ws = vu:ws()
              ws:send("x")
              vu:check(select(3, ws:receive()) == "ECLOSED" and ws.code == 1008, "closed")
            end }""", self.sockets(play))
        self.good(ran, 1)
        refused = self.small(lambda conn, _: head_of(conn) and conn.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"))
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 1, scenario = function(vu)
              local ws, message, code = vu:ws()
              vu:check(ws == nil and code == "EPROTO", message)
            end }""", refused)
        self.assertEqual(ran.checks, {"the server did not accept the handshake of WebSocket": (1, 0)}, ran)
        self.assertEqual(ran.report["websocket"]["failed"], 1, ran)

    def test_waits_for_messages_at_the_end(self):
        """The answer to a message is missed, also that to a Close frame; a message that the server may push is not."""
        def play(peer, _):
            while (got := peer.read()).payload != b"end":
                if got.opcode == TEXT and got.payload != b"hush":
                    peer.send(TEXT, got.payload)
                if got.payload == b"news":
                    peer.send(TEXT, b"pushed")
        ran = self.script("""
            return { target = "@URL@", connections = 6, duration = "2s", thresholds = { "errors == 0" }, scenario = function(vu)
              local ws = vu:ws()
              if vu.id == 6 then ws:receive() end
              ws:send("news")
              vu:check(ws:receive() == "news" and ws:receive() == "pushed", "pushed")
              if vu.iteration == 1 then return
              elseif vu.id == 1 then ws:send("hush") ws:receive()
              elseif vu.id == 2 then ws:send("hush") for _ in ws:messages() do end
              elseif vu.id == 3 then ws:close()
              elseif vu.id == 4 then ws:receive()
              else for _ in ws:messages() do end end
            end }""", self.sockets(play))
        self.assertEqual((ran.status, ran.errors, ran.totals["in_flight"]), (99, {"total": 3, "unanswered": 3}, 3), ran)
        self.assertEqual((ran.totals["requests"], ran.checks), (5, {"pushed": (10, 0)}), ran)

    def test_wrong_calls(self):
        server = self.sockets(echo)
        for call, text in (('vu:ws("x")', "a path begins with /"), ('vu:ws("ws://other.example/")', "is not on the target"),
                           ('vu:ws("/", { headers = { ["a b"] = "c" } })', "invalid header"),
                           ('vu:ws("/", { protocols = { "a b" } })', "a list of tokens"),
                           ('vu:ws():send("\\xff")', "text must be UTF-8"), ('vu:ws():close(1005)', "a code is 1000"),
                           ('vu:ws() sock:send("x")', "the connection is a WebSocket"),
                           ('vu:ws():close(1000, ("x"):rep(124))', "at most 123 bytes")):
            ran = self.script("""return { target = "@URL@", connections = 1, requests = 1,
                                          scenario = function(vu, sock) """ + call + " end }", server)
            self.assertEqual(ran.errors["script"], 1, ran)
            self.assertIn(text, ran.err)
        ran = self.script('return { target = "%s", connections = 1, requests = 1, scenario = function(vu) vu:ws() end }' %
                          self.tcp, server)
        self.assertIn("vu:ws needs a ws, wss, http or https target", ran.err)



class Encrypted(WebSockets):
    def test_wss(self):
        """An echo and a fan-out over TLS."""
        with scratch() as folder:
            certificate(folder, "server")
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
            hub = Hub()

            def handle(conn, number):
                with tls.wrap_socket(conn, server_side=True) as wrapped:  # the probe makes no handshake: an OSError
                    head = head_of(wrapped)
                    if head is None:
                        return
                    wrapped.sendall(upgrade(head))
                    peer = Peer(wrapped, head)
                    with contextlib.suppress(EOFError):
                        peer.echo() if peer.path == "/echo" else hub(peer, number)
            server = self.small(handle)
            url = "wss://127.0.0.1:%d" % server.port
            ran = self.good(stress("-t", "1", "-c", "2", "-n", "10", "--size", "20000", "--insecure", url + "/echo"), 10)
            self.assertEqual(ran.report["websocket"]["handshakes"], 2, ran)
            self.assertEqual(ran.report["tls"]["full"] + ran.report["tls"]["resumed"], 2, ran)
            self.good(stress("--fanout", "-c", "3", "-n", "10", "--publish-path", "/pub", "--insecure", url + "/news"), 30)
            ran = stress("-c", "1", "-n", "1", url + "/echo")
            self.assertEqual(set(ran.errors) - {"total"}, {"tls"}, ran)


class OnLuaserve(Stress):
    """The same against the server of the project."""

    def setUp(self):
        self.ws = self.url.replace("http", "ws")

    def test_echoes(self):
        for how in (), ("--size", "70000"), ("--binary", "--pipeline", "8"), ("--no-keepalive",):
            ran = self.good(stress("-c", "4", "-n", "100", *how, self.ws + "/echo"), 100)
            self.assertEqual(ran.report["websocket"]["failed"], 0, ran)

    def test_fan_out(self):
        for target, how in ((self.ws + "/news", ()), (self.url + "/events", ("--sse",))):
            ran = self.good(stress("--fanout", "-c", "20", "--publishers", "2", "-n", "50", "--publish-path", "/publish",
                                   "--threshold", "lost == 0", *how, target), 1000)
            self.assertEqual([ran.report["fanout"][name] for name in ("lost", "reordered", "duplicated")], [0, 0, 0], ran)

    def test_no_delivery_is_faster_than_light(self):
        """Messages that arrive while others are handled have the time of their arrival."""
        for how in ("--pipeline", "1024", "-n", str(repeats(50000))), ("-R", "100000", "-n", str(repeats(20000))):
            ran = stress("--fanout", "-t", "2", "-c", "4", "--publish-path", "/publish", *how, self.ws + "/news")
            self.assertEqual(ran.errors, {}, ran)
            self.assertGreater(ran.report["latency_us"]["uncorrected"]["min"], 0, ran)

    def test_connections_come_and_go(self):
        ran = self.good(stress("--cycles", "5", "-c", "10", self.ws + "/news"), 50)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1000": 50}, ran)
        self.good(stress("--hold", "-c", "10", "-d", "300ms", self.ws + "/news"), 0)
