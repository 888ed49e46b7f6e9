"""Run the end-to-end tests, several modules at a time.

    tests/e2e/run.py [-j N] [--backend NAME]... [--again] [--slowest N] [MODULE...]     without modules: every test_*.py of this folder

Each module runs in a process of its own, once for each back end; what it says is shown when it is done, all of it when a test
failed. Skipped tests are listed by name with their reason, those of another system apart. Exit status: 1 when a test failed, or a
module did not get to its end.
For one test: python3 -m unittest test_http1.Framing.test_name, here in this folder.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ELSEWHERE = "of another system: "  # as luaserve_e2e.py has it
# They take longest, and the end shall not be spent waiting for one of them. Whatever is not named here follows by its size.
LONGEST = """test_chaos test_stress test_limits test_fault test_load_tsan test_udp test_tcp test_examples test_lifecycle
    test_stress_hostile test_stress_page test_load_count test_hostile test_tcp_examples test_handlers""".split()

# No server of ours takes part, and the load generator has one back end: run once. Pages do not name a back end either.
NO_SERVER = set("test_docs test_stress test_stress_hostile test_stress_page test_stress_report test_stress_scripts test_stress_view".split())


class Timed(unittest.TextTestResult):
    """Remembers how long each test took: [(seconds, name)]."""

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
    """The child: run one module's tests, then say how they ended as one line of JSON."""
    sys.path.insert(0, HERE)
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1, resultclass=Timed).run(suite)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"run": result.testsRun, "ok": result.wasSuccessful(), "seconds": result.seconds,
                      "processor": sum(usage.ru_utime + usage.ru_stime for usage in used),
                      "skipped": [[test.id(), reason] for test, reason in result.skipped]}))


@contextlib.contextmanager
def environment(backend):
    """Of a module. Under Wine it has a prefix, and with it a server of Wine's, of its own: one serves all programs of a prefix,
    one call after the other. Only the registry is copied; the rest of the prefix is that of scripts/test-windows."""
    if os.environ.get("LUASERVE_SYSTEM") != "windows":
        yield dict(os.environ, **({"LUASERVE_BACKEND": backend} if backend else {}))
        return
    made = os.path.join(os.path.dirname(os.environ["LUASERVE"]), "wine")
    with tempfile.TemporaryDirectory(prefix="luaserve-wine-", ignore_cleanup_errors=True) as prefix:
        for name in os.listdir(made):
            if name in ("dosdevices", "drive_c"):
                os.symlink(os.path.join(made, name), os.path.join(prefix, name))
            elif os.path.isfile(os.path.join(made, name)):
                shutil.copy(os.path.join(made, name), prefix)
        env = dict(os.environ, LUASERVE_WINEPREFIX=prefix)
        wine = os.path.join(HERE, "..", "..", "third_party", "windows", "wine")
        # What Wine starts beside a first program stays as long as there is one: not on a test's time, nor with its stderr.
        first = subprocess.Popen([wine, "cmd"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        first.stdout.read(1)  # its prompt
        try:
            yield env
        finally:
            first.communicate()
            subprocess.run(["wineserver", "-k"], env=dict(os.environ, WINEPREFIX=prefix), check=False)


def run_module(module, backend):
    """-> (its name, seconds, what it said of itself or None, its other output)"""
    begun = time.monotonic()
    with environment(backend) as env:
        child = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--here", module], cwd=HERE, env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = child.stdout.splitlines()
    told = None
    if child.returncode == 0 and lines:
        told = json.loads(lines.pop())
    return " ".join(filter(None, (module, backend))), time.monotonic() - begun, told, "\n".join(lines) + child.stderr


def all_modules():
    """The longest first."""
    names = [name[:-3] for name in os.listdir(HERE) if name.startswith("test_") and name.endswith(".py")]
    place = {name: place for place, name in enumerate(LONGEST)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), -os.path.getsize(os.path.join(HERE, name + ".py"))))


def main():
    parser = argparse.ArgumentParser(description="Run the end-to-end tests, several modules at a time.")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1,
                        help="modules at a time (processors + 1)")
    parser.add_argument("--backend", action="append", dest="backends", metavar="NAME",
                        help="run each module on this back end; several make several runs of each (else: LUASERVE_BACKEND says)")
    parser.add_argument("--again", action="store_true", help="run a module that failed once more, alone; both are shown")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("modules", metavar="MODULE", nargs="*")
    parser.add_argument("--slowest", metavar="N", type=int, default=0, help="list the N slowest tests")
    args = parser.parse_args()
    if args.here:
        run_here(args.modules[0])
        return 0

    tests, skipped, failed, unsteady, slowest = 0, [], [], [], []

    def show(name, seconds, told, output):
        """What a run of a module said. -> whether all was well"""
        ok = told is not None and told["ok"] and told["run"] > 0
        print(f"{'ok' if ok else 'FAILED':6}  {name:26} {told['run'] if told else 0:4} tests  {seconds:5.1f} s"
              + (f", processors {told['processor']:5.1f} s" if told else ""), flush=True)
        if not ok:
            print(output, flush=True)
        return ok

    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        runs = {pool.submit(run_module, module, backend): (module, backend)
                for module in args.modules or all_modules()
                for backend in (args.backends or [None])[:1 if module in NO_SERVER else None]}
        for run in concurrent.futures.as_completed(runs):
            name, seconds, told, output = run.result()
            if not show(name, seconds, told, output):
                failed.append((name, *runs[run]))
            if told:
                tests += told["run"]
                backend = name.partition(" ")[2]
                skipped += [[" ".join(filter(None, (test, backend))), reason] for test, reason in told["skipped"]]
                slowest += [(took, test, backend) for took, test in told["seconds"]]
    if args.again:
        for entry in list(failed):
            if show(*run_module(*entry[1:])):
                failed.remove(entry)
                unsteady.append(entry)
    for took, test, backend in sorted(slowest, reverse=True)[:args.slowest]:
        print(f"{took:5.1f} s  {test} {backend}".rstrip())
    elsewhere = [entry for entry in skipped if entry[1].startswith(ELSEWHERE)]
    for name, reason in sorted(elsewhere) + sorted(entry for entry in skipped if entry not in elsewhere):
        print(f"{'skipped ' if not reason.startswith(ELSEWHERE) else ''}{name}: {reason}")
    of_others = f", {len(elsewhere)} more are of another system" if elsewhere else ""
    print(f"{tests - len(elsewhere)} tests, {len(skipped) - len(elsewhere)} skipped{of_others}"
          + "".join(f"; {what}: {', '.join(sorted(entry[0] for entry in entries))}"
                    for what, entries in (("only the second time", unsteady), ("FAILED", failed)) if entries))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
