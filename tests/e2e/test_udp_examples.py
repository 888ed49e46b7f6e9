"""The examples of UDP and notifications, each started with the command line that its comment gives."""
import os
import re
import socket
import struct
import time

from harness import E2E, ROOT, WAIT, WINDOWS, in_parallel, read_text

EXAMPLES = os.path.join(ROOT, "examples")


class Example(E2E):
    def example(self, name, *args):
        return self.serve(read_text(os.path.join(EXAMPLES, name)), args=[str(arg) for arg in args], listeners=0)

    @staticmethod
    def port_of(line):
        return int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))

    def udp(self, port):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sock.close)
        sock.settimeout(WAIT)
        sock.connect(("127.0.0.1", port))
        return sock

    def tcp(self, port):
        sock = socket.create_connection(("127.0.0.1", port), WAIT)
        self.addCleanup(sock.close)
        return sock

    def ended(self, server):
        self.assertEqual(server.wait(), 0, server.log())


class Poll(Example):
    """S2"""

    def start(self):
        server = self.example("s2_poll.lua", 0)
        return server, self.port_of(server.wait_log("accepting on"))

    def test_in_then_hangup(self):
        server, port = self.start()
        client = self.tcp(port)
        client.sendall(b"first")
        server.wait_log("received 5 bytes: first")
        client.sendall(b"second")
        server.wait_log("received 6 bytes: second")
        with self.assertRaises(OSError):  # the listener is closed after one connection
            socket.create_connection(("127.0.0.1", port), WAIT).close()
        client.close()
        server.wait_log("closed")
        self.ended(server)

    def test_half_close_is_a_hangup(self):
        server, port = self.start()
        client = self.tcp(port)
        client.shutdown(socket.SHUT_WR)
        server.wait_log("closed")
        self.ended(server)

    def test_error_is_fetched(self):
        server, port = self.start()
        client = self.tcp(port)
        client.sendall(b"x")
        server.wait_log("received 1 bytes")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        # Wine 8 reports the error, and clears it before the receive can return it.
        server.wait_log("error: (connection reset|nil)" if WINDOWS else "error: connection reset")
        self.ended(server)


class UdpEdge(Example):
    """S3"""

    def test_every_datagram_is_received(self):
        server = self.example("s3_udp_edge.lua", 0, 100)  # so few that the receive buffer holds all of them
        client = self.udp(self.port_of(server.wait_log("bound to")))
        for _ in range(100):
            client.send(b"x" * 10)
        line = server.wait_log("received")
        self.assertIn("received 100 datagrams, 1000 bytes", line)
        self.assertLessEqual(int(re.search(r"(\d+) notifications", line).group(1)), 100)
        self.ended(server)


class Notify(Example):
    """S4"""

    def client(self, port, number, rounds):
        with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
            for i in range(rounds):
                message = b"%d/%d " % (number, i) * (1 + i * 50)
                sock.sendall(message)
                got = b""
                while len(got) < len(message):
                    part = sock.recv(65536)
                    if not part:
                        break
                    got += part
                if got != message:
                    return False
        return True

    def test_a_hundred_clients(self):
        server = self.example("s4_notify.lua", 0, 100)
        port = self.port_of(server.wait_log("accepting on"))
        last = self.tcp(port)
        self.assertEqual(in_parallel([lambda n=n: self.client(port, n, 10) for n in range(99)], 99), [True] * 99)
        server.wait_log("the first tick")  # a timer's packets come through the same completion port
        last.close()
        server.wait_log("served 100 clients, some ticks")
        self.ended(server)

    def test_a_peer_that_does_not_read_holds_up_nobody(self):
        server = self.example("s4_notify.lua", 0, 2)
        port = self.port_of(server.wait_log("accepting on"))
        stuck = socket.create_connection(("127.0.0.1", port), WAIT)
        self.addCleanup(stuck.close)
        stuck.setblocking(False)
        sent = 0
        with self.assertRaises(BlockingIOError):
            while True:
                sent += stuck.send(b"y" * 65536)
                time.sleep(0.001)
        self.assertTrue(self.client(port, 1, 5))
        stuck.settimeout(WAIT)
        back = 0
        while back < sent:
            back += len(stuck.recv(1 << 20))
        self.assertEqual(back, sent)
        stuck.close()
        self.ended(server)

    def test_exit_with_clients(self):
        server = self.example("s4_notify.lua", 0, 100)
        port = self.port_of(server.wait_log("accepting on"))
        client = self.tcp(port)
        client.sendall(b"hello")
        self.assertEqual(client.recv(10), b"hello")
        server.signal()
        server.wait_log("draining")
        client.close()
        self.ended(server)


