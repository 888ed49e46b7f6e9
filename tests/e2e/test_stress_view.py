"""The live view of a stress run, through a pseudo-terminal and harness.screen. Under Wine a pipe stands in for a
console (tests/unit/win32/console_win32.c)."""
# sanitizers: asan; one thread runs
import os
import struct
import subprocess
import tempfile
import unittest

from harness import WAIT, WINDOWS, fcntl, needs_terminal, not_on_windows, pty, termios
from harness.screen import Screen, drawn_on
from harness.stress_report import SAMPLE


@needs_terminal
class View(unittest.TestCase):
    def start(self, ticks, columns=80, **environment):
        """Run the view on a new pseudo-terminal; returns its process and the master's side."""
        env = {"TERM": "xterm", "LANG": "C.UTF-8", "PATH": os.environ["PATH"], **environment}
        if WINDOWS:
            self.console = tempfile.NamedTemporaryFile("w")
            self.addCleanup(self.console.close)
            self.code_page = 65001 if env["LANG"].endswith("UTF-8") else 437
            env.update({"CONSOLE": self.console.name, **{k: v for k, v in os.environ.items() if k.startswith("LUASERVE_")}})
            master, slave = os.pipe()
        else:
            master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.size(master, columns)
        process = subprocess.Popen([*SAMPLE, "view", str(ticks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave, env=env)
        os.close(slave)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        return process, master

    def size(self, master, columns):
        if WINDOWS:
            self.console.seek(0)
            self.console.write("%-4d %5d\n" % (columns, self.code_page))
            self.console.flush()
        else:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, master, until):
        """The decoded output until until(text) is true; the terminal delivers whole writes."""
        text = drawn_on(master, until)
        return text.replace("\n", "\r\n") if WINDOWS else text  # as a terminal converts it

    def picture(self, master):
        return self.read(master, lambda text: text.count("\x1b[K") >= 3 and text.endswith("\n"))

    def go_on(self, process):
        process.stdin.write(b".")
        process.stdin.flush()

    def test_drawn_in_place_and_taken_away(self):
        process, master = self.start(6)
        screen = Screen(80)
        screen.feed("$ before\r\n")
        for tick in range(6):
            screen.feed(self.picture(master))
            lines = screen.text()
            self.assertEqual(len(lines), 4, lines)
            self.assertEqual(lines[0], "$ before")
            self.assertIn("%d%%  %.1fs of 10.0s, %.1fs left" % (5 * (tick + 1), (tick + 1) / 2, 10 - (tick + 1) / 2), lines[1])
            self.assertIn("/s of 4000", lines[2])
            self.assertIn("7 errors" if tick == 5 else "0 errors", lines[2])
            if tick >= 1:
                self.assertRegex(lines[3], r"p50 \d+us  p99 \d+us  max [\d.]+(us|ms)  p99 [\u2581-\u2588]+$")
            self.go_on(process)
        screen.feed(self.read(master, lambda text: False))
        self.assertEqual(screen.text(), ["$ before"])
        self.assertEqual(process.stdout.read(), b"done\n")
        self.assertGreater(screen.sgr, 0)

    def test_no_color_and_no_utf8(self):
        process, master = self.start(3, NO_COLOR="1", LANG="C")
        screen = Screen(80)
        for _ in range(3):
            text = self.picture(master)
            self.assertTrue(text.isascii())
            screen.feed(text)
            self.go_on(process)
        self.assertEqual(screen.sgr, 0)
        self.assertIn("[===", screen.text()[0])

    def test_narrow_and_resized(self):
        process, master = self.start(8, columns=100)
        screen = Screen(100)
        screen.feed("$ before\r\n")
        for columns in (100, 100, 60, 40, 15, 120, 30, 80):
            if columns != screen.columns:
                self.size(master, columns)
                screen.resize(columns)
                self.go_on(process)
            elif screen.row > 1:
                self.go_on(process)
            screen.feed(self.picture(master))
            lines = screen.text()
            self.assertEqual((lines[0], len(lines)), ("$ before", 4), (columns, lines))
            self.assertTrue(all(len(line) < columns for line in lines))

    def lines_of(self, **how):
        done = subprocess.run([*SAMPLE, "view", "7"], input=b"." * 7, stdout=subprocess.PIPE, timeout=WAIT, check=True, **how)
        self.assertEqual(done.stdout, b"done\n")
        return (done.stderr or b"").decode()

    def test_a_line_a_second_elsewhere(self):
        text = self.lines_of(stderr=subprocess.PIPE)
        self.assertRegex(text, r"\A(    [123]s  4000 requests/s  p50 \d+us  p99 \d+us  max [\d.]+(us|ms)  errors 0\n){3}\Z")

    @not_on_windows("TERM describes Unix terminals")
    def test_a_dumb_terminal_is_no_screen(self):
        process, master = self.start(2, TERM="dumb")
        self.go_on(process)
        text = self.read(master, lambda text: text.endswith("\n"))
        self.assertRegex(text, r"\A    1s  4000 requests/s .*errors \d+\r\n\Z")
        self.go_on(process)
