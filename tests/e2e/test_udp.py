"""ls.udp: datagrams, replies, peers, order, limits, multicast, broadcast, the drain, and mistakes in the site."""
import os
import select
import socket
import time
import unittest

from harness import E2E, SANITIZER, WAIT, WINDOWS, has_ipv6, not_on_windows, read_text, repeats, write_text
from harness.udp import TOP, Udp, UdpClient, ports


class Server(Udp):
    def test_loopback_of_both_families_with_one_port(self):
        server, port = self.udp("ls.udp(0, function(data) return data end)", 2)
        self.assertEqual(len(set(ports(server, 2))), 1)
        self.assertEqual(self.client(port).ask(b"four"), b"four")
        self.assertEqual(self.client(port, host="::1").ask(b"six"), b"six")

    def test_a_star_is_every_address(self):
        server, port = self.udp(
            'ls.udp("*:0", function(data, peer) return peer.ip .. " " .. peer.port .. " " .. tostring(peer) .. " " .. peer.remote '
            '.. " " .. select(2, pcall(function() return peer.host end)):match("a peer .*") end)')
        four, six = self.client(port), self.client(port, host="::1")
        self.assertEqual(four.ask(b"x"), b"127.0.0.1 %d 127.0.0.1:%d 127.0.0.1:%d a peer has no method or field 'host'; did you mean 'ip'?" % ((four.port,) * 3))
        self.assertEqual(six.ask(b"x"), b"::1 %d [::1]:%d [::1]:%d a peer has no method or field 'host'; did you mean 'ip'?" % ((six.port,) * 3))

    def test_what_a_handler_may_return(self):
        server, port = self.udp("""
          local prepared = ls.buffer("pre", "pared")
          local parts = ls.buffer(("a"):rep(5000)) parts:append(ls.buffer(("b"):rep(5000)))
          local is = { nothing = function() end, ["nil"] = function() return nil end, ["false"] = function() return false end,
            empty = function() return "" end, number = function() return 12 end, buffer = function() return prepared end,
            parts = function() return parts end, table = function() return {} end, ["true"] = function() return true end,
            two = function() return "a", "b" end, late = function() ls.sleep(0.001) return "a", parts end,
            late_table = function() ls.sleep(0.001) return { 1 } end, count = function() return ("xy"):gsub("y", "z") end,
            failed = function() return nil, "not there" end,
            raise = function() error("on purpose") end, longer = function() return ("z"):rep(1000):rep(60) end }
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data) return is[data](data) end)""")
        client = self.client(port)
        for silent in (b"nothing", b"nil", b"false", b"table", b"true", b"raise", b"two", b"number", b"late", b"late_table", b"failed"):
            client.send(silent)
        for asked, answer in ((b"empty", b""), (b"count", b"xz"), (b"buffer", b"prepared"),
                              (b"parts", b"a" * 5000 + b"b" * 5000), (b"longer", b"z" * 60000)):
            self.assertEqual(client.ask(asked), answer)
        server.wait_log("in a UDP handler:.*on purpose")
        wrong = r"in a UDP handler: \S*site\.lua:\d+: a UDP handler must return one string or buffer, the reply, or nothing; got "
        server.wait_log(wrong + "a table", count=2)
        server.wait_log(wrong + "a boolean")
        server.wait_log(wrong + "a number")
        server.wait_log(wrong + "two of them, which .. joins", count=2)

    def test_one_state_handles_the_datagrams_in_the_order_in_which_they_were_received(self):
        # The timer makes batches wait for the state; with one datagram in each, every pair of them may change places.
        server, port = self.udp("""
          ls.config { states = 1 }
          local last, wrong = -1, 0
          ls.udp({ port = 0, host = "127.0.0.1", batch = 1, receive_buffer = "4m" }, function(data)
            if data == "result" then return wrong .. " " .. last end
            local n = tonumber(data)
            if n ~= last + 1 then wrong = wrong + 1 end
            last = n
          end)
          ls.every(0.001, function() for _ = 1, 10000 do end end)""", flags=("--threads", "4"))
        client = self.client(port)
        sent = 0
        for _ in range(repeats(100)):
            for _ in range(50):  # few enough for the socket's receive buffer
                client.send(b"%d" % sent)
                sent += 1
            self.assertEqual(client.ask(b"result"), b"0 %d" % (sent - 1))

    def test_replies_go_to_the_right_peers_in_order(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1", batch = 32 }, function(data)
            local n = tonumber(data)
            if n % 3 == 0 then return nil elseif n % 7 == 0 then error("seven") end
            return data .. ("x"):rep(n % 5)
          end)
          ls.on("start", function() os.execute("sleep 0.3") end)""")  # so that whole batches are pending
        clients = [self.client(port) for _ in range(5)]
        for n in range(40):  # few enough for the socket's receive buffer
            for client in clients:
                client.send(b"%d" % n)
        for client in clients:
            got = [client.get() for n in range(40) if n % 3 != 0 and n % 7 != 0]
            # two threads may handle batches at the same time
            self.assertEqual(sorted(got), sorted(b"%d" % n + b"x" * (n % 5) for n in range(40) if n % 3 and n % 7))

    def test_a_handler_that_waits_delays_no_other(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            if data == "slow" then ls.sleep(0.3) elseif data == "raise" then ls.sleep(0.01) error("late") end
            return data
          end)""")
        client = self.client(port)
        for data in (b"slow", b"1", b"slow", b"raise", b"2"):
            client.send(data)
        self.assertEqual({client.get(), client.get()}, {b"1", b"2"})
        self.assertEqual([client.get(), client.get()], [b"slow", b"slow"])
        server.wait_log("in a UDP handler:.*late")

    def test_a_handler_that_blocks_delays_its_own_batch_only(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1", batch = 1 }, function(data)
            if data == "block" then os.execute("until [ -e @DIR@/go ]; do sleep 0.01; done") end
            return data
          end)""", flags=("--threads", "1"))
        client = self.client(port)
        client.send(b"block")
        self.assertEqual(client.ask(b"quick"), b"quick")
        write_text(os.path.join(server.dir, "go"), "")
        self.assertEqual(client.get(), b"block")

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer keeps signals from a loop that makes no system call")
    def test_processor_time_is_bounded(self):
        server, port = self.udp("""
          ls.config{ max_cpu = 0.2 }
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data) while data == "spin" do end return data end)""")
        client = self.client(port)
        client.send(b"spin")
        self.assertEqual(client.ask(b"a"), b"a")
        server.wait_log("processor time")

    def test_default_length_and_the_most(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data, _, info)
            return #data .. tostring(info and info.truncated)
          end)
          ls.udp({ port = 0, host = "127.0.0.1", max_datagram = 65507 }, function(data) return data end)
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data) return ("x"):rep(tonumber(data)) end)""", 3)
        _, whole, replies = ports(server, 3)
        client = self.client(port)
        self.assertEqual([client.ask(b"x" * size) for size in (0, 2048)], [b"0nil", b"2048nil"])
        self.assertFalse(server.logged("was truncated"))
        self.assertEqual([client.ask(b"x" * size) for size in (2049, 60000)], [b"2048true"] * 2)
        server.wait_log(r"site.lua:\d+: a datagram longer than max_datagram = 2048 bytes was truncated "
                        r"\(logged once\): max_datagram = 65507 takes all")
        self.assertEqual(len(server.logged("was truncated")), 1)
        data = os.urandom(65507)
        self.assertEqual(self.client(whole).ask(data), data)
        client = self.client(replies)
        self.assertEqual(len(client.ask(b"65507")), 65507)
        client.send(b"65508")
        server.wait_log("the reply of 65508 bytes is too long for a datagram")
        self.assertEqual(len(client.ask(b"3000")), 3000)

    def test_kept_peers(self):
        server, port = self.udp("""
          local kept = {}
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data, peer)
            local first = kept[1]
            kept[1] = first or peer
            ls.after(0.05, function() assert(peer:send("later " .. data)) end)
            return tostring(first == peer) .. " " .. tostring(peer == 1)
          end)""", flags=("--threads", "1"))
        one, two = self.client(port), self.client(port)
        self.assertEqual(one.ask(b"a"), b"false false")
        self.assertEqual(one.get(), b"later a")
        self.assertEqual(one.ask(b"b"), b"true false")
        self.assertEqual(two.ask(b"c"), b"false false")
        self.assertEqual((one.get(), two.get()), (b"later b", b"later c"))

    def test_many_peers(self):
        server, port = self.udp('ls.udp({ port = 0, host = "127.0.0.1" }, function(data, peer) return data .. tostring(peer) end)')
        clients = [self.client(port) for _ in range(700)]  # more than a state keeps peers
        for _ in range(2):
            for client in clients:
                self.assertEqual(client.ask(b"x"), b"x127.0.0.1:%d" % client.port)

    def test_sendto_from_timers_and_other_handlers(self):
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(other.close)
        other.bind(("127.0.0.1", 0))
        other.settimeout(WAIT)
        server, port = self.udp("""
          local sock
          sock = ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            if data == "old" then return select(2, pcall(function() return sock.port end)) end
            if data == "addr" then return sock.local_addr .. " " .. sock.local_port .. " " .. tostring(sock) end
            local ok, message, code = sock:sendto("direct", "127.0.0.1", tonumber(data))
            return tostring(ok) .. tostring(message) .. tostring(code)
          end)
          ls.init(function() assert(sock:sendto("first of all", "127.0.0.1", %d)) end)
        """ % other.getsockname()[1])
        data, sender = other.recvfrom(100)
        self.assertEqual((data, sender[1]), (b"first of all", port))
        client = self.client(port)
        self.assertIn(b"a UDP socket has no method or field 'port'; did you mean 'local_port'?", client.ask(b"old"))
        self.assertEqual(client.ask(b"addr"), b"127.0.0.1:%d %d UDP socket 127.0.0.1:%d" % (port, port, port))
        self.assertEqual(client.ask(b"%d" % other.getsockname()[1]), b"truenilnil")
        self.assertEqual(other.recv(100), b"direct")

    def test_refusals_of_peers_end_nothing(self):
        server, port = self.udp("""
          local sock
          sock = ls.udp({ port = 0, host = "127.0.0.1" }, function(data, peer)
            for i = 1, 20 do sock:sendto("refused", "127.0.0.1", 1) end
            return data
          end)""")
        for n in range(30):
            gone = UdpClient(port)
            gone.send(b"x")
            gone.close()  # the reply is refused
            self.assertEqual(self.client(port).ask(b"%d" % n), b"%d" % n)
        self.assertFalse(server.logged("error|warn"))

    def test_close(self):
        server, port = self.udp("""
          local sock, kept
          sock = ls.udp({ port = 0, host = "127.0.0.1" }, function(data, peer)
            kept = peer
            if data == "close" then
              ls.after(0.05, function()
                sock:close() sock:close()
                print(sock:sendto("x", "127.0.0.1", 9))
                print(kept:send("x"))
                io.stdout:flush()
                ls.log.info("closed it")
              end)
            end
            return data
          end)
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data) return "other" end)""", 2, flags=("--threads", "1"))
        other = ports(server, 2)[1]
        client = self.client(port)
        self.assertEqual(client.ask(b"close"), b"close")
        server.wait_log("closed it")
        self.assertEqual(read_text(server.out_path), "nil\tclosed\tECLOSED\n" * 2)
        with self.assertRaises(ConnectionRefusedError):
            for _ in range(50):
                client.send(b"x")
                time.sleep(0.02)
        self.assertEqual(self.client(other).ask(b"x"), b"other")

    def test_drain_finishes_handlers_and_replies(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            if data == "wait" then ls.sleep(0.4) end
            return data
          end)""")
        client = self.client(port)
        client.send(b"wait")
        self.assertEqual(client.ask(b"now"), b"now")
        server.signal()
        server.wait_log("draining")
        time.sleep(0.05)
        client.send(b"too late")
        self.assertEqual(client.get(), b"wait")
        self.assertEqual(server.wait(), 0)

    def test_stats(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1", max_datagram = 10 }, function(data)
            if data == "stats" then
              local s = ls.stats()
              return table.concat({ s.udp_received, s.udp_sent, s.udp_truncated, s.udp_failed }, " ")
            end
            return data
          end)""", flags=("--threads", "1"))
        client = self.client(port)
        client.ask(b"a")
        client.ask(b"b" * 20)
        self.assertEqual(client.ask(b"stats"), b"3 2 1 0")

    def test_a_datagram_of_its_own_is_dropped(self):
        """An echo server that received its own reply would answer it without end."""
        for host, to in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("*", "127.0.0.1"), ("*", "::1"), ("::1", "::1")):
            if ":" in to and not has_ipv6():
                continue
            with self.subTest(host):
                server, port = self.udp("""
                  local socket
                  socket = ls.udp({ port = 0, host = "%s" }, function(data)
                    if data == "stats" then return ls.stats().udp_own .. " " .. ls.stats().udp_received end
                    if data == "go" then
                      for i = 1, 3 do socket:sendto("loop", "%s", socket.local_port) end
                      return "sent"
                    end
                    ls.log.info("received " .. data)
                    return data
                  end)""" % (host, to), flags=("--log-level", "debug"))
                client = self.client(port) if ":" not in to else UdpClient(port, to)
                self.addCleanup(client.sock.close)
                self.assertEqual(client.ask(b"go"), b"sent")
                self.eventually(lambda: client.ask(b"stats").startswith(b"3 "), "the datagrams have arrived")
                self.assertEqual(server.logged("received loop"), [])
                server.wait_log("dropped a datagram whose source is the socket's own address")
                self.assertEqual(len(server.logged("dropped a datagram whose source is the socket's own address")), 1)
                self.assertEqual(client.ask(b"x"), b"x")
                server.stop()

    @not_on_windows("it does not tell")
    def test_datagrams_that_the_system_drops_are_counted_and_logged(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1", receive_buffer = 1 }, function(data)
            if data == "stats" then return ls.stats().udp_received .. " " .. ls.stats().udp_dropped end
          end)""")
        client = self.client(port)
        sent = 0

        def counts():
            """Of the last question; one may be dropped as well."""
            nonlocal sent
            while select.select([client.sock], [], [], 0)[0]:
                client.get()
            while True:
                client.send(b"stats")
                sent += 1
                if select.select([client.sock], [], [], 0.2)[0]:
                    return [int(n) for n in client.get().split()]

        def drops():
            nonlocal sent
            for _ in range(1000):
                client.send(b"x" * 1000)
            sent += 1000
            return counts()[1] > 0

        self.eventually(drops, "the system drops")
        self.eventually(lambda: sum(counts()) == sent, "each datagram is received or dropped")
        server.wait_log(r"warn udp://127\.0\.0\.1:%d: the system has dropped \d+ datagrams, .* receive_buffer of ls\.udp" % port)


class Groups(Udp):
    def test_multicast(self):
        group = "239.77.1.2"
        server, port = self.udp("""
          ls.udp({ port = 0, multicast = { group = "%s", interface = "127.0.0.1", ttl = 1, loop = true } },
            function(data, peer) return "heard " .. data end)
          local out
          out = ls.udp({ port = 0, host = "127.0.0.1", multicast = { interface = "127.0.0.1" } }, function(data)
            return tostring(out:sendto(data, "%s", 9)) end)""" % (group, group))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        sender.settimeout(WAIT)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.bind(("127.0.0.1", 0))
        sender.sendto(b"to all", (group, port))
        self.assertEqual(sender.recvfrom(100)[0], b"heard to all")
        self.assertIn("listening on udp://%s:" % group, server.log())
        if not WINDOWS:  # a socket on Windows cannot be bound to a group
            sender.sendto(b"to one", ("127.0.0.1", port))  # a datagram to another address is not received
            sender.settimeout(0.2)
            with self.assertRaises((socket.timeout, ConnectionRefusedError)):
                sender.recvfrom(100)

    def test_multicast_is_shared_with_reuse(self):
        body = """ls.udp({ port = tonumber((...)), multicast = { group = "239.77.1.3", interface = "127.0.0.1" }, reuse = true },
            function(data) return "%s" end)"""
        first, port = self.udp(body % "one", args=("0",))
        second, _ = self.udp(body % "two", args=(str(port),))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        sender.settimeout(WAIT)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.sendto(b"x", ("239.77.1.3", port))
        self.assertEqual({sender.recv(100), sender.recv(100)}, {b"one", b"two"})

    def test_broadcast_needs_leave(self):
        server, port = self.udp("""
          local without, with
          without = ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            local _, message, code = without:sendto("x", "255.255.255.255", 9)
            return tostring(code)
          end)
          with = ls.udp({ port = 0, host = "0.0.0.0", broadcast = true }, function(data)
            local ok, message, code = with:sendto("x", "127.255.255.255", 9)
            return tostring(ok or code)
          end)""", 2)
        self.assertEqual(self.client(port).ask(b"x"), b"EACCES")
        self.assertEqual(self.client(ports(server, 2)[1]).ask(b"x"), b"true")


class Loading(E2E):
    """A mistake while the site loads ends the program, with the line of the mistake and what would be right."""

    def failed(self, body):
        server = self.serve(TOP + body, listeners=0)
        self.assertNotEqual(server.wait(), 0, body)
        return server.log()

    def test_wrong_calls(self):
        for call, message in {
            "ls.udp({ port = 1, batch = 33 }, print)": "batch must be from 1 to 32; got 33",
            'ls.udp({ port = 0, multicast = { group = "239.0.0.1", interface = "nosuch0" } }, print)':
                "unknown network interface",
            'ls.udp({ port = 0, multicast = { group = { "239.0.0.1", "ff02::1" } } }, print)': "must be all IPv4 or all IPv6",
            'ls.udp({ port = 0, host = "192.0.2.1" }, print)': "cannot receive on udp://192.0.2.1:0: address not available",
            'ls.udp_connect("127.0.0.1", 1)': "ls.udp_connect: cannot be called while the site loads",
            'ls.notify(1, "in")': "ls.notify: cannot be called while the site loads",
            'ls.udp(0, print):sendto("x", "127.0.0.1", 1)': "sendto: cannot be called while the site loads",
            "for i = 1, 65 do ls.udp(0, print) end": "more than 64 UDP sockets",
        }.items():
            if WINDOWS and "192.0.2.1" in call:
                continue  # Wine 8 binds a UDP socket to any address
            log = self.failed("\n" + call)
            self.assertRegex(log, r"site\.lua:3: |network|address|cannot|sockets", call)
            self.assertRegex(log, message, call)

    def test_port_in_use(self):
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(held.close)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        self.assertRegex(self.failed('ls.udp("127.0.0.1:%d", print)' % port),
                         r"site\.lua:2: cannot receive on udp://127\.0\.0\.1:%d: address in use" % port)
        self.assertIn("address in use", self.failed("ls.udp(%d, print)" % port))

    def test_check_reports_them(self):
        server = self.serve(TOP + 'ls.udp(7000, print)\nls.udp("*:7001", print)', flags=("--check",), listeners=0)
        self.assertEqual(server.wait(), 0, server.log())
        text = read_text(server.out_path)
        self.assertRegex(text, r"udp: loopback port 7000 \(.*site\.lua:2\)\nudp: \* port 7001 \(.*site\.lua:3\)")

    def test_states_must_agree(self):
        log = self.failed('ls.config { threads = 2 }\nls.udp(0, print)\nif not os.getenv("X") and math.random() then local f = io.open("@DIR@/seen")\n'
                          'if f then ls.udp(0, print) else io.open("@DIR@/seen", "w"):close() end end')
        self.assertRegex(log, "one Lua state")
