"""ls.udp_connect: connected UDP sockets."""
from harness import no_refusals
from harness.udp import Udp, ports


class Connected(Udp):
    # A port that refuses datagrams: its socket is connected, and accepts datagrams of its peer only. The port of a
    # closed socket would not do, because another program may bind it.
    REFUSING_PORT = """
          local refusing = assert(ls.socket("udp"))
          local function refusing_port()
            assert(refusing:bind("127.0.0.1", 0)) assert(refusing:connect("127.0.0.1", 9))
            return tonumber(refusing.local_addr:match("%d+$"))
          end
    """

    def test_send_and_receive(self):
        text = self.run_once("""
          local c = assert(ls.udp_connect("127.0.0.1", port))
          for i = 1, 40 do assert(c:send("n" .. i)) end
          local got = {}
          for i = 1, 40 do got[assert(c:receive(5))] = true end
          local n = 0 for i = 1, 40 do if got["n" .. i] then n = n + 1 end end
          print(n, c:receive(0.01))
          print(c:send(""), c:receive(5) == "", c:send(ls.buffer("buf", "fer")), c:receive())
          print(c.remote == "127.0.0.1:" .. port, c.local_addr:match("^127%.0%.0%.1:%d+$") ~= nil)
          c:close() c:close()
          print(c:send("x")) print(c:receive())""")
        self.assertEqual(text.splitlines(), ["40\tnil\ttimeout\tETIMEDOUT", "true\ttrue\ttrue\tbuffer", "true\ttrue",
                                             "nil\tclosed\tECLOSED", "nil\tclosed\tECLOSED"])

    def test_limits_and_cut(self):
        text = self.run_once("""
          local c = assert(ls.udp_connect("127.0.0.1", port, { max_datagram = 10, batch = 1 }))
          c:send("10") print(#c:receive(5))
          c:send("11") local data, info = c:receive(5) print(#data, info.truncated)
          print(c:send(("x"):rep(65508)))
          print(c:send(("x"):rep(65507)))""", echo='return ("x"):rep(tonumber(data) or 0)')
        self.assertEqual(text.splitlines(), ["10", "10\ttrue", "nil\tmessage too long\tEMSGSIZE", "true"])

    def test_refused_while_it_waits(self):
        text = self.run_once(self.REFUSING_PORT + """
          local c = assert(ls.udp_connect("127.0.0.1", refusing_port()))
          local job = ls.spawn(function() return c:receive(5) end)
          ls.sleep(0.02)
          c:send("x") print(job:wait())""")
        self.assertEqual(text, "nil\tconnection refused\tEREFUSED\n")

    @no_refusals
    def test_refused(self):
        text = self.run_once(self.REFUSING_PORT + """
          local c = assert(ls.udp_connect("127.0.0.1", refusing_port()))
          c:send("x") print(c:receive(5)) print(c:receive(0.02))
          c:send("x") print(select(3, c:receive(5)))""")
        self.assertEqual(text.splitlines(), ["nil\tconnection refused\tEREFUSED", "nil\ttimeout\tETIMEDOUT", "EREFUSED"])

    def test_closed_under_a_receive(self):
        text = self.run_once("""
          local c = assert(ls.udp_connect("127.0.0.1", port))
          local job = ls.spawn(function() return c:receive() end)
          ls.sleep(0.02)
          print(pcall(c.receive, c))
          c:close() print(job:wait(5))""")
        self.assertEqual(text.splitlines(), ["false\tanother task already receives from this socket", "nil\tclosed\tECLOSED"])

    def test_a_receive_that_timed_out_loses_nothing(self):
        text = self.run_once("""
          local c = assert(ls.udp_connect("127.0.0.1", port))
          c:send("a") print(c:receive(0)) print(c:receive(0.01)) ls.sleep(0.3) print(c:receive(0))""",
                             echo="ls.sleep(0.1) return data")
        self.assertEqual(text.splitlines(), ["nil\ttimeout\tETIMEDOUT", "nil\ttimeout\tETIMEDOUT", "a"])

    def test_descriptors_of_dropped_ones_come_back(self):
        server, _ = self.udp("""
          local echo = ls.udp({ port = 0, host = "127.0.0.1" }, function(data) return data end)
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            for i = 1, tonumber(data) do
              local c = assert(ls.udp_connect("127.0.0.1", echo.local_port)) c:send("x")
              if i % 3 == 0 then c:receive(5) elseif i % 3 == 1 then c:receive(0) end
              if i % 50 == 0 then collectgarbage() end
            end
            collectgarbage() collectgarbage()
            return data
          end)""", 2)
        client = self.client(ports(server, 2)[1])
        self.assertEqual(client.ask(b"300"), b"300")
        # The one left is the client's. Another program's socket may be connected to this port number for a while.
        self.eventually(lambda: server.udp_sockets() == 1, "all its connected sockets are closed")

    def test_ipv6_and_bad_hosts(self):
        text = self.run_once("""
          print(ls.udp_connect("::1", port) ~= nil, ls.udp_connect("[::1]", port) ~= nil, ls.udp_connect("localhost", port) ~= nil)
          print(ls.udp_connect("no.such.name", port)) print(ls.udp_connect("*", port))
          print(sock:sendto("x", "::1", port))""")
        lines = text.splitlines()
        self.assertEqual(lines[0], "true\ttrue\ttrue")
        self.assertRegex(lines[1], r'^nil\tinvalid address "no.such.name"; .*\tEINVAL$')
        self.assertRegex(lines[2], r"\tEINVAL$")
        self.assertEqual(lines[3], "nil\tnot supported here\tENOTSUP")
