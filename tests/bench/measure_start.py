"""The start of a server with two threads: the time to its first answer, and its memory afterwards."""
import os
import signal
import socket
import subprocess
import time

import measure
from servers import Failed

SITE = """local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "hello, world\\n" end)
ls.listen(tonumber((...)), app)"""
SECONDS_MAX = 20


def start(program, site, command=()):
    """`site`: a file with SITE; command: ("dev",) for luaserve dev.
    -> {"ms": from the start of the process to the first answer, "resident", "user": bytes of memory then}"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    threads = () if command else ("--threads", "2")
    process = subprocess.Popen([program, *command, *threads, site, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        sock = connected(process, port, began + SECONDS_MAX)
        with sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
            measure.read_answer(sock)
            ms = (time.monotonic() - began) * 1000
            resident, user = measure.memory([process.pid])
        return {"ms": ms, "resident": resident, "user": user}
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait()


def connected(process, port, until):
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise Failed("the server did not start") from None
            time.sleep(0.0005)
