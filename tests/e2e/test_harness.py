"""The harness itself: with Python for Windows every module of tests can be imported, and system_windows.py makes the
calls of Windows as they are documented. Fakes stand for these calls here. The WebSocket client meets servers that break
the rules."""
# sanitizers: none; calls no program of ours
import ast
import ctypes
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

from harness import Framing, lua_paths, system_windows, tls, websocket
from harness.websocket import WebSocket, frame

HERE = os.path.dirname(os.path.abspath(__file__))

# What Python for Windows does not have: modules, names of `os`, of `signal` and of `socket`. The interpreter must not
# notice, so only the modules of the tests are imported under these conditions.
AS_ON_WINDOWS = r"""
import concurrent.futures, contextlib, ctypes, http.client, multiprocessing, os, signal, socket, subprocess, sys, tempfile
import unittest, unittest.mock
for name in "fcntl grp pty pwd resource syslog termios tty".split():
    sys.modules[name] = None
for name in ("chown fork forkpty geteuid getpgid getuid killpg mkfifo nice sched_getaffinity sched_setaffinity setsid "
             "sysconf wait4").split():
    delattr(os, name)
for name in "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGUSR2".split():
    delattr(signal, name)
del socket.AF_UNIX
sys.path.insert(0, os.getcwd())
sys.argv[1:] = []
for name in sorted(os.listdir(".")):
    if name.endswith(".py"):
        __import__(name[:-3])
from harness import Conn
with socket.create_server(("127.0.0.1", 0)) as listener, Conn(listener.getsockname()):
    print("imported and connected")
"""


