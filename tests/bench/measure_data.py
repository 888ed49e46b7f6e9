"""The measurements of data: a row by its key of SQLite, Redis and PostgreSQL per request, writes, a busy database.

Redis and PostgreSQL are started by the benchmark, on the core of the load, with data of their own. The site is sites/data.lua.
"""
import glob
import os
import pwd
import shutil
import signal
import subprocess

import measure_websocket
from measure import cpu_per_request, stall
from servers import HELLO, HERE, SITES, Server, Unavailable, get, javascript, luaserve, nginx

ROW = "/rows/42"
NAME = b"item 42"


def request(server, load_cpu, seconds, target=ROW, **_):
    return cpu_per_request(server, load_cpu, seconds, target)


def insert(server, load_cpu, seconds, **_):
    """Inserts per request; every answered one is in the table afterwards."""
    def count():
        return int(get(server, "/events")[2])
    before = count()
    result = cpu_per_request(server, load_cpu, seconds, "/insert")
    result["failures"] += max(0, result["requests"] - (count() - before))
    return {**result, "interval_us": 1e6 / result["per_second"]}


def busy(server, build, seconds, **_):
    return stall(server, os.path.join(build, "open_loop"), "/busy", max(seconds, 3))


class Redis(Server):
    """redis-server with one value."""

    def __init__(self, at):
        super().__init__("redis", lambda directory, port: ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                                           "--dir", directory], at.load_cpu, at.directory, "redis")

    def ready(self):
        """Whether it has stored the value."""
        ended = subprocess.run(["redis-cli", "-p", str(self.port), "set", "user:42", NAME.decode()], check=False, capture_output=True)
        return ended.stdout.strip() == b"OK"


class Postgres(Server):
    """A cluster of PostgreSQL in a temporary folder, with the rows of sites/data.lua; as root it runs as the user postgres."""

    stop_signal = signal.SIGINT  # does not wait for the end of the connections
    SQL = ("create table item (id integer primary key, name text not null); insert into item select n, 'item ' || n "
           "from generate_series(1, 1000) n; analyze item")

    def __init__(self, at):
        super().__init__("postgres", self.command, at.load_cpu, at.directory, "postgres")
        self.root = os.geteuid() == 0

    @staticmethod
    def program(name):
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
        if not found:
            raise Unavailable("PostgreSQL is not installed")
        return found[-1]

    def as_user(self, *argv):
        return ["runuser", "-u", "postgres", "--", *argv] if self.root else list(argv)

    def command(self, directory, port):
        data = os.path.join(directory, "data")
        if self.root:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                raise Unavailable("there is no user postgres") from None
            os.chmod(os.path.dirname(directory), 0o711)
            os.chown(directory, user.pw_uid, user.pw_gid)
        shutil.rmtree(data, ignore_errors=True)
        subprocess.run(self.as_user(self.program("initdb"), "-D", data, "-A", "trust", "-U", "bench", "--no-sync"), cwd=directory,
                       check=True, capture_output=True)
        return self.as_user(self.program("postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", directory)

    def ready(self):
        """Whether it has made the table."""
        return subprocess.run([self.program("psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "bench", "-d", "postgres", "-qc", self.SQL],
                              check=False, capture_output=True).returncode == 0

    def database(self):
        return f"postgres://bench@127.0.0.1:{self.port}/postgres"


class Balanced(Server):
    """HAProxy on the core of the load, with its connections to these servers in turn."""

    CONFIGURATION = """
global
    nbthread 1
    maxconn 4000
defaults
    mode tcp
    timeout client 1h
    timeout connect 5s
    timeout server 1h
listen bench
    bind 127.0.0.1:%d
    balance roundrobin
"""

    def __init__(self, name, members, at):
        super().__init__(name, self.command, at.load_cpu, at.directory, answers=HELLO, behind=members)
        self.members = members

    def command(self, directory, port):
        path = os.path.join(directory, "haproxy.cfg")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.CONFIGURATION % port)
            for number, member in enumerate(self.members):
                file.write(f"    server s{number} 127.0.0.1:{member.port}\n")
        return ["haproxy", "-db", "-f", path]


def topics(server, load_cpu, seconds, program, **_):
    """CPU per delivery of the servers together: a client publishes to one, each has its part of the subscribers."""
    return measure_websocket.fan_out(server, "/sub", program, load_cpu, seconds, 64)


NGINX_REDIS = """
        set $redis_port @REDIS@;
        location = / { return 200 "hello, world\\n"; }
        location = /get { content_by_lua_block { bench.redis() } }
"""


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    redis, postgres = Redis(at), Postgres(at)
    servers = {"redis": redis, "postgres": postgres}
    row = {**HELLO, ROW: NAME}
    value = {**HELLO, "/get": NAME}

    def add(name, make, answers, behind=()):
        servers[name] = Server(name, make, at.cpu, at.directory, answers=answers, behind=behind)

    def site(program, kind, where, threads=1):
        return lambda directory, port: luaserve(program, threads, os.path.join(SITES, "data.lua"), [kind, where(directory)])(
            directory, port)

    def file(directory):
        for path in glob.glob(os.path.join(directory, "bench.db*")):
            os.remove(path)
        return os.path.join(directory, "bench.db")

    def redis_url(_):
        return f"redis://127.0.0.1:{redis.port}/0"

    for end, program in at.programs(""):
        add("luaserve sqlite" + end, site(program, "sqlite", file), row)
        servers["luaserve sqlite threads" + end] = Server("luaserve sqlite threads" + end, site(program, "sqlite", file, None), None,
                                                          at.directory, answers=row)
        members = [Server(f"luaserve topics {n}{end}", lambda directory, port, program=program: luaserve(
            program, 1, os.path.join(HERE, "websocket", "ws.lua"), [redis_url(directory)])(directory, port), at.cpu, at.directory,
            answers=HELLO, behind=(redis,)) for n in (1, 2, 3)]
        servers.update({member.name: member for member in members})
        for name, some in ("one server", members[:1]), ("two servers", members[1:]):
            servers[f"luaserve topics, {name}{end}"] = Balanced(f"luaserve topics, {name}{end}", some, at)
        add("luaserve redis" + end, site(program, "redis", redis_url), value, (redis,))
        add("luaserve postgres" + end, site(program, "postgres", lambda _: postgres.database()), row, (postgres,))
    add("bun sqlite", lambda directory, port: javascript(at.packages, "sites/bun.js", "bun", "sqlite", file(directory))(directory, port),
        row)
    add("nginx-lua redis", nginx(NGINX_REDIS, ports={"REDIS": redis}), value, (redis,))
    add("node postgres", lambda directory, port: javascript(
        at.packages, "sites/node.js", "pg", "postgres", postgres.database())(directory, port), row, (postgres,))
    return servers


def names(*servers, **how):
    return {name: (name, how) for name in servers}


# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {
    "data-select": (names("luaserve sqlite", "bun sqlite"), request, {}),
    "data-insert": (names("luaserve sqlite", "bun sqlite"), insert, {}),
    "data-busy": (names("luaserve sqlite threads"), busy, {}),
    "data-redis": (names("luaserve redis", "nginx-lua redis"), request, {"target": "/get"}),
    "data-topics": (names("luaserve topics, two servers", "luaserve topics, one server"), topics, {}),
    "data-postgres": (names("luaserve postgres", "node postgres"), request, {}),
}
