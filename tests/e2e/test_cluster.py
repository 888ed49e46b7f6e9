"""examples/cluster: three servers behind HAProxy, under load while one is killed, one drains, one reloads and Redis ends."""
# long; it starts PostgreSQL
# wine: none; the programs beside luaserve are those of this system
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import threading

from harness import (E2E, LUASERVE, OTHER_SYSTEM, ROOT, WAIT, WINDOWS, Conn, free_port, in_parallel, read_text,
                     run_program, temporary_folder)
from harness.postgres import BIN, MISSING
from harness.redis import has_redis
from harness.server import REPORT
from harness.websocket import WebSocket

START = os.path.join(ROOT, "examples", "cluster", "start")
SERVERS = "one", "two", "three"
CLIENTS = 6
EACH = 5  # requests of each client between two events


class Client(threading.Thread):
    """Stores messages through HAProxy, each after the answer to the previous one, on one connection, until stop()."""

    def __init__(self, number, where):
        super().__init__(daemon=True)
        self.number, self.where = number, where
        self.stored, self.repeated, self.failed, self.ends = {}, 0, [], False
        self.count = self.connections = 0

    def run(self):
        conn = None
        while not self.ends:
            try:
                if conn is None:
                    conn = Conn(self.where)
                    self.connections += 1
                self.step(conn)
                if self.count % 10 == 0:
                    self.check(conn)
            except (AssertionError, OSError) as error:
                self.failed.append("client %d, request %d: %s" % (self.number, self.count, error))
                conn = None
        if conn is not None:
            conn.close()

    def step(self, conn):
        name = "%d-%d" % (self.number, self.count)
        response = conn.ask("PUT", "/messages/" + name, body=b"message " + name.encode())
        assert response.status in (200, 201), response
        assert not response.closes, response
        self.stored[name] = response.header("X-Server")
        self.repeated += response.status == 200
        self.count += 1

    def check(self, conn):
        """The counter has at least the own messages."""
        response = conn.get("/count")
        assert response.status == 200 and json.loads(response.text)["count"] >= len(self.stored), response


class Cluster:
    """The script, and what it has started."""

    def __init__(self):
        self.port, self.temporary = free_port(), temporary_folder("cl")
        self.where = ("127.0.0.1", self.port)
        environment = dict(os.environ, LUASERVE=LUASERVE, TMPDIR=self.temporary)
        self.reports = temporary_folder()
        for name, options in (("ASAN", "detect_leaks=1:allocator_may_return_null=1"), ("UBSAN", "print_stacktrace=1"),
                              ("TSAN", "second_deadlock_stack=1")):
            environment[name + "_OPTIONS"] = options + ":log_path=%s/%s" % (self.reports, name)
        for folder in self.temporary, self.reports:
            os.chmod(folder, 0o755)  # PostgreSQL runs as another user than root
        self.process = subprocess.Popen([START, "127.0.0.1:%d" % self.port], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)
        said = self.process.stdout.readline()
        if "logs and process ids are in " not in said:
            raise AssertionError(said + self.process.stdout.read())
        self.folder = said.split(" are in ")[1].strip()

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        return read_text(self.path(name))

    def pid(self, name):
        return self.read(name + ".pid").strip()

    def socket(self, name):
        return self.path(name + ".sock")

    def answers(self, name):
        try:
            with Conn(self.socket(name)) as conn:
                return conn.get("/up").text == name + "\n"
        except (AssertionError, OSError):
            return False

    def stat(self, name):
        """A column of HAProxy's `show stat`, for each server."""
        done = Conn(self.path("admin.sock"))
        rows = [line.split(",") for line in done.send(b"show stat\n").rest().decode().splitlines() if line]
        done.close()
        at = rows[0].index(name)
        return {row[1]: row[at] for row in rows[1:] if row[0] == "servers"}

    def psql(self, sql):
        return subprocess.run([BIN + "/psql", "-h", self.path("postgres"), "-U", "postgres", "-XAtqc", sql, "postgres"],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=WAIT).stdout.split()

    def processes(self):
        """The ids of the programs, and of all that have the folder in their command line."""
        found = {int(self.read(os.path.basename(path))) for path in glob.glob(self.path("*.pid"))}
        for path in glob.glob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                with open(path, "rb") as environment:
                    if b"FOLDER=" + self.folder.encode() + b"\0" in environment.read():
                        found.add(int(path.split("/")[2]))
        return found

    def cleanup(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(WAIT)
        self.process.stdout.close()
        shutil.rmtree(self.temporary, ignore_errors=True)
        shutil.rmtree(self.reports, ignore_errors=True)


def ended(pid):
    try:
        return read_text("/proc/%d/stat" % pid).rsplit(")", 1)[1].split()[0] == "Z"  # of nobody who waits for it
    except OSError:
        return True


class Start(E2E):
    def test_it_says_which_program_is_missing(self):
        if WINDOWS:
            self.skipTest(OTHER_SYSTEM + "the script is for this one")
        done = subprocess.run([START], env=dict(os.environ, LUASERVE="/no/luaserve"), capture_output=True, text=True, check=False,
                              timeout=WAIT)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "start: /no/luaserve is not installed\n"))


