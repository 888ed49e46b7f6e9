"""ls.process: a program runs without a shell while the task waits, within limits, and never outlives what waits for it."""
import contextlib
import glob
import json
import os
import unittest
from urllib.parse import quote

from harness import (E2E, LUASERVE, OTHER_SYSTEM, WINDOWS, app_site, not_on_windows, read_text, temporary_folder, write_text)

SITE = app_site(r"""
ls.config { drain_timeout = 1 }
local fine, message = pcall(ls.process, { "true" })
app:get("/loading", function() return tostring(fine) .. " " .. message end)
app:post("/run", function(req)
  local given = req:json()
  local result, text, code, rest = ls.process(given.argv, given.options)
  return { result = result, message = text, code = code, rest = rest }
end)
app:post("/large", function(req) -- the size and the digest of what cat repeats
  local body = req:buffer()
  local result = assert(ls.process({ "cat" }, { stdin = body, max_out = "64m" }))
  return { #result.out, result.out == body:tostring() }
end)
app:get("/lines", function(req)
  local lines = {}
  local result, message, code = ls.process({ "sh", "-c", req.query.command }, { max_out = 10, output = function(line)
    lines[#lines + 1] = line
    ls.sleep(0.001)
    if line == "raise" then error("raised") end
  end })
  return { lines = lines, result = result, message = message, code = code }
end)
app:post("/again", function(req) -- without a pause, so that the descriptors of one program are those of the next
  for n = 1, 10 do
    local result, message = ls.process(req:json())
    if not result then return n .. ": " .. message end
  end
  return "done"
end)
app:get("/field", function(req)
  local result, _, _, cut = ls.process({ "echo" }, { max_out = req.query.cut and 0 or nil })
  local _, value = pcall(function() return (result or cut)[req.query.name] end)
  return { value = value }
end)
app:get("/shared", function()
  local results, last = ls.channel("results"), ls.dict("last")
  results:send(ls.process { "echo", "x" })
  last.result = { ls.process { "echo", "y" } }
  return { results:receive(), last.result[1] }
end)
app:get("/bytes", function() return assert(ls.process({ "printf", "a\\000\\377" })).out end)
local function sleeps(req) return ls.process { "sh", "-c", "echo $$ > " .. req.query.file .. "; exec sleep 600" } end
app:get("/sleeps", function(req) sleeps(req) return "no" end)
app:get("/stubborn", function(req)
  ls.process { "sh", "-c", "trap '' TERM; echo $$ > " .. req.query.file .. "; while :; do sleep 600; done" }
  return "no"
end)
app:get("/short", { timeout = 0.5 }, function(req) sleeps(req) return "no" end)
app:get("/fill", function()
  local function sleeps()
    repeat
      ls.sleep(0.001)
      local _, _, code = ls.process({ "sleep", "600" }, { timeout = false })
    until code ~= "ELIMIT"
  end
  for _ = 1, 64 do ls.spawn(sleeps) end
  local result, text, code
  repeat
    ls.sleep(0.001)
    result, text, code = ls.process { "true" }
  until not result
  return { message = text, code = code }
end)
app:get("/other", function() return "other" end)
""")


def children(pid):
    """The children of a process, also the zombies."""
    found = []
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            found += [int(text) for text in read_text(path).split()]
        except OSError:
            continue
    return found


