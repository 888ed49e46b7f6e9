"""luaserve.exe: one small file that needs no DLL but those of Windows; Ctrl-C at its console, the end of its console, log-off
and shutdown. probe.exe: what this Windows does in doubtful cases."""
# sanitizers: none; tests the program for Windows
import os
import struct
import subprocess
import unittest

from harness import (E2E, LUASERVE, ROOT, WAIT, WINDOWS, WINE, app_site, needs_terminal, pty, read_bytes, read_text, run_program,
                     write_text)

# Windows 8 and later have all of them (msvcrt.dll, the C library that mingw-w64 links, since Windows 95). user32.dll and
# gdi32.dll are not among them: Windows does not tell a console program that loads them of a log-off or a shutdown
# (SetConsoleCtrlHandler).
SYSTEM = {"advapi32.dll", "bcrypt.dll", "crypt32.dll", "httpapi.dll", "iphlpapi.dll", "kernel32.dll", "msvcrt.dll", "mswsock.dll",
          "ntdll.dll", "ws2_32.dll"}
BYTES_MAX = 8 << 20  # OpenSSL and SQLite included


def imports_of(image):
    """The names of the DLLs in the import tables of a PE image, the delayed one included (Microsoft, "PE Format")."""
    def u32(at):
        return struct.unpack_from("<I", image, at)[0]

    header = u32(0x3C)
    assert image[header:header + 4] == b"PE\0\0"
    sections, optional = struct.unpack_from("<H", image, header + 6)[0], header + 24
    assert struct.unpack_from("<H", image, optional)[0] == 0x20B, "PE32+"
    table = optional + struct.unpack_from("<H", image, header + 20)[0]

    def place(address):
        """The file offset of a virtual address."""
        for n in range(sections):
            size, start, raw_size, raw = struct.unpack_from("<IIII", image, table + 40 * n + 8)
            if start <= address < start + max(size, raw_size):
                return raw + address - start
        raise AssertionError("an address outside all sections")

    names = set()
    for directory, entry, name_at in ((1, 20, 12), (13, 32, 4)):
        address = u32(optional + 112 + 8 * directory)
        at = place(address) if address else 0
        while at and u32(at + name_at):
            name = place(u32(at + name_at))
            names.add(image[name:image.index(b"\0", name)].decode().lower())
            at += entry
    return names


@unittest.skipUnless(WINDOWS, "tests luaserve.exe")
class File(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = read_bytes(LUASERVE if LUASERVE.endswith(".exe") else LUASERVE + ".exe")

    def test_one_small_file(self):
        self.assertLess(len(self.image), BYTES_MAX)

    def test_it_needs_the_system_alone(self):
        names = imports_of(self.image)
        self.assertLessEqual({"kernel32.dll", "ws2_32.dll"}, names)
        self.assertLessEqual(names, SYSTEM)


def run_beside(name, *args):
    """Run a program that is built with the unit tests."""
    program = os.path.join(os.path.dirname(LUASERVE), "tests", name + ".exe")
    return subprocess.run([*([os.path.join(ROOT, "third_party", "windows", "wine")] if WINE else []), program, *args],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3 * WAIT, check=False)


@unittest.skipUnless(WINDOWS, "tests Windows")
class Probe(unittest.TestCase):
    def test_it_answers_every_case(self):
        done = run_beside("probe")
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines[-1:]), (0, ["end"]), done.stdout + done.stderr)
        for case in ("AcceptEx, status while pending: 0x00000103", "AcceptEx, status after CancelIoEx", "AcceptEx, status after the dequeue: packet",
                     "two AFD polls of a socket (close; receive)", "AFD poll for the close", "listen(SOMAXCONN):", "listen(SOMAXCONN_HINT(500)):"):
            self.assertTrue(any(line.startswith(case) for line in lines), (case, lines))
        for case in ("notification for IN alone", "ProcessSocketNotifications: not in this Windows"), ("Unix sockets: error", "ConnectEx of a Unix socket"):
            self.assertTrue(any(line.startswith(case) for line in lines), (case, lines))


@unittest.skipUnless(WINDOWS, "tests luaserve.exe")
class LongPath(E2E):
    def test_a_site_whose_path_is_too_long_for_the_system(self):
        folder = self.new_folder()
        deep = os.path.join(folder, *["d" * 60] * 5)
        os.makedirs(deep)
        hint = "longer than 259 characters, which Windows opens only if LongPathsEnabled is 1"
        for command in ((), ("install", "--name", "none")):
            status, _, err = run_program([*command, os.path.join(deep, "none.lua")])
            self.assertEqual(status, 1)
            self.assertIn(hint, err)
            self.assertNotIn(hint, run_program([*command, os.path.join(folder, "none.lua")])[2])
        write_text(os.path.join(deep, "site.lua"), 'require("luaserve").init(print)')
        self.assertEqual(run_program(["--check", os.path.join(deep, "site.lua")])[0], 0)  # where the system opens it


# /held responds once the drain has begun.
HELD = app_site("""
local draining = false
ls.on("drain", function() draining = true end)
app:get("/held", function()
  ls.log.info("held")
  while not draining do ls.sleep(0.01) end
  return "until the end"
end)
""")


@unittest.skipUnless(WINDOWS, "tests luaserve.exe")
class Console(E2E):
    def drains(self, server, cause):
        """After cause() a request in progress is answered, and the server ends."""
        with self.connect(server=server) as conn:
            conn.send(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
            server.wait_log("held")
            cause()
            response = conn.response()
            self.assertEqual(response.text, "until the end")
            self.assertTrue(response.closes)
        self.assertEqual(server.wait(), 0)
        self.assertTrue(server.logged("stopped"))

    def tell(self, pid, event):
        """Tell the process of a console event. The process id is the one that programs of Windows see."""
        done = run_beside("console_event", pid, str(event))
        if done.returncode == 77:
            self.skipTest("this system does not export CtrlRoutine")
        self.assertEqual(done.returncode, 0, done.stderr)

    @needs_terminal
    def test_ctrl_c_drains(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        server = self.serve(HELD, terminal=slave, prefix=("setsid", "--ctty"))
        os.close(slave)
        self.drains(server, lambda: os.write(master, b"\x03"))  # the key

    def test_the_end_of_the_console_drains(self):
        for event, why in (2, "the console window was closed"), (5, "the user logs off"), (6, "the system shuts down"):
            with self.subTest(why):
                server = self.serve(HELD)
                pid = read_text(server.pid_file()).strip()
                self.drains(server, lambda pid=pid, event=event: self.tell(pid, event))
                self.assertTrue(server.logged(why + ": Windows ends this program after a few seconds, drained or not"))
