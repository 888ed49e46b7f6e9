"""Run the end-to-end tests, several modules at a time.

    tests/e2e/run.py [-j N] [--backend NAME]... [--again] [--slowest N] [MODULE...]     default: all modules test_*.py

Each module runs in a process of its own, once for each back end; without MODULE, those of two lists below only on the
first. When it ends, one line gives its result; the output of a module with a failed test follows. The names and reasons
of skipped tests come last, those that belong to another system first. Exit status: 1 when a test failed or a module did
not run to its end.

To run one test: python3 -m unittest test_http1_framing.Framing.test_name, in this folder.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from harness import OTHER_SYSTEM, SANITIZER, WINE, system

HERE = os.path.dirname(os.path.abspath(__file__))
# The modules that take longest run first, so that the end of the run does not wait for one of them. The others follow
# by size.
LONGEST = """test_package test_limits test_stress test_handlers test_lifecycle test_reload test_stress_page test_docs
    test_streaming test_stress_ws test_websocket_floods test_websocket test_chaos test_live_pages test_luaserve_test
    test_stress_hostile test_load_tsan test_examples test_tcp_examples test_tcp_many test_scarcity test_fault""".split()

# These run once, on the first back end. The load generator has one; the pages, the command line, what runs tests and loads
# sites again, JSON, the packages and the harness do not depend on it.
WITHOUT_BACK_END = set("""test_command_line test_definitions test_dev test_docs test_docs_reference test_harness
    test_install test_json test_live_pages test_luaserve_test test_names test_new test_package test_paths
    test_reload test_repl test_service test_stress test_stress_files test_stress_hostile test_stress_page
    test_stress_report test_stress_scripts test_stress_view""".split())

# These as well: their subject lies above the port. Each part of scripts/test runs them on one back end, asan on io_uring, the
# others on epoll.
ABOVE_THE_PORT = set("""test_c_examples test_channel test_dict test_examples test_handlers test_http1_framing
    test_http1_head test_http1_ordering test_httpsys test_inject test_limits test_misuse test_modules test_pipelines
    test_process test_proxy_protocol test_requests test_responses test_routes test_scarcity test_sse test_starttls
    test_states test_static test_stress_tls test_stress_ws test_tasks test_tcp_connect_tls test_tcp_examples
    test_tls test_topics test_udp_examples test_upgrade test_websocket test_websocket_client test_websocket_floods
    test_websocket_hostile""".split())

# A sanitizer has nothing to find in these: they read pages, install files, start a browser, or call no program.
NO_SANITIZER = set("""test_definitions test_docs test_docs_reference test_harness test_install test_live_pages
    test_package test_service test_stress_page test_windows_program""".split())

# Nor has ThreadSanitizer in these: one thread runs.
ONE_THREAD = set("""test_command_line test_json test_names test_new test_paths test_stress_report
    test_stress_view""".split())


def left_out():
    """The modules that do not run with this sanitizer."""
    return {"asan": NO_SANITIZER, "tsan": NO_SANITIZER | ONE_THREAD}.get(SANITIZER, set())


class Timed(unittest.TextTestResult):
    """A test result with the duration of each test: [(seconds, name)]."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seconds = []

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def stopTest(self, test):
        self.seconds.append((time.monotonic() - self.begun, test.id()))
        super().stopTest(test)


def run_here(module):
    """In a child: run the tests of one module, and print the result as one line of JSON."""
    sys.path.insert(0, HERE)
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1, resultclass=Timed).run(suite)
    used = os.times()
    print(json.dumps({"run": result.testsRun, "ok": result.wasSuccessful(), "seconds": result.seconds,
                      "processor": used.user + used.system + used.children_user + used.children_system,
                      "skipped": [[test.id(), reason] for test, reason in result.skipped]}))


