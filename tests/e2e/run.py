"""Run the end-to-end tests, several modules at a time.

    tests/e2e/run.py [-j N] [--slowest N] [--quick] [MODULE...]     default: all modules test_*.py

Each module runs in a process of its own. When it ends, one line gives its result; the output of a module with a failed
test follows. The names and reasons of skipped tests come last, those that belong to another system first. Exit status: 1
when a test failed or a module did not run to its end.

To run one test: python3 -m unittest test_http1_framing.Framing.test_name, in this folder.
"""
import argparse
import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import multiprocessing.forkserver
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from harness import OTHER_SYSTEM, ROOT, SANITIZER, WINE, read_text, system, write_text

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = os.path.join(ROOT, "build", "e2e-times.json")


def seconds_of_last_runs():
    """{module: seconds}, of any build."""
    try:
        return json.loads(read_text(TIMES))
    except FileNotFoundError:
        return {}


def keep_seconds(seconds):
    """Replaces the seconds of these modules for the next run."""
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(TIMES), delete=False) as file:
        json.dump({**seconds_of_last_runs(), **seconds}, file)
    os.replace(file.name, TIMES)


def source(module):
    return read_text(os.path.join(HERE, module + ".py"))


def runs_here(module):
    """Whether the module runs with this sanitizer and under Wine. The line "# sanitizers: asan; REASON" of a module names those
    with which it runs: "none", or one of them. Without the line it runs with all. The line "# wine: none; REASON" leaves it to
    Linux and to Windows itself."""
    text = source(module)
    line = re.search(r"^# sanitizers: (none|asan|tsan); .", text, re.MULTILINE)
    if WINE and re.search(r"^# wine: none; .", text, re.MULTILINE):
        return False
    return not SANITIZER or line is None or line[1] == SANITIZER


def is_quick(module):
    """Whether the module belongs to scripts/test without names: those with the line "# not quick; REASON" do not."""
    return not re.search(r"^# not quick; .", source(module), re.MULTILINE)


def weight(module):
    """A guess of the time of a module that has not run yet: its size. The line "# long; REASON" of a module stands for more."""
    text = source(module)
    return len(text) + (1 << 20 if re.search(r"^# long; .", text, re.MULTILINE) else 0)


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


def run_here(module, environment, output, results):
    """In a process of its own: run the tests of one module, print to the file `output`, and send the result."""
    os.environ.update(environment)
    with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1, resultclass=Timed).run(suite)
    used = os.times()
    results.send({"run": result.testsRun, "ok": result.wasSuccessful(), "seconds": result.seconds,
                  "processor": used.user + used.system + used.children_user + used.children_system,
                  "skipped": [[test.id(), reason] for test, reason in result.skipped]})


def process_context():
    """Python starts, and reads the harness, once for all modules where a process can be forked."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness"])
    return context


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
        self.context = process_context()
        self.prefixes = contextlib.ExitStack()
        self.own = threading.local()

    def environment(self):
        if not WINE:
            return {}
        if getattr(self.own, "prefix", None) is None:
            self.own.prefix = self.prefixes.enter_context(wine_prefix())
        return {"LUASERVE_WINEPREFIX": self.own.prefix}

    def run_module(self, module):
        """-> (its name, seconds, its result or None, its other output)"""
        environment = self.environment()
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="luaserve-module-") as folder:
            output = os.path.join(folder, "output")
            write_text(output, "")
            receive, send = self.context.Pipe(duplex=False)
            child = self.context.Process(target=run_here, args=(module, environment, output, send))
            child.start()
            send.close()
            try:
                result = receive.recv()
            except EOFError:
                result = None
            child.join()
            with open(output, encoding="utf-8", errors="replace") as file:
                text = file.read()
        if result is None or not result["ok"]:
            self.own.prefix = None
        return module, time.monotonic() - begun, result, text


def all_modules():
    """The names of all modules that run with this sanitizer and system, the longest first: new ones, then by the last run."""
    names = [name[:-3] for name in os.listdir(HERE) if name.startswith("test_") and name.endswith(".py")]
    seconds = seconds_of_last_runs()
    return sorted(filter(runs_here, names), key=lambda name: (-seconds.get(name, math.inf), -weight(name)))


def main():
    parser = argparse.ArgumentParser(description="Run the end-to-end tests, several modules at a time.")
    parser.add_argument("-j", "--jobs", type=int, default=system.processors() + 1, help="modules at a time (processors + 1)")
    parser.add_argument("modules", metavar="MODULE", nargs="*")
    parser.add_argument("--quick", action="store_true", help="without the modules that are not quick")
    parser.add_argument("--slowest", metavar="N", type=int, default=0, help="list the N slowest tests")
    args = parser.parse_args()

    tests, skipped, failed, slowest, times = 0, [], [], [], {}
    modules = args.modules or [name for name in all_modules() if is_quick(name) or not args.quick]

    def show(name, seconds, result, output):
        """Print the result of a module; scripts/test counts the lines with [n/m]. -> whether it succeeded"""
        ok = result is not None and result["ok"] and result["run"] > 0
        count = f"[{len(times)}/{len(modules)}]"
        print(f"{count if ok else 'FAILED':9} {name:26} {result['run'] if result else 0:4} tests  {seconds:5.1f} s"
              + (f", processors {result['processor']:5.1f} s" if result else ""), flush=True)
        if not ok:
            print(output, flush=True)
        return ok

    runner = Runner()
    with runner.prefixes, concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        runs = [pool.submit(runner.run_module, module) for module in modules]
        for run in concurrent.futures.as_completed(runs):
            name, seconds, result, output = run.result()
            times[name] = seconds
            if not show(name, seconds, result, output):
                failed.append(name)
            if result:
                tests += result["run"]
                skipped += result["skipped"]
                slowest += result["seconds"]
    keep_seconds(times)
    # Waits for it, so that the processor time of the modules counts as ours.
    multiprocessing.forkserver._forkserver._stop()  # pylint: disable=protected-access
    for took, test in sorted(slowest, reverse=True)[:args.slowest]:
        print(f"{took:5.1f} s  {test}")
    other_system = [entry for entry in skipped if entry[1].startswith(OTHER_SYSTEM)]
    for name, reason in sorted(other_system) + sorted(entry for entry in skipped if entry not in other_system):
        print(f"{'skipped ' if not reason.startswith(OTHER_SYSTEM) else ''}{name}: {reason}")
    others = f", {len(other_system)} more belong to another system" if other_system else ""
    print(f"{tests - len(other_system)} tests, {len(skipped) - len(other_system)} skipped{others}"
          + (f"; FAILED: {', '.join(sorted(failed))}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
