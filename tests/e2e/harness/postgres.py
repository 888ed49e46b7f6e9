"""A server of PostgreSQL in a temporary folder, on a Unix socket there and a free port of the loopback."""
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time

from harness.environment import WAIT, free_port

BIN = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]), default=None)
MISSING = None if BIN else "no server of PostgreSQL is installed; scripts/setup --test installs it"
USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if hasattr(os, "getuid") and os.getuid() == 0 else []
# Users of TCP need their password, but for `postgres`.
ACCESS = """local all all trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


class Postgres:
    """start() starts it; then `url` is that of its database "site"."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="pg", dir="/tmp")  # a short path: it holds a socket
        os.chmod(self.folder, 0o777)
        self.port = free_port()
        self.data = self.folder + "/data"
        self.url = "postgres://postgres@/site?host=%s&port=%d" % (self.folder, self.port)
        self.tcp = "postgres://%%s@127.0.0.1:%d/%%s" % self.port
        self.process = None
        self.run("initdb", "-D", self.data, "-N", "-U", "postgres", "--auth=trust", "--locale=C", "-E", "UTF8")
        with open(self.data + "/pg_hba.conf", "w", encoding="ascii") as access:
            access.write(ACCESS)
        self.start()
        self.run("createdb", *self.at, "site")
        self.psql("create role ada login password 'secret'")

    @property
    def at(self):
        return "-h", self.folder, "-p", str(self.port), "-U", "postgres"

    def run(self, program, *args, text=None):
        done = subprocess.run([*USER, BIN + "/" + program, *args], input=text, capture_output=True, text=True, cwd="/",
                              timeout=4 * WAIT, check=False)
        if done.returncode != 0:
            raise AssertionError("%s: %s%s" % (program, done.stdout, done.stderr))
        return done.stdout

    def start(self):
        self.process = subprocess.Popen(
            [*USER, BIN + "/postgres", "-D", self.data, "-k", self.folder, "-p", str(self.port),
             *("-c" + option for option in ("fsync=off", "max_connections=40", "shared_buffers=16MB", "wal_level=minimal",
                                            "max_wal_senders=0", "log_min_messages=panic", "log_min_error_statement=panic"))],
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_ready()

    def wait_ready(self):
        """Wait until it answers."""
        while True:
            done = subprocess.run([BIN + "/pg_isready", *self.at, "-t", "1"], capture_output=True, check=False)
            if done.returncode == 0:
                return
            if self.process.poll() is not None:
                raise AssertionError("the server of PostgreSQL has ended with status %d" % self.process.returncode)
            time.sleep(0.02)

    def psql(self, sql, database="site"):
        """The rows of a statement as text: columns are separated by |."""
        return self.run("psql", *self.at, "-d", database, "-XAtq", "-v", "ON_ERROR_STOP=1", text=sql).strip()

    def pids(self):
        """The process and its children."""
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="ascii") as children:
            return [self.process.pid, *map(int, children.read().split())]

    def signal_all(self, number):
        for pid in self.pids():
            os.kill(pid, number)

    def stop(self, number=signal.SIGQUIT):
        """End it at once, and its connections."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(WAIT)

    def cleanup(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
