"""Redis servers for tests: the real one, and one whose replies a test writes."""
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness.acceptor import Acceptor
from harness.environment import WAIT, free_port
from harness.server import run_program, temporary_folder

REDIS = shutil.which("redis-server")


def has_redis():
    """Whether the program under test has ls.redis, and a Redis server is installed."""
    return REDIS is not None and "Redis: not built in" not in run_program(["--version"])[1]


class RedisServer:
    """A redis-server without files, at a port of its own, with these arguments."""

    def __init__(self, *arguments, port=None):
        self.arguments, self.port, self.folder = arguments, port or free_port(), temporary_folder()
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder, *self.arguments],
            stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "Ready to accept connections" in line or "ready to accept connections" in line:
                break
        else:
            raise AssertionError("redis-server does not start")
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)  # its log would fill the pipe
        self.reader.start()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT)
            self.reader.join(WAIT)
            self.process.stdout.close()
            self.process = None

    def ask(self, *words):
        """The text that the server answers to a command, up to its first line end."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT) as s:
            s.sendall(encode(words))
            return s.makefile("rb").readline().decode().strip()

    def wait(self, words, condition):
        deadline = time.monotonic() + WAIT
        while not condition(self.ask(*words)):
            assert time.monotonic() < deadline, words
            time.sleep(0.01)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)


def encode(words):
    out = b"*%d\r\n" % len(words)
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out += b"$%d\r\n%s\r\n" % (len(word), word)
    return out


class FakeRedis(Acceptor):
    """Answers each command with the bytes that answer(words, number of the connection) returns; None: closes the
    connection. `commands` lists all of them."""

    def __init__(self, answer):
        self.answer, self.commands, self.connections = answer, [], 0
        super().__init__()

    def serve(self, conn, number):
        self.connections = number
        with conn.makefile("rb") as f:
            while head := f.readline():
                words = []
                for _ in range(int(head[1:])):
                    n = int(f.readline()[1:])
                    words.append(f.read(n + 2)[:-2].decode("latin-1"))
                self.commands.append(words)
                answer = self.answer(words, number)
                if answer is None:
                    return
                conn.sendall(answer)