class Load(E2E):
    def setUp(self):
        lacks = (WINDOWS and "the programs of the cluster run on this system" or MISSING and "PostgreSQL is not installed"
                 or not has_redis() and "this luaserve has no ls.redis, or redis-server is not installed"
                 or "PostgreSQL: libpq" not in run_program(["--version"])[1] and "this luaserve has no libpq"
                 or not shutil.which("haproxy") and "haproxy is not installed")
        if lacks:
            self.skipTest(OTHER_SYSTEM + lacks)
        super().setUp()
        self.cluster = Cluster()
        self.addCleanup(self.cluster.cleanup)
        self.clients = [Client(number, self.cluster.where) for number in range(CLIENTS)]

    def stop_clients(self):
        for client in self.clients:
            client.ends = True
        for client in self.clients:
            client.join(WAIT)

    def go_on(self):
        """Each client gets EACH further answers."""
        goals = [client.count + EACH for client in self.clients]
        self.eventually(lambda: all(c.count >= goal or c.failed for c, goal in zip(self.clients, goals)), "answers")
        self.assertEqual([line for client in self.clients for line in client.failed], [])

    def served_by(self, name):
        """HAProxy sends requests to this server again."""
        before = int(self.cluster.stat("hrsp_2xx")[name])
        self.eventually(lambda: int(self.cluster.stat("hrsp_2xx")[name]) > before, "answers of " + name)

    def send(self, name, number):
        """Signal a program; another one takes its place, unless it is a reload."""
        before = self.cluster.pid(name)
        os.kill(int(before), number)
        if number != signal.SIGHUP:
            self.eventually(lambda: self.cluster.pid(name) not in ("", before), name + " is started again")

    def logs(self, name, text):
        self.eventually(lambda: text in self.cluster.read(name + ".log"), "%s logs %r" % (name, text))

    def test_no_request_fails_while_servers_end(self):
        cluster = self.cluster
        live = {"three": WebSocket(cluster.socket("three"), "/live")}
        for client in self.clients:
            client.start()
        self.addCleanup(self.stop_clients)
        self.go_on()
        for name, number in (("one", signal.SIGKILL), ("two", signal.SIGTERM), ("three", signal.SIGHUP)):
            self.send(name, number)
            if number == signal.SIGHUP:
                self.logs(name, "reloaded ")
            self.eventually(lambda server=name: cluster.answers(server), name + " answers")
            self.served_by(name)
            self.go_on()
        self.assertIn("stopped", cluster.read("two.log"))
        for name in "one", "two":
            live[name] = WebSocket(cluster.socket(name), "/live")
        self.send("redis", signal.SIGKILL)
        for name in SERVERS:
            self.logs(name, "topics: connected to ")
        self.go_on()
        self.stop_clients()
        stored = {}
        for client in self.clients:
            self.assertEqual(client.failed, [])
            self.assertEqual((client.connections, len(client.stored)), (1, client.count))
            stored.update(client.stored)
        self.assertEqual(set(stored.values()), set(SERVERS))
        self.assertEqual(sorted(cluster.psql("select id from messages")), sorted(stored))
        with Conn(cluster.where) as conn:
            self.assertEqual(json.loads(conn.get("/count").text), {"count": len(stored)})
        for name in SERVERS:
            with Conn(cluster.socket(name)) as conn:
                self.assertEqual(conn.ask("PUT", "/messages/from-" + name, body=b"hello").status, 201)
                self.assertEqual(conn.ask("PUT", "/messages/from-" + name, body=b"other").status, 200)
        in_parallel([lambda ws=ws: self.gets_one_of_each(ws) for ws in live.values()])
        for name in SERVERS:
            self.assertNotIn(" error ", cluster.read(name + ".log"))
        for ws in live.values():
            ws.conn.close()
        self.ends(signal.SIGTERM)

    def gets_one_of_each(self, ws):
        """The messages of the three servers, with the text that was stored first."""
        missing = {"from-" + name for name in SERVERS}
        while missing:
            message = json.loads(ws.receive())
            if message["id"] in missing:
                self.assertEqual("from-" + message["server"], message["id"])
                self.assertEqual(message["text"], "hello")
                missing.remove(message["id"])

    def ends(self, number):
        """The script ends with all that it has started, and without a report of a sanitizer."""
        cluster, pids = self.cluster, self.cluster.processes()
        self.assertGreater(len(pids), 6)
        os.kill(cluster.process.pid, number)
        self.assertEqual(cluster.process.wait(2 * WAIT), 0)
        self.assertEqual(cluster.process.stdout.read(), "")
        self.assertEqual([pid for pid in pids if not ended(pid)], [])
        self.assertEqual(os.listdir(cluster.temporary), [])
        for path in glob.glob(cluster.reports + "/*"):
            with open(path, encoding="utf-8", errors="replace") as report:
                self.assertNotRegex(report.read(), REPORT)
