"""Runs the code blocks of a page. The first word of a block's info string is its language, the rest says how the block is run:

    lua                 a complete site: site.lua of an empty folder. It serves while the blocks up to the next site run; then it
                        gets SIGTERM and must end with status 0. When a console block starts site.lua itself, or a C program
                        follows, only these do.
    lua file=NAME       the file NAME in the folder of the next site, and of the later sites of the page. Any language.
    lua load            statements run while a site loads; `ls` and `app` are defined, the app is served. `lua load check`: only by
                        luaserve --check, for what another machine would be needed to serve.
    lua handler         statements run by one request, inside a handler; `ls`, `app`, `req` and `res` are defined. Options shape
                        the request: method= path= route= body= header=Name:value. The handler must not fail.
    lua stress          a script for luaserve stress, run shortly against the site above it. `lua stress wrk`: with -s.
    console             lines that begin with "$ " are commands for /bin/sh; the lines behind one are its output. A line ... stands
                        for any lines, ... inside a line for any text, a JSON object for the same in another order. A command
                        that serves, or ends in &, runs until the next site. $? is that of the command before.
    console wrong       the same with wrong input: the site answers it, and its log has no error. Each recipe and each page of a task has one.
    c                   a complete program, linked against the library and run beside what follows it. It serves site.lua,
                        or prints the URL of a site of its own, which must answer.
    json                parsed.
    ini                 parsed; the command of ExecStart= is run with this program and the site above.
    nginx, haproxy      the real program is started in front of the site above, and a request sent through it.
    text                not run.

Values and errors that comments of Lua blocks state are checked: docs_values.py. Ports that a page names are replaced by free ones,
and Unix sockets in /run by files of the folder; in what a command prints they are put back.
"""
import configparser
import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

import docs_proxies
from docs_pages import DocError, blocks_of, scopes_of
from docs_values import Values, recorder, same_text
from harness.postgres import MISSING, Postgres
from harness import (LUASERVE, ROOT, SANITIZER, WAIT, Closed, Conn, Server, free_port, in_parallel, read_text, request, write_text)

BUILD = os.path.dirname(LUASERVE)
DEFAULT_SITE = """local ls = require "luaserve"
local app = ls.app()
app:any("/*rest", function() return "hello\\n" end)
ls.listen(8080, app)
"""
SCOPES_AT_A_TIME = 4


# ---- ports ---------------------------------------------------------------------------------------------------------

class Ports:
    """The ports that the blocks of one scope name, and the free ones that stand for them: as many digits, so that lengths stay."""

    NAMED = [re.compile(pattern) for pattern in (
        r"(?:\d+\.\d+\.\d+\.\d+|\blocalhost|[*+\]]|://[\w.-]+|\b[a-z][\w-]*(?:\.[\w-]+)+):(\d{2,5})\b",
        r"\b(?:listen|tcp|udp)\s*\(\s*(\d{4,5})\b", r"\bport\s*=\s*(\d{2,5})\b",
        r"\b(?:connect|sendto|bind)\s*\([^()\n]*?[\"'][^\"'\n]*[\"']\s*,\s*(\d{4,5})\b",
        r"(?m)^\s*listen\s+(?:[\w.*\[\]:]+:)?(\d{2,5})\b", r"(?m)^\s*bind\s+\S*:(\d{2,5})\b",
        r"\b(?:nc|socat)\s[^\n|]*?[\w.]+\s(\d{4,5})\b",
    )]

    def __init__(self, folder):
        self.free_of, self.folder = {}, folder

    def learn(self, text):
        for pattern in self.NAMED:
            for port in pattern.findall(text):
                if port not in self.free_of:
                    self.free_of[port] = str(free_port(*((2000, 9999) if len(port) < 5 else ())))
        for folder in re.findall(r"(?<![\w.])/run/([\w./-]+)/", text):
            os.makedirs(os.path.join(self.folder, "run", folder), exist_ok=True)
        return self

    def _replace(self, text, table):
        if not table:
            return text
        return re.sub(r"(?<![\w.])(%s)(?!\w)" % "|".join(map(re.escape, table)), lambda match: table[match.group(1)], text)

    def there(self, text):
        """A text of the page as it is run."""
        return re.sub(r"(?<![\w.])/run/", self.folder + "/run/", self._replace(text, self.free_of))

    def back(self, text):
        """What a program said, as the page would have it."""
        return self._replace(text.replace(self.folder + "/run/", "/run/"), {there: here for here, there in self.free_of.items()})


# ---- console -------------------------------------------------------------------------------------------------------