def read_or_empty(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_running(pid):
    try:
        return read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Runs(E2E):
    def setUp(self):
        super().setUp()
        self.folder = temporary_folder()

    def run_it(self, argv, **options):
        return json.loads(self.ask("POST", "/run", body=json.dumps({"argv": argv, "options": options}).encode()).body)

    def is_result(self, argv, expected, **options):
        answer = self.run_it(argv, **options)
        result = answer.get("result") or answer.get("rest") or {}
        self.assertEqual({name: result.get(name) for name in expected}, expected, answer)
        return answer


# The program of the tests for every system: luaserve, with a site that ends while it loads.
PROGRAM = r"""
local ls = require "luaserve"
local does = table.remove(arg, 1)
if does == "show" then
  io.write(ls.json.encode { table.unpack(arg) })
elseif does == "env" then
  for _, name in ipairs(arg) do io.write(tostring(os.getenv(name)), " ") end
elseif does == "size" then
  local text = io.read("a")
  io.write(#text, " ", select(2, text:gsub("x", "")))
elseif does == "write" then
  io[arg[1]]:write(("x"):rep(tonumber(arg[2])))
elseif does == "wait" then
  local file <close> = assert(io.open(arg[1], "w"))
  while true do end
elseif does == "tree" then
  os.execute(arg[1])
elseif does == "exit" then
  io.stderr:write("no")
  os.exit(tonumber(arg[1]))
end
io.stdout:flush()
os.exit(0)
"""


class EverySystem(Runs):
    SITE = SITE

    def setUp(self):
        super().setUp()
        self.program = self.folder + "/program.lua"
        write_text(self.program, PROGRAM)

    def line(self, *words):
        return [LUASERVE + (".exe" if WINDOWS else ""), self.program, *words]

    def test_arguments(self):
        words = ["", "a b", '"', 'a"b c', "\\", "a\\", "a b\\", "a b\\\\", '\\"', '\\\\"x\\', "$HOME;*", "%PATH%", "^&|<>()!", "\t", "a\nb",
                 "'", "\u00e9\u4e2d\U0001f600"]
        answer = self.is_result(self.line("show", *words), {"code": 0, "err": ""})
        self.assertEqual(json.loads(answer["result"]["out"]), words)

    def test_status_and_input(self):
        self.is_result(self.line("exit", "7"), {"code": 7, "out": "", "err": "no", "signal": None})
        for count in 0, 1, 200000:
            self.is_result(self.line("size"), {"code": 0, "out": "%d %d" % (count, count)}, stdin="x" * count)
        self.is_result(self.line("exit", "0"), {"code": 0}, stdin="x" * 1000000)  # which it does not read

    def test_one_program_after_the_other(self):
        argv = json.dumps(self.line("write", "stdout", "1000")).encode()
        self.assertEqual(self.ask("POST", "/again", body=argv).text, "done")

    def test_variables_and_the_directory(self):
        self.is_result(self.line("env", "LS_A"), {"out": "nil "})
        self.is_result(self.line("env", "LS_A", "LS_B"), {"out": "x y "}, env={"LS_A": "x", "LS_B": "y"})
        self.is_result(self.line("env", "PATH"), {"out": "nil "}, env={"PATH": False})
        if WINDOWS:  # whatever the case
            self.is_result(self.line("env", "PATH", "TEMP"), {"out": "nil x "}, env={"pAth": False, "teMp": "x"})
        self.assertEqual(self.run_it(self.line("env"), cwd=self.folder + "/none")["code"], "ENOENT")
        self.assertEqual(self.run_it(["no-such-program"])["code"], "ENOENT")

    def test_limits(self):
        for name in "out", "err":
            self.is_result(self.line("write", "std" + name, "100000"), {"code": 0, name: "x" * 100000}, **{"max_" + name: 100000})
            answer = self.is_result(self.line("write", "std" + name, "100000"), {name: "x" * 99999}, **{"max_" + name: 99999})
            self.assertEqual(answer["code"], "EMSGSIZE")
        answer = self.run_it(self.line("wait", self.folder + "/waits"), timeout=0.5)
        self.assertEqual(answer["code"], "ETIMEDOUT")

    def runs(self, file):
        """Whether a program has this argument."""
        if os.name == "nt":
            try:
                os.remove(file)  # which it holds open
            except PermissionError:
                return True
            return False
        return any(file in read_or_empty(path) for path in glob.glob("/proc/[0-9]*/cmdline"))

    def begin(self, does, file, server=None):
        """A request that waits for a program, which holds the file: itself, or ("tree") one that it has started."""
        conn, line = self.connect(server=server), self.line("wait", file)
        body = json.dumps({"argv": line if does == "wait" else self.line("tree", " ".join(line)),
                           "options": {"timeout": False}}).encode()
        conn.send(b"POST /run HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.eventually(lambda: os.path.exists(file), "the program runs")
        self.assertTrue(self.runs(file))
        return conn

    def test_a_stop_ends_the_programs(self):
        server = self.serve(SITE)
        files = [self.folder + "/" + does for does in ("wait", "tree")]
        for file in files:
            self.begin(os.path.basename(file), file, server)
        server.signal()
        server.wait()
        for file in files:
            self.eventually(lambda file=file: not self.runs(file), "a stop ends the programs")

    @unittest.skipUnless(WINDOWS, OTHER_SYSTEM + "jobs of Windows")
    def test_the_programs_of_a_killed_server_end(self):
        server = self.serve(SITE)
        file = self.folder + "/tree"
        self.begin("tree", file, server)
        server.kill()
        self.eventually(lambda: not self.runs(file), "the system ends the programs")

    @unittest.skipUnless(WINDOWS, OTHER_SYSTEM + "batch files of Windows")
    def test_batch_files_are_refused(self):
        for name in "a.bat", "a.cmd", "a.BAT":
            write_text(self.folder + "/" + name, "echo %1\n")
            answer = self.run_it([self.folder + "/" + name, '"&calc.exe'])
            self.assertEqual(answer.get("code"), "ENOTSUP", answer)
            self.assertIn("cmd.exe would run a batch file", answer["message"])
            for tail in " ", ".", ". .":
                self.assertIn(self.run_it([self.folder + "/" + name + tail]).get("code"), ("ENOTSUP", "ENOENT"))


@not_on_windows("programs, signals and descriptors of POSIX")
class Processes(Runs):
    SITE = SITE

    def pid_from(self, path):
        pid = []

        def written():
            with contextlib.suppress(OSError):
                pid[:] = read_text(path).split("\n")[:-1]
            return pid
        self.eventually(written, "the process has written its number")
        return int(pid[0])

    def has_no_children(self, server=None):
        server = server or self.server
        self.eventually(lambda: not children(server.process.pid), "the server has no children")

    def test_results(self):
        self.is_result(["echo", "a b", 5, "$HOME;*"], {"code": 0, "out": "a b 5 $HOME;*\n", "err": "", "signal": None})
        self.is_result(["sh", "-c", "echo no >&2; exit 3"], {"code": 3, "out": "", "err": "no\n"})
        self.is_result(["sh", "-c", "kill -9 $$"], {"code": 137, "signal": 9})
        self.is_result(["cat"], {"code": 0, "out": ""})
        self.is_result(["cat"], {"code": 0, "out": "text"}, stdin="text")
        self.is_result(["true"], {"code": 0, "out": ""}, stdin="x" * 1000000)  # which it does not read
        self.assertEqual(self.get("/bytes").body, b"a\0\xff")
        body = os.urandom(1 << 20) * 5
        self.assertEqual(json.loads(self.ask("POST", "/large", body=body).body), [len(body), True])

    def test_a_program_that_cannot_be_started(self):
        answer = self.run_it(["no-such-program"])
        self.assertRegex(answer["message"], "^cannot start no-such-program in /.*[^.]: not found$")
        self.assertEqual(answer["code"], "ENOENT")
        self.assertEqual(self.run_it(["/"])["code"], "EACCES")
        answer = self.run_it(["true"], cwd="/no/such/folder")
        self.assertEqual((answer["message"], answer["code"]), ("cannot start true in /no/such/folder: not found", "ENOENT"))
        self.assertRegex(self.get("/loading").text, "^false .*ls.process cannot be called while the site loads; call it in")

    def test_the_surroundings_of_a_program(self):
        self.is_result(["pwd"], {"out": self.server.dir + "\n"})
        self.is_result(["pwd"], {"out": "/usr\n"}, cwd="/usr")
        self.is_result(["env"], {"out": "A=1\nB=2\n"}, clear_env=True, env={"A": "1", "B": 2, "C": False})
        self.is_result(["sh", "-c", "echo $A-$HOME-$PATH"], {"out": "x--%s\n" % os.environ["PATH"]}, env={"A": "x", "HOME": False})
        self.is_result(["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"], {"out": "0 1 2 3 "})  # 3: of ls
        masks = self.run_it(["sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status"])["result"]["out"].split()
        self.assertEqual([int(mask, 16) & 0x7fffffff for mask in masks[1::2]], [0, 0])  # without those of the C library

    def test_the_limits_of_output(self):
        for name, argv in (("out", ["head", "-c", "10000", "/dev/zero"]), ("err", ["sh", "-c", "head -c 10000 /dev/zero >&2"])):
            self.is_result(argv, {"code": 0, name: "\0" * 10000}, **{"max_" + name: 10000})
            answer = self.is_result(argv, {name: "\0" * 9999}, **{"max_" + name: 9999})
            self.assertEqual((answer["message"], answer["code"]),
                             ("the process was ended: it has written more than max_" + name, "EMSGSIZE"))
        answer = self.run_it(["yes"])
        self.assertEqual((answer["code"], len(answer["rest"]["out"])), ("EMSGSIZE", 1 << 20))
        answer = self.is_result(["echo", "x"], {"out": ""}, max_out=0)
        self.assertEqual(answer["code"], "EMSGSIZE")
        self.is_result(["true"], {"code": 0, "out": ""}, max_out=0)
        self.has_no_children()

    def test_a_function_gets_the_lines(self):
        def lines(command):
            return json.loads(self.get("/lines?command=" + quote(command)).body)
        count = 5000
        self.assertEqual(lines("seq %d; printf last" % count),
                         {"lines": [str(n + 1) for n in range(count)] + ["last"], "result": {"code": 0, "out": "", "err": ""}})
        answer = lines("echo one; yes | tr -d '\\n'")
        self.assertEqual((answer["lines"], answer["code"]), (["one"], "EMSGSIZE"))
        self.assertEqual(self.get("/lines?command=" + quote("echo raise; exec sleep 600")).status, 500)
        self.has_no_children()

    def test_a_field_that_a_result_does_not_have(self):
        def field(query):
            return json.loads(self.get("/field?name=" + query).body).get("value")
        for query, message in (("stdout", "has no method or field 'stdout'; did you mean 'out'?"),
                               ("stderr&cut=1", "has no method or field 'stderr'; did you mean 'err'?"),
                               ("cod", "has no method or field 'cod'; did you mean 'code'?")):
            self.assertRegex(field(query), r"site\.lua:\d+: a result of ls\.process " + message.replace("?", r"\?"))
        self.assertEqual((field("signal"), field("code"), field("out&cut=1")), (None, 0, ""))

    def test_a_result_is_shared(self):
        self.assertEqual(json.loads(self.get("/shared").body), [{"code": 0, "out": out, "err": ""} for out in ("x\n", "y\n")])

    def test_the_limit_of_time(self):
        answer = self.is_result(["sh", "-c", "echo begun; exec sleep 600"], {"out": "begun\n", "signal": 15, "code": 143}, timeout=0.5)
        self.assertEqual((answer["message"], answer["code"]), ("timeout: the process was ended", "ETIMEDOUT"))
        answer = self.is_result(["sh", "-c", "trap 'echo ended; exit 7' TERM; sleep 600 & wait"], {"code": 7}, timeout=0.5)
        self.assertEqual(answer["code"], "ETIMEDOUT")
        self.is_result(["sh", "-c", "trap '' TERM; while :; do sleep 600; done"], {"signal": 9}, timeout=0.5)
        self.has_no_children()

    def test_what_a_program_leaves_behind_ends_with_it(self):
        answer = self.is_result(["sh", "-c", "sleep 600 & echo $!"], {"code": 0})
        self.eventually(lambda: not is_running(int(answer["result"]["out"])), "the process in the background is killed")
        self.has_no_children()

    def test_the_time_of_a_route_ends_the_program(self):
        file = os.path.join(self.folder, "pid")
        response = self.get("/short?file=" + file)
        self.assertEqual(response.status, 503)
        pid = self.pid_from(file)
        self.eventually(lambda: not is_running(pid), "the program is ended")
        self.has_no_children()

    def test_nothing_is_left_of_programs(self):
        self.run_it(["true"])
        before = self.quiet_fds()
        for n in range(20):
            self.run_it(["echo", "x"], stdin="y" * n)
            self.run_it(["no-such-program"])
            self.run_it(["yes"], max_out=n)
        self.has_no_children()
        self.eventually(lambda: self.server.fds() <= before, "no descriptor is left")

    def test_the_number_at_once_and_the_stop(self):
        server = self.serve(SITE)
        answer = json.loads(server.get("/fill").body)
        self.assertEqual(answer, {"message": "64 processes of ls.process run already", "code": "ELIMIT"})
        self.eventually(lambda: len(children(server.process.pid)) == 64, "64 programs run")
        pids = children(server.process.pid)
        server.signal()
        self.assertEqual(server.wait(), 1)  # it does not wait longer than drain_timeout for the tasks
        self.assertTrue(server.logged(r"error ended early: drain_timeout \(1 s\) is over, and the work"))
        for pid in pids:
            self.eventually(lambda pid=pid: not is_running(pid), "a stop ends the programs")

    def test_a_stubborn_program_at_the_stop(self):
        server = self.serve(SITE)
        file = os.path.join(self.folder, "pid")
        conn = self.connect(server=server)
        conn.send(b"GET /stubborn?file=%s HTTP/1.1\r\nHost: h\r\n\r\n" % file.encode())
        pid = self.pid_from(file)
        server.signal()
        server.wait_log("draining")
        server.signal()  # at once
        server.wait()
        self.eventually(lambda: not is_running(pid), "a stop kills the program")

    def test_a_reload_lets_the_program_of_a_request_end(self):
        server = self.serve(SITE.replace("drain_timeout = 1", "drain_timeout = 60"))
        conn = self.connect(server=server)
        file = os.path.join(self.folder, "go")
        body = json.dumps({"argv": ["sh", "-c", "echo $$ > %s.pid; while [ ! -e %s ]; do sleep 0.05; done; echo went"
                                    % (file, file)]}).encode()
        conn.send(b"POST /run HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.pid_from(file + ".pid")
        server.reload()
        write_text(file, "")
        self.assertEqual(json.loads(conn.response("POST").body)["result"]["out"], "went\n")