@contextlib.contextmanager
def wine_prefix():
    """A prefix with a Wine server of its own. Only the registry is copied; the rest is that of scripts/test-windows."""
    made = os.path.join(os.path.dirname(os.environ["LUASERVE"]), "wine")
    with tempfile.TemporaryDirectory(prefix="luaserve-wine-", ignore_cleanup_errors=True) as prefix:
        for name in os.listdir(made):
            if name in ("dosdevices", "drive_c"):
                os.symlink(os.path.join(made, name), os.path.join(prefix, name))
            elif os.path.isfile(os.path.join(made, name)):
                shutil.copy(os.path.join(made, name), prefix)
        env = dict(os.environ, LUASERVE_WINEPREFIX=prefix)
        wine = os.path.join(HERE, "..", "..", "third_party", "windows", "wine")
        # Wine starts its services with the first program and keeps them while one runs: start them here, so that they
        # neither take time of a test nor hold its stderr open.
        first = subprocess.Popen([wine, "cmd"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        first.stdout.read(1)  # its prompt
        try:
            yield prefix
        finally:
            first.communicate()
            subprocess.run(["wineserver", "-k"], env=dict(os.environ, WINEPREFIX=prefix), check=False)


class Runner:
    """Runs modules on threads. Under Wine each thread has a prefix, because the Wine server of a prefix serves all its
    programs one call at a time; a failed module may leave programs behind, so the next one gets a new prefix."""

    def __init__(self):
        self.prefixes = contextlib.ExitStack()
        self.own = threading.local()

    def environment(self, backend):
        env = dict(os.environ, **({"LUASERVE_BACKEND": backend} if backend else {}))
        if WINE:
            if getattr(self.own, "prefix", None) is None:
                self.own.prefix = self.prefixes.enter_context(wine_prefix())
            env["LUASERVE_WINEPREFIX"] = self.own.prefix
        return env

    def run_module(self, module, backend):
        """-> (its name, seconds, its result or None, its other output)"""
        env = self.environment(backend)
        begun = time.monotonic()
        child = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--here", module], cwd=HERE, env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        lines = child.stdout.splitlines()
        result = None
        if child.returncode == 0 and lines:
            result = json.loads(lines.pop())
        if result is None or not result["ok"]:
            self.own.prefix = None
        return " ".join(filter(None, (module, backend))), time.monotonic() - begun, result, "\n".join(lines) + child.stderr


def all_modules():
    """The names of all modules that run with this sanitizer, the longest first."""
    names = {name[:-3] for name in os.listdir(HERE) if name.startswith("test_") and name.endswith(".py")} - left_out()
    place = {name: index for index, name in enumerate(LONGEST)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), -os.path.getsize(os.path.join(HERE, name + ".py"))))


def main():
    parser = argparse.ArgumentParser(description="Run the end-to-end tests, several modules at a time.")
    parser.add_argument("-j", "--jobs", type=int, default=system.processors() + 1,
                        help="modules at a time (processors + 1)")
    parser.add_argument("--backend", action="append", dest="backends", metavar="NAME",
                        help="run each module on this back end; repeat the option for several (default: LUASERVE_BACKEND)")
    parser.add_argument("--again", action="store_true", help="run each failed module a second time, alone; both results are shown")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("modules", metavar="MODULE", nargs="*")
    parser.add_argument("--slowest", metavar="N", type=int, default=0, help="list the N slowest tests")
    args = parser.parse_args()
    if args.here:
        run_here(args.modules[0])
        return 0

    tests, skipped, failed, unsteady, slowest = 0, [], [], [], []

    def show(name, seconds, result, output):
        """Print the result of a module. -> whether it succeeded"""
        ok = result is not None and result["ok"] and result["run"] > 0
        print(f"{'ok' if ok else 'FAILED':6}  {name:26} {result['run'] if result else 0:4} tests  {seconds:5.1f} s"
              + (f", processors {result['processor']:5.1f} s" if result else ""), flush=True)
        if not ok:
            print(output, flush=True)
        return ok

    once = set() if args.modules else WITHOUT_BACK_END | ABOVE_THE_PORT
    runner = Runner()
    with runner.prefixes, concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        runs = {pool.submit(runner.run_module, module, backend): (module, backend)
                for module in args.modules or all_modules()
                for backend in (args.backends or [None])[:1 if module in once else None]}
        for run in concurrent.futures.as_completed(runs):
            name, seconds, result, output = run.result()
            if not show(name, seconds, result, output):
                failed.append((name, *runs[run]))
            if result:
                tests += result["run"]
                backend = name.partition(" ")[2]
                skipped += [[" ".join(filter(None, (test, backend))), reason] for test, reason in result["skipped"]]
                slowest += [(took, test, backend) for took, test in result["seconds"]]
    if args.again and failed:
        with runner.prefixes:
            for entry in list(failed):
                if show(*runner.run_module(*entry[1:])):
                    failed.remove(entry)
                    unsteady.append(entry)
    for took, test, backend in sorted(slowest, reverse=True)[:args.slowest]:
        print(f"{took:5.1f} s  {test} {backend}".rstrip())
    other_system = [entry for entry in skipped if entry[1].startswith(OTHER_SYSTEM)]
    for name, reason in sorted(other_system) + sorted(entry for entry in skipped if entry not in other_system):
        print(f"{'skipped ' if not reason.startswith(OTHER_SYSTEM) else ''}{name}: {reason}")
    others = f", {len(other_system)} more belong to another system" if other_system else ""
    print(f"{tests - len(other_system)} tests, {len(skipped) - len(other_system)} skipped{others}"
          + "".join(f"; {what}: {', '.join(sorted(entry[0] for entry in entries))}"
                    for what, entries in (("passed only the second time", unsteady), ("FAILED", failed)) if entries))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