# luaserve with a site, in the foreground or not; not luaserve stress, --check, --help, --version
SERVES = re.compile(r"(?:^|[;&|]\s*)(?:\S*/)?luaserve\s+(?!stress\b)(?!.*--(?:check|help|version)\b)(?:dev\s+)?"
                    r"(?:--[\w-]+(?:=\S+|\s+\S+)\s+)*(\S+\.lua)\b")


def commands_of(block):
    """[(line of the page, command, lines of output)]. A line that ends in a backslash goes on in the next."""
    commands, goes_on = [], False
    for number, line in enumerate(block.lines, block.line):
        if goes_on:
            commands[-1][1] += "\n" + line
        elif line.startswith("$ "):
            commands.append([number, line[2:], []])
        elif commands:
            commands[-1][2].append(line)
            continue
        elif line.strip():
            raise block.error('a console block begins with a command: "$ ..."', number)
        goes_on = commands and commands[-1][1].endswith("\\")
    return commands


def trimmed(lines):
    """Without spaces at the ends of lines, and without empty lines at the end."""
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def same_lines(expected, actual):
    """Whether the output is as the page has it."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(same_lines(expected[1:], actual[skip:]) for skip in range(len(actual) + 1))
    return bool(actual) and same_text(expected[0], actual[0]) and same_lines(expected[1:], actual[1:])


class Command:
    """A command of a console block, running in a process group of its own."""

    printed_within = WAIT  # seconds from when it is ready

    def __init__(self, run, line, text, expected):
        self.line, self.expected, self.run = line, trimmed(expected), run
        self.serves = SERVES.search(text)
        self.stays, self.stayed = self.serves or text.endswith("&"), False
        text = run.ports.there(text.rstrip("& ") if text.endswith("&") else text)
        self.simple = not re.search(r"[;&|<>()$`\n]", text)
        handle, self.path = tempfile.mkstemp(dir=run.outside)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(run.started)
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", "(exit %d); %s%s" % (run.status, "exec " if self.simple and self.stays else "", text)],
            cwd=run.folder, env=run.environment(), stdin=subprocess.DEVNULL, stdout=handle, stderr=subprocess.STDOUT,
            start_new_session=True)
        os.close(handle)

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace", newline="") as out:
            return self.run.ports.back(out.read().replace("\r\n", "\n"))

    def as_expected(self, more=False):
        """`more`: further lines may follow."""
        return same_lines(self.expected + ["..."] * more, trimmed(self.output().split("\n")))

    def ended(self):
        """None, or its status. The process is not waited for before `end`: until then no other one gets its number, which is
        that of its group."""
        left = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return left and (left.si_status if left.si_code == os.CLD_EXITED else -left.si_status)

    def wait(self):
        """Until it has ended or, when it stays, until it is ready and has printed what the page says."""
        deadline, ready = time.monotonic() + 2 * WAIT, False
        while (status := self.ended()) is None:
            if not ready and self.stays:
                ready = not self.serves or os.path.exists(self.run.started) or "listening on" in self.output()
                deadline = time.monotonic() + self.printed_within if ready else deadline
            if ready and self.as_expected(more=True):
                self.stayed = True
                return None
            if time.monotonic() > deadline:
                raise AssertionError("the command did not %s; its output:\n%s"
                                     % ("print what the page says" if self.stays else "end", self.output()))
            time.sleep(0.01)
        if not self.as_expected():
            raise AssertionError("the output differs; the program printed:\n%s" % self.output())
        return status

    def end(self):
        """SIGTERM, then SIGKILL to what its group still has. A server must end with status 0."""
        if self.ended() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 2 * WAIT
        while self.ended() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        late = self.ended() is None
        os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        if late:
            raise AssertionError("the command did not end after SIGTERM:\n%s" % self.output())
        if not (self.stayed and self.serves and self.simple):
            return  # another program's status, or the shell's
        if status != 0:
            raise AssertionError("status %d after SIGTERM:\n%s" % (status, self.output()))


# ---- a scope -------------------------------------------------------------------------------------------------------

class Run:
    """One scope: its folder, its ports, and what runs in it."""

    def __init__(self, scope):
        self.scope, self.status, self.ending, self.logs = scope, 0, [], []
        self.outside = tempfile.mkdtemp(prefix="luaserve-docs-")
        self.folder = os.path.join(self.outside, "site")
        self.started = os.path.join(self.outside, "started")
        self.ports = Ports(self.folder)
        for name in ("site", "site/run", "bin", "curl"):
            os.mkdir(os.path.join(self.outside, name))
        for name, target in (("build", BUILD), ("examples", os.path.join(ROOT, "examples")), ("src", os.path.join(ROOT, "src"))):
            os.symlink(target, os.path.join(self.folder, name))
        os.symlink(LUASERVE, os.path.join(self.outside, "bin", "luaserve"))
        with open(os.path.join(self.outside, "curl", ".curlrc"), "w") as out:
            out.write("silent\nshow-error\n")  # as on a terminal, where it shows no progress beside the output
        self.recorder = os.path.join(self.outside, "recorder.lua")
        self.records = os.path.join(self.outside, "records")
        write_text(self.recorder, recorder(self.records))

    def environment(self):
        return dict(os.environ, PATH=os.path.join(self.outside, "bin") + ":" + os.environ["PATH"], LC_ALL="C.UTF-8",
                    CURL_HOME=os.path.join(self.outside, "curl"), HOME=self.folder, TERM="dumb")

    def write(self, name, text, ports=None):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_text(path, (ports or self.ports).there(text))
        return path

    def write_site(self, text, name="site.lua"):
        """With a last line by which it says that it serves."""
        mark = '\nrequire("luaserve").on("start", function() io.open(os.getenv "STARTED" or "%s", "w"):close() end)\n' % self.started
        return self.write(name, text.rstrip("\n") + mark)

    def serve(self, name, flags=()):
        """A Server of a file in the folder, when it has begun to serve. A state of the server before may begin as late as now:
        its file is another one."""
        started = "%s%d" % (self.started, len(self.ending))
        server = Server(None, site_path=name, cwd=self.folder, listeners=0, flags=flags, env={"STARTED": started})
        self.ending.append(server.cleanup)
        self.logs.append(server.log)
        deadline = time.monotonic() + WAIT
        while server.alive() and not os.path.exists(started):
            if time.monotonic() > deadline:
                raise AssertionError("the site did not start:\n" + server.log())
            time.sleep(0.005)
        if not server.alive() and server.wait() != 0:
            raise AssertionError("the site ended with status %d:\n%s" % (server.process.returncode, server.log()))
        return server

    @staticmethod
    def stop(server):
        if (server.logged(" info draining$") or not server.alive()) and server.wait() == 0:  # by ls.stop
            server.check_reports()
        else:
            server.stop()

    def close(self):
        for end in reversed(self.ending):
            end()
        shutil.rmtree(self.outside, ignore_errors=True)

    # ---- the kinds of blocks

    def load(self, block):
        values = Values(block, self.recorder)
        text = "local ls = require 'luaserve'; local app = ls.app(); " + values.text
        ports = Ports(self.folder).learn(text)
        name = "load%d.lua" % block.line
        if "check" in block.words:
            write_text(os.path.join(self.folder, name), text + "ls.listen(8080, app)\n")  # nothing is bound: the ports of the page
            done = subprocess.run([LUASERVE, "--check", name], cwd=self.folder, capture_output=True, text=True, timeout=2 * WAIT,
                                  check=False)
            if done.returncode != 0:
                raise AssertionError(done.stderr)
        else:
            text = ports.there(text)  # not by write_site: its ports are the scope's
            self.stop(self.serve(os.path.basename(self.write_site(
                text + 'ls.listen{ host = "127.0.0.1", port = 0, handler = app }\n', name))))
        values.check(self.records, ports.back)

    def handler(self, block):
        values = Values(block, self.recorder)
        path = block.options.get("path", "/")
        route = block.options.get("route") or path.partition("?")[0]
        if "%" in route:
            route = "/*rest"
        name = "handler%d.lua" % block.line
        self.write_site("local ls = require 'luaserve'; local app = ls.app(); app:any('%s', function(req, res) do %s end "
                        "pcall(res.status, res, 200) end)\n"
                        'ls.listen{ host = "127.0.0.1", port = 0, handler = app }\n' % (route, values.text), name)
        server = self.serve(name)
        body = block.options.get("body")
        headers = [header.split(":", 1) for header in [block.options.get("header")] if header]
        method = block.options.get("method") or ("POST" if body is not None else "GET")
        server.wait_log("listening on http://127.0.0.1")
        with Conn([at for at in server.addresses if isinstance(at, tuple)][-1]) as conn:
            conn.send(request(method, path, headers, body.encode() if body is not None else None))
            try:
                conn.response(method)
            except Closed:
                if "res:abort" not in block.text:
                    raise AssertionError("the handler sent no answer:\n" + server.log()) from None
        self.stop(server)
        failed = server.logged(r" error request [0-9a-f]+ ")
        if failed:
            raise AssertionError("the handler failed: %s" % failed[0])
        values.check(self.records, self.ports.back)

    def stress(self, block):
        name = block.file or "stress%d.lua" % block.line
        self.write(name, block.text)
        short = ["-q"]
        if not re.search(r"\bstages\s*=|\brequests\s*=|\bsends\s*=", block.text):
            short += ["-d", "0.3s"]
        arguments = ["-s", name, self.ports.there("http://127.0.0.1:8080/")] if "wrk" in block.words else [name]
        done = subprocess.run([LUASERVE, "stress", *short, *arguments], cwd=self.folder, capture_output=True, text=True,
                              timeout=2 * WAIT, check=False)
        if done.returncode not in ((0, 99) if "thresholds" in block.text else (0,)):
            raise AssertionError("luaserve stress ended with status %d:\n%s%s" % (done.returncode, done.stdout, done.stderr))

    def console(self, block):
        for line, text, expected in commands_of(block):
            try:
                if text.startswith("luaserve ") and (serves := SERVES.search(text)) and not self.scope.site and \
                        not os.path.exists(os.path.join(self.folder, serves[1])):
                    raise AssertionError("it serves %s, which is not here: the blocks with file= come before the site" % serves[1])
                command = Command(self, line, text, expected)
                self.ending.append(lambda command=command: self.end_command(block, command))
                self.logs += [command.output] if command.serves else []
                status = command.wait()
                self.status = status if status is not None else 0
            except AssertionError as error:
                raise block.error("$ %s\n%s" % (text, error), line) from None

    def errors(self, since):
        """What the sites of this scope have logged as errors since this time, which lines begin with. A line may come later
        than what it reports."""
        logs = [log() for log in self.logs]
        return [line for log in logs for line in log.split("\n") if re.match(r"\S+Z error ", line) and line >= since]

    def wrong(self, block):
        since = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:23]
        self.console(block)
        errors = self.errors(since)
        until = time.monotonic() + WAIT
        while not errors and "Internal Server Error" in block.text and time.monotonic() < until:
            time.sleep(0.01)  # the line of an error is on its way to the log
            errors = self.errors(since)
        if errors:
            raise block.error("wrong input is an error of the site:\n" + "\n".join(errors))

    @staticmethod
    def end_command(block, command):
        try:
            command.end()
        except AssertionError as error:
            raise block.error(error, command.line) from None

    def c(self, block):
        source = self.write("program%d.c" % block.line, block.text)
        if SANITIZER:
            return  # the library of this build needs the sanitizer's own link
        done = subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(ROOT, "src"), "-I/usr/include/lua5.4",
                               source, "-o", source[:-2], "-L" + BUILD, "-Wl,-rpath," + BUILD, "-lluaserve", "-llua5.4"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError("cc failed:\n" + done.stderr)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.started)
        with open(os.path.join(self.outside, "program.out"), "w") as out:
            program = subprocess.Popen([source[:-2]], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       env=self.environment())

        def end():
            if program.poll() is None:
                program.terminate()
            if program.wait(2 * WAIT) not in (0, -signal.SIGTERM):
                raise block.error("the program ended with status %d:\n%s" % (program.returncode, read_text(out.name)))

        self.ending.append(end)
        deadline = time.monotonic() + WAIT
        while program.poll() is None and not os.path.exists(self.started):
            if time.monotonic() > deadline:
                raise AssertionError("the program did not start to serve the site")
            with open(out.name) as said:
                url = said.readline()
            if url.startswith("http://") and url.endswith("\n"):
                with urllib.request.urlopen(url.strip(), timeout=WAIT) as response:
                    return response.read()
            time.sleep(0.005)
        return None

    @staticmethod
    def json(block):
        try:
            json.loads(block.text)
        except ValueError as error:
            raise AssertionError(str(error)) from None

    def ini(self, block):
        parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
        parser.optionxform = str
        try:
            parser.read_string(block.text)
        except configparser.Error as error:
            raise AssertionError(str(error)) from None
        command = parser.get("Service", "ExecStart", fallback=None)
        if command is None:
            return
        words = shlex.split(command.replace("\\\n", " "))
        if os.path.basename(words[0].lstrip("-@:+!")) != "luaserve":
            raise AssertionError("ExecStart does not start luaserve: %s" % command)
        sites = [i for i, word in enumerate(words) if word.endswith(".lua")]
        if len(sites) != 1:
            raise AssertionError("ExecStart names no site: %s" % command)
        text = self.scope.site.text if self.scope.site else DEFAULT_SITE
        ports = Ports(self.folder).learn(text)  # the scope's are in use
        words = [ports.learn(word).there(word) for word in (w.replace("%t", "/run").replace("%i", "site") for w in words)]
        name = os.path.basename(self.write_site(ports.there(text), "unit%d.lua" % block.line))
        self.stop(self.serve(name, flags=words[1:sites[0]]))

    def proxy(self, block):
        process = docs_proxies.start(block.language, self.ports.there(block.text), self.outside)

        def end():
            process.terminate()
            process.wait(2 * WAIT)

        self.ending.append(end)

    # ---- all of it

    def serves_itself(self):
        """Whether blocks of the scope start the site."""
        for block in self.scope.rest:
            if block.language == "c" and not SANITIZER:
                return True
            if block.language == "console" and any(SERVES.search(line[2:]) for line in block.lines if line.startswith("$ ")):
                return True
        return False

    def run_block(self, block):
        if block.language == "lua":
            kinds = [word for word in block.words if word not in ("check", "wrk")]
            method = {"load": self.load, "handler": self.handler, "stress": self.stress}.get(kinds[0] if len(kinds) == 1 else None)
        elif block.language == "console" and block.words == ["wrong"]:
            method = self.wrong
        else:
            method = {"console": self.console, "c": self.c, "json": self.json, "ini": self.ini, "nginx": self.proxy,
                      "haproxy": self.proxy}.get(block.language if not block.words else None)
        if method is None:
            raise block.error("no rule says how to run a block %r" % " ".join([block.language, *block.words]).strip())
        located(block, method, block)

    def write_all(self):
        """The files of the scope. -> [(block, its Values)] of the Lua files"""
        scope, sites = self.scope, []
        blocks = [*scope.files, *([scope.site] if scope.site else []), *scope.rest]
        for block in blocks:  # a file may have a port that only a later block tells to be one
            if block.language != "lua" or "load" not in block.words:
                self.ports.learn(block.text)
        for block in blocks:
            if block.language == "lua" and block.file and "stress" not in block.words:
                sites.append((block, Values(block, self.recorder)))
                self.write(block.file, sites[-1][1].text)
            elif block.file and "stress" not in block.words:
                self.write(block.file, block.text)
        if any("stress" in block.words for block in scope.rest) or scope.site is None:
            self.ports.learn("127.0.0.1:8080")
        if scope.site:
            sites.append((scope.site, Values(scope.site, self.recorder)))
            self.write_site(sites[-1][1].text)
        elif any("stress" in block.words or block.language in ("c", "nginx", "haproxy") for block in scope.rest):
            self.write_site(DEFAULT_SITE)
        return sites

    def run_all(self):
        scope, server, sites = self.scope, None, self.write_all()
        if os.path.exists(os.path.join(self.folder, "site.lua")) and not self.serves_itself():
            server = located(scope.site or scope.rest[0], self.serve, "site.lua")
        for block in scope.rest:
            self.run_block(block)
        if server:
            located(scope.site or scope.rest[0], self.stop, server)
        for block, values in sites:
            values.check(self.records, self.ports.back)


def located(block, method, *args):
    """Call, and say where in the page it failed."""
    try:
        return method(*args)
    except DocError:
        raise
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        raise block.error(error) from error


def run_scope(scope):
    """-> the texts of its failures"""
    run, failures = Run(scope), []
    try:
        run.run_all()
    except DocError as error:
        failures.append(str(error))
    finally:
        try:
            run.close()
        except DocError as error:
            failures.append(str(error))
    return failures


@contextlib.contextmanager
def postgres_of(blocks):
    """For a page that uses PostgreSQL: a server, which the environment names."""
    if not any("ls.postgres(" in block.text for block in blocks):
        yield
        return
    if MISSING:
        raise unittest.SkipTest(MISSING)
    server = Postgres()
    names = {"PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres"}
    try:
        os.environ.update(names)
        yield
    finally:
        for name in names:
            del os.environ[name]
        server.cleanup()


def run_page(page, root=ROOT):
    """Run the blocks of a page. -> the texts of the failures, each with page:line"""
    blocks = blocks_of(page, read_text(os.path.join(root, page)))
    scopes = scopes_of(blocks)
    with postgres_of(blocks):
        return sum(in_parallel([lambda scope=scope: run_scope(scope) for scope in scopes], SCOPES_AT_A_TIME), [])