class Import(unittest.TestCase):
    def test_every_module_can_be_imported_without_posix(self):
        done = subprocess.run([sys.executable, "-B", "-c", AS_ON_WINDOWS], cwd=HERE, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "imported and connected\n"), done.stderr)

    def test_both_systems_have_the_same_functions(self):
        def functions(name):
            with open(os.path.join(HERE, "harness", name + ".py"), encoding="utf-8") as file:
                return {node.name: ast.unparse(node.args) for node in ast.parse(file.read()).body
                        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
        windows = functions("system_windows")
        del windows["open_ports"]
        self.assertEqual(windows, functions("system_posix"))


class FakeDll:
    """A DLL whose functions are the given Python functions; a call of another fails."""

    def __init__(self, **functions):
        vars(self).update(functions)


def pointee(pointer):
    """The object that ctypes.byref was called with."""
    return pointer._obj  # pylint: disable=protected-access


class Windows(unittest.TestCase):
    def libraries(self, **libraries):
        patch = mock.patch.object(system_windows, "_library", lambda name: libraries[name])
        patch.start()
        self.addCleanup(patch.stop)
        error = mock.patch.object(ctypes, "get_last_error", lambda: 87, create=True)
        error.start()
        self.addCleanup(error.stop)

    def processes(self, **functions):
        """kernel32 with one process, number 42, whose handle is 7. Records what is closed."""
        self.closed = []
        return FakeDll(OpenProcess=lambda access, inherit, pid: 7 if (access, pid) == (0x0400, 42) else None,
                       CloseHandle=lambda handle: self.closed.append(handle.value), **functions)

    def test_the_resident_bytes_are_the_working_set(self):
        def memory(handle, counters, size):
            self.assertEqual((handle.value, size, pointee(counters).cb), (7, 72, 72))
            pointee(counters).WorkingSetSize = 5 << 30
            return 1
        self.libraries(kernel32=self.processes(), psapi=FakeDll(GetProcessMemoryInfo=memory))
        self.assertEqual(system_windows.rss(42), 5 << 30)
        self.assertEqual(self.closed, [7])

    def test_processor_time_is_that_of_kernel_and_user(self):
        def times(_, created, ended, kernel, user):
            pointee(created).value, pointee(ended).value = 1, 2
            pointee(kernel).value, pointee(user).value = 5_000_000, 10_000_000
            return 1
        self.libraries(kernel32=self.processes(GetProcessTimes=times))
        self.assertEqual(system_windows.cpu(42), 1.5)

    def test_handles_are_counted(self):
        def handles(_, count):
            pointee(count).value = 123
            return 1
        self.libraries(kernel32=self.processes(GetProcessHandleCount=handles))
        self.assertEqual(system_windows.descriptors(42), 123)

    def test_only_the_threads_of_the_process_are_counted(self):
        owners = iter([42, 4, 42, 42, 8])

        def next_thread(snapshot, entry):
            self.assertEqual((snapshot.value, pointee(entry).dwSize), (9, 28))
            pointee(entry).th32OwnerProcessID = next(owners, 0)
            return pointee(entry).th32OwnerProcessID != 0
        self.libraries(kernel32=self.processes(CreateToolhelp32Snapshot=lambda flags, pid: 9 if flags == 4 else None,
                                               Thread32First=next_thread, Thread32Next=next_thread))
        self.assertEqual(system_windows.threads(42), 3)
        self.assertEqual(self.closed, [9])

    def test_paths_in_lua_sources_are_no_escapes(self):
        source = 'io.open("%s\\site\\a.txt", "w"):write("a\\r\\n", \'%s\\bad.pem\')'
        with mock.patch.object(tempfile, "tempdir", r"C:\Users\RUNNER~1\AppData\Local\Temp"):
            self.assertEqual(lua_paths(source % ((tempfile.gettempdir(),) * 2)),
                             source.replace(r"%s\site\a", "%s/site/a").replace("%s\\b", "%s/b")
                             % (("C:/Users/RUNNER~1/AppData/Local/Temp",) * 2))

    def test_a_failed_call_names_itself_and_the_error_and_closes_the_handle(self):
        self.libraries(kernel32=self.processes(GetProcessHandleCount=lambda handle, count: 0))
        with self.assertRaisesRegex(OSError, "GetProcessHandleCount failed with error 87"):
            system_windows.descriptors(42)
        self.assertEqual(self.closed, [7])
        with self.assertRaisesRegex(OSError, "OpenProcess failed with error 87"):
            system_windows.rss(43)

    def test_open_ports_of_netstat(self):
        text = ("\r\nAktive Verbindungen\r\n\r\n  Proto  Lokale Adresse         Remoteadresse          Status\r\n"
                "  TCP    0.0.0.0:135            0.0.0.0:0              LISTENING\r\n"
                "  TCP    127.0.0.1:8080         127.0.0.1:50001        ESTABLISHED\r\n"
                "  TCP    127.0.0.1:8080         127.0.0.1:50002        TIME_WAIT\r\n"
                "  TCP    [::1]:8443             [::]:0                 LISTENING\r\n"
                "  UDP    0.0.0.0:53             *:*\r\n")
        self.assertEqual(system_windows.open_ports(text), [135, 8080, 8443])

    def test_both_families_are_counted(self):
        def netstat(command, **_):
            tables = {"TCP": "  TCP    127.0.0.1:80    0.0.0.0:0    LISTENING\n", "TCPv6": "  TCP    [::1]:80    [::]:0    LISTENING\n"}
            return mock.Mock(stdout=tables[command[-1]])
        with mock.patch.object(subprocess, "run", netstat):
            self.assertEqual(system_windows.tcp_sockets({80, 81}), 2)

    def test_requests_to_end_are_ctrl_break(self):
        with mock.patch.object(os, "kill") as kill:
            for number in (signal.SIGTERM, signal.SIGINT):
                system_windows.send_signal(mock.Mock(pid=42), number)
            self.assertEqual(kill.mock_calls, [mock.call(42, getattr(signal, "CTRL_BREAK_EVENT", 1))] * 2)
            with self.assertRaises(unittest.SkipTest):
                system_windows.send_signal(mock.Mock(pid=42), 10)
        self.assertEqual(system_windows.PROCESS_OPTIONS, {"creationflags": 0x200})


class Peer(threading.Thread):
    """A server for one connection: it reads a handshake, answers it, then sends `reply` and records what it receives."""

    def __init__(self, reply=b"", lines=(), tls=None):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = self.listener.getsockname()
        self.reply, self.lines, self.tls, self.received = reply, lines, tls, b""
        self.start()

    def run(self):
        sock, _ = self.listener.accept()
        self.listener.close()
        if self.tls:
            sock = self.tls.wrap_socket(sock, server_side=True)
        with sock:
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(4096)
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)[1].decode()
            lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: upgrade",
                     "Sec-WebSocket-Accept: " + websocket.accept(key), *self.lines, "", ""]
            sock.sendall("\r\n".join(lines).encode() + self.reply)
            data = True
            while data:
                data = sock.recv(65536)
                self.received += data