class Exit(Example):
    """S5"""

    def start(self, count=4):
        server = self.example("s5_exit.lua", 0, count)
        server.wait_log(r"worker \d on", count=count)
        ports = [self.port_of(line) for line in server.logged(r"worker \d on")]
        return server, [self.udp(port) for port in ports]

    def ask(self, sock, data):
        sock.send(data)
        return sock.recv(1000)

    def left_in_order(self, server, count=4):
        server.wait_log("all have left")
        lines = server.logged(r"has left|all have left")
        self.assertEqual([int(n) for line in lines for n in re.findall(r"worker (\d)", line)], list(range(1, count + 1)))
        self.assertIn("all have left", lines[-1])
        self.ended(server)

    def test_each_that_leaves_tells_the_next(self):
        server, socks = self.start()
        for sock in socks:
            self.assertEqual(self.ask(sock, b"hi"), b"key 1: hi")
        server.signal()
        self.left_in_order(server)

    def test_rekey(self):
        server, socks = self.start()
        self.assertEqual(self.ask(socks[1], b"rekey"), b"key 2")
        self.assertEqual(self.ask(socks[1], b"a"), b"key 2: a")
        for n in range(3, 23):
            self.assertEqual(self.ask(socks[1], b"rekey"), b"key %d" % n)
        self.assertEqual(self.ask(socks[0], b"b"), b"key 1: b")
        server.signal()
        self.left_in_order(server)

    def test_one_that_fails_tells_the_others(self):
        server, socks = self.start()
        socks[2].send(b"fail")
        server.wait_log("worker 3 failed on request")
        self.left_in_order(server)


def query(name, qtype=1, number=7, flags=0x0100, qclass=1):
    labels = b"".join(bytes([len(part)]) + part for part in name.split(b".") if part)
    return struct.pack(">6H", number, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", qtype, qclass)


def dns_name(message, at):
    """The name at `at`, with its pointers followed (RFC 1035, section 4.1.4), and the offset of its end."""
    labels, after = [], None
    while message[at]:
        if message[at] >= 0xC0:
            after = after or at + 2
            at = struct.unpack(">H", message[at:at + 2])[0] & 0x3FFF
        else:
            labels.append(message[at + 1:at + 1 + message[at]])
            at += 1 + message[at]
    return b".".join(labels), after or at + 1


class Dns(Example):
    def setUp(self):
        self.dns = self.example("dns.lua", "127.0.0.1:0")
        self.sock = self.udp(self.port_of(self.dns.wait_log("listening on udp://")))

    def ask(self, packet):
        self.sock.send(packet)
        reply = self.sock.recv(4096)
        number, flags, questions, answers, authority, extra = struct.unpack(">6H", reply[:12])
        self.assertEqual((number, authority, extra), (struct.unpack(">H", packet[:2])[0], 0, 0))
        self.assertTrue(flags & 0x8000)
        return flags & 15, questions, answers, reply[12:]

    def silent(self, packet):
        self.sock.send(packet)
        self.assertEqual(self.ask(query(b"one.example.test"))[:3], (0, 1, 1))  # the next response belongs to another question

    def test_records(self):
        question = query(b"one.example.test")[12:]
        self.assertEqual(self.ask(query(b"one.example.test")),
                         (0, 1, 1, question + struct.pack(">3HLH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, 1)))
        self.assertEqual(self.ask(query(b"ONE.Example.TEST"))[:3], (0, 1, 1))
        self.assertEqual(self.ask(query(b"many.example.test"))[:3], (0, 1, 3))

    def test_no_such_name_or_type(self):
        self.assertEqual(self.ask(query(b"two.example.test")), (3, 1, 0, query(b"two.example.test")[12:]))
        self.assertEqual(self.ask(query(b""))[:3], (3, 1, 0))
        self.assertEqual(self.ask(query(b"one.example.test", qtype=28))[:3], (0, 1, 0))
        self.assertEqual(self.ask(query(b"one.example.test", qclass=3))[:3], (0, 1, 0))
        self.assertEqual(self.ask(query(b"one.example.test", flags=0x2800))[0], 4)

    def test_malformed_is_ignored(self):
        good = query(b"one.example.test")
        for n in range(len(good)):
            if n != 12:
                self.sock.send(good[:n])
        self.silent(good[:12])
        self.silent(query(b"one.example.test", flags=0x8100))
        self.silent(good[:12] + b"\xc0\x0c\0\1\0\1")
        self.silent(good[:12] + b"\x3f" + b"a" * 10)
        self.silent(good[:12] + (b"\x3f" + b"a" * 63) * 5 + b"\0\0\1\0\1")
        self.silent(struct.pack(">6H", 1, 0, 2, 0, 0, 0) + good[12:] * 2)
        self.silent(b"x" * 3000)

    def test_asked_as_tools_ask(self):
        """A query with the flags and the EDNS record (RFC 6891) of dig; the response is parsed to its last byte."""
        option = struct.pack(">2H8s", 10, 8, b"\x01\x23\x45\x67\x89\xab\xcd\xef")  # a cookie, RFC 7873
        edns = b"\0" + struct.pack(">2H2BHH", 41, 1232, 0, 0, 0, len(option)) + option
        packet = query(b"many.example.test", number=0xBEEF, flags=0x0120)  # recursion desired, authentic data
        self.sock.send(packet[:10] + struct.pack(">H", 1) + packet[12:] + edns)
        reply = self.sock.recv(4096)
        self.assertEqual(struct.unpack(">6H", reply[:12]), (0xBEEF, 0x8500, 1, 3, 0, 0))
        name, at = dns_name(reply, 12)
        self.assertEqual((name, struct.unpack(">2H", reply[at:at + 4])), (b"many.example.test", (1, 1)))
        at, found = at + 4, []
        for _ in range(3):
            name, at = dns_name(reply, at)
            kind, qclass, ttl, length = struct.unpack(">2HLH", reply[at:at + 10])
            self.assertEqual((name, kind, qclass, ttl, length), (b"many.example.test", 1, 1, 60, 4))
            found.append(socket.inet_ntoa(reply[at + 10:at + 14]))
            at += 14
        self.assertEqual(at, len(reply))
        self.assertEqual(sorted(found), ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
