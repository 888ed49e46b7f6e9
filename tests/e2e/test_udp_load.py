"""UDP handlers, connected sockets, raw sockets and notifications at once on 16 threads, then a drain.

Meant for the ThreadSanitizer build; in other builds it is an ordinary test."""
import contextlib
import socket
import threading
import time

from harness import WAIT, beside
from harness.udp import Udp, UdpClient


class Load(Udp):
    """16 threads, everything at once. Made for the ThreadSanitizer build; in a plain build it is one more test."""

    LOAD = """
      ls.config { drain_timeout = 60 }
      local kept = {}
      local sock
      sock = ls.udp({ port = 0, host = "127.0.0.1", batch = 8 }, function(data, peer)
        local kind = data:byte(1) % 8
        if kind == 0 then ls.sleep(0.002) return data
        elseif kind == 1 then kept[math.random(10)] = peer ls.after(0.001, function() peer:send(data) end) return nil
        elseif kind == 2 then sock:sendto(data, peer.ip, peer.port) return nil
        elseif kind == 3 then
          local c = assert(ls.udp_connect("127.0.0.1", sock.local_port))
          c:send("\\12") c:receive(0.5) c:close()
        elseif kind == 5 then
          local s = assert(ls.socket("udp")) local n = assert(ls.notify(s, "in", { trigger = "edge" }))
          s:bind("127.0.0.1", 0)
          local c = assert(ls.udp_connect("127.0.0.1", tonumber(s.local_addr:match("%d+$"))))
          for i = 1, 3 do c:send("x") end
          n:wait(0.5)
          if math.random() < 0.5 then n:remove() end
          s:close()
        elseif kind == 6 then
          local s = assert(ls.socket("udp")) s:bind("127.0.0.1", 0)
          local n = assert(ls.notify(s, "in"))
          local c = assert(ls.udp_connect("127.0.0.1", tonumber(s.local_addr:match("%d+$"))))
          for i = 1, 3 do c:send("x") n:wait(0.5) s:receive() end
        elseif kind == 7 then collectgarbage("step")
        end
        return data
      end)
      ls.every(0.01, function() for _, peer in pairs(kept) do peer:send("\\255") end collectgarbage("step") end)"""

    def test_load_then_drain(self):
        server, port = self.udp(self.LOAD, flags=("--threads", "16"))
        stop, answers, bad = threading.Event(), [0] * 8, []

        def client(number):
            peer = UdpClient(port, timeout=0.2)
            try:
                n = number
                while not stop.is_set():
                    sent = set()
                    with contextlib.suppress(socket.timeout, ConnectionRefusedError):
                        for _ in range(8):
                            n += 1
                            data = bytes([n % 240]) + b"%d.%d" % (number, n)
                            sent.add(data)
                            peer.send(data)
                        for _ in range(8):
                            got = peer.get()
                            answers[number] += 1
                            if got not in sent and got != b"\xff" and b"%d." % number not in got:
                                bad.append(got)
            finally:
                peer.close()

        with beside(*[lambda number=number: client(number) for number in range(8)]):
            begun = time.monotonic()
            while server.alive():
                elapsed = time.monotonic() - begun
                if elapsed > WAIT or (elapsed > 2 and sum(answers) > 200):
                    break
                time.sleep(0.05)
            alive = server.alive()
            server.signal()
            status = server.wait()
            stop.set()
        self.assertTrue(alive, server.log()[-5000:])
        self.assertEqual((status, bad[:3]), (0, []), server.log()[-3000:])
        self.assertGreater(sum(answers), 200)