class WebSocketClient(unittest.TestCase):
    def client(self, reply=b"", lines=(), **options):
        self.peer = Peer(reply, lines)
        ws = WebSocket(self.peer.at, "/", timeout=20, **options)
        self.addCleanup(ws.conn.close)
        return ws

    def received(self, ws):
        ws.conn.half_close()
        self.peer.join(20)
        return self.peer.received

    def test_frames_are_those_of_the_rfc(self):
        self.assertEqual(frame(websocket.TEXT, b"Hello", mask=False), b"\x81\x05Hello")
        self.assertEqual(frame(websocket.TEXT, b"Hello", mask=b"\x37\xfa\x21\x3d"), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58")
        self.assertEqual(frame(websocket.TEXT, b"Hel", fin=False, mask=False), b"\x01\x03Hel")
        self.assertEqual(frame(websocket.BINARY, b"x" * 256, mask=False)[:4], b"\x82\x7e\x01\x00")
        self.assertEqual(frame(websocket.BINARY, b"x" * 65536, mask=False)[:10], b"\x82\x7f\0\0\0\0\0\1\0\0")
        self.assertEqual(frame(websocket.PING, rsv=4, fin=False, mask=False), b"\x49\x00")
        self.assertEqual(frame(websocket.PING, length=200, bits=64, mask=False), b"\x89\x7f\0\0\0\0\0\0\0\xc8")
        self.assertEqual(websocket.accept(websocket.KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")

    def test_messages_fragments_and_pings(self):
        ws = self.client(b"\x81\x02hi\x02\x01a\x89\x01p\x80\x01b\x8a\x00\x88\x05\x03\xe8bye")
        self.assertEqual(ws.receive(), "hi")
        self.assertEqual(ws.receive(), b"ab")
        with self.assertRaises(websocket.CloseFrame) as raised:
            ws.receive()
        self.assertEqual((raised.exception.code, raised.exception.reason), (1000, "bye"))
        ws.send_frame(websocket.TEXT, b"x", mask=False)
        got = self.received(ws)
        self.assertEqual((got[:2], websocket.masked(got[6:7], got[2:6]), got[7:]), (b"\x8a\x81", b"p", b"\x81\x01x"))

    def test_a_message_in_fragments(self):
        ws = self.client()
        ws.send("hello", fragments=3)
        self.assertEqual([n & 0x8f for n in self.received(ws)[::8][:2]], [1, 0])

    def test_broken_frames_of_a_server_are_found(self):
        for reply in (b"\x81\x80abcd", b"\xc1\x00", b"\x83\x00", b"\x09\x00", b"\x89\x7e\x00\x7e", b"\x81\x7e\x00\x7d", b"\x80\x00",
                      b"\x01\x00\x01\x00", b"\x81\x7f\0\0\0\0\0\0\xff\xff", b"\x88\x01a"):
            with self.subTest(reply), self.assertRaises(Framing):
                self.client(reply).receive()

    def test_bad_responses_are_found(self):
        for line in ("Sec-WebSocket-Protocol: other", "Sec-WebSocket-Extensions: permessage-deflate", "Content-Length: 0"):
            with self.subTest(line), self.assertRaises(Framing):
                self.client(lines=[line], protocols=["a"])
        for value in ("x", "permessage-deflate; server_max_window_bits=16", "permessage-deflate; x", "permessage-deflate; "
                      "client_no_context_takeover=1", "permessage-deflate; server_max_window_bits"):
            with self.subTest(value), self.assertRaises(Framing):
                self.client(lines=["Sec-WebSocket-Extensions: " + value], deflate=True)

    def test_compression_both_ways(self):
        for parameters in ("", "; server_no_context_takeover; client_no_context_takeover",
                           "; server_max_window_bits=9; client_max_window_bits=9"):
            with self.subTest(parameters):
                turned = re.sub("server|client", lambda side: "client" if side[0] == "server" else "server", parameters)
                other = websocket.Deflate("permessage-deflate" + turned, "client_max_window_bits")
                reply = b"".join(frame(websocket.TEXT, other.compress(text), rsv=4, mask=False) for text in (b"one" * 99, b"one" * 99))
                ws = self.client(reply, ["Sec-WebSocket-Extensions: permessage-deflate" + parameters], deflate=True)
                self.assertEqual([ws.receive(), ws.receive()], ["one" * 99] * 2)
                ws.send("two" * 99, compress=True)
                got = self.received(ws)
                self.assertEqual(other.decompress(websocket.masked(got[6:], got[2:6])), b"two" * 99)
                self.assertEqual(got[0], 0xc1)

    def test_over_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            tls.certificate(folder, "own")
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(os.path.join(folder, "own.pem"), os.path.join(folder, "own.key"))
            self.peer = Peer(b"\x81\x02hi", tls=server)
            with WebSocket(self.peer.at, "/", tls=tls.context(), timeout=20) as ws:
                self.assertEqual(ws.receive(), "hi")
