"""What an installation must be able to do, wherever it is: in a prefix (test_install.py) or below / (test_package.py)."""
import os
import subprocess

from harness.environment import WAIT

SITE = """local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return ls.json.encode({ from = "an installed luaserve" }) end)
ls.listen({ host = "127.0.0.1", port = 0, handler = app })
"""
ANSWER = b'{"from":"an installed luaserve"}'

# The program of src/README.md, with the site as its argument.
HOST = """#include <luaserve.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const ls_server_options options = {.size = sizeof options, .site = argv[argc - 1], .threads = 2, .signals = 1};
    ls_server *server;
    char message[512];
    if (ls_server_open(&options, &server, message, sizeof message) < 0) {
        fprintf(stderr, "%s\\n", message);
        return 1;
    }
    if (ls_server_run(server) < 0) return 1;
    ls_server_close(server);
    return 0;
}
"""

# The same with a function of Lua's headers.
OPEN = HOST.replace("#include <stdio.h>", "#include <stdio.h>\n\n#include <lauxlib.h>").replace("int main", """
static int open_state(lua_State *L, void *user)
{
    (void)user;
    luaL_checkstack(L, 1, "open");
    return 0;
}

int main""").replace(".signals = 1", ".signals = 1, .open = open_state")

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(host LANGUAGES C)
find_package(luaserve 0.1 CONFIG REQUIRED COMPONENTS lua)
add_executable(shared host.c)
target_link_libraries(shared PRIVATE luaserve::luaserve)
add_executable(static host.c)
target_link_libraries(static PRIVATE luaserve::static)
add_executable(shared-open open.c)
target_link_libraries(shared-open PRIVATE luaserve::luaserve luaserve::lua)
add_executable(static-open open.c)
target_link_libraries(static-open PRIVATE luaserve::static luaserve::lua)
"""


def run(command, env=None):
    """Run a command to its end; returns its standard output. Fails with all of its output."""
    done = subprocess.run(command, env=dict(os.environ, **(env or {})), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", timeout=10 * WAIT, check=False)
    if done.returncode != 0:
        raise AssertionError("%s: status %d\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done.stdout


class Installation:
    """An installation and a directory to work in.

    enter    the start of every command line, which enters another root directory
    env      the environment in which the programs of a user run, such as PKG_CONFIG_PATH"""

    def __init__(self, where, enter=(), env=None):
        self.where, self.enter, self.env = where, list(enter), env or {}

    def run(self, command, env=None):
        return run([*self.enter, *command], env={**self.env, **(env or {})})

    def write(self, name, text):
        path = os.path.join(self.where, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def check_program(self, test, program):
        """The program serves the site, and ends with status 0."""
        server = test.serve(SITE, program=[*self.enter, *program], env=self.env)
        test.assertEqual(server.get("/").body, ANSWER)
        server.stop()

    def needed(self, path):
        """The shared libraries of luaserve that the program at `path` needs."""
        lines = self.run(["readelf", "-d", path]).splitlines()
        return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line and "luaserve" in line]

    def compile(self, name, flags, text=HOST):
        source = self.write("host.c", text)
        path = os.path.join(self.where, name)
        self.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, "-o", path, *flags])
        return path

    def pkg_config(self, *options, module="luaserve"):
        return self.run(["pkg-config", *options, module]).split()

    def check_pkg_config(self, test):
        """Host programs with the flags of pkg-config: shared; static in a dynamic program; completely static."""
        shared = self.compile("pc-shared", self.pkg_config("--cflags", "--libs"))
        test.assertEqual(self.needed(shared), ["libluaserve.so.0.1"])
        self.check_program(test, [shared])
        flags = self.pkg_config("--cflags", "--libs", "--static")
        static = self.compile("pc-static", ["-l:libluaserve.a" if flag == "-lluaserve" else flag for flag in flags])
        test.assertEqual(self.needed(static), [])
        self.check_program(test, [static])
        for options in (), ("--static",):
            flags = self.pkg_config("--cflags", "--libs", *options, module="luaserve-lua")
            self.check_program(test, [self.compile("pc-open" + "".join(options), [*options[:1], *flags, "-Wl,--no-warnings"], OPEN)])

    def check_cmake(self, test):
        """Host programs with the targets of find_package(luaserve)."""
        self.write("project/host.c", HOST)
        self.write("project/open.c", OPEN)
        project = os.path.dirname(self.write("project/CMakeLists.txt", PROJECT))
        self.run(["cmake", "-S", project, "-B", project + "/build", "-DCMAKE_C_FLAGS=-Wall -Werror"])
        self.run(["cmake", "--build", project + "/build"])
        for target in "shared", "static", "shared-open", "static-open":
            path = os.path.join(project, "build", target)
            test.assertEqual(self.needed(path), ["libluaserve.so.0.1"] if target.startswith("shared") else [])
            self.check_program(test, [path])
