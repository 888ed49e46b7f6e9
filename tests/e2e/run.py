"""Run the end-to-end tests, several modules at a time.

    tests/e2e/run.py [-j N] [MODULE...]     without modules: every test_*.py of this folder

Each module runs in a process of its own; what it says is shown when it is done, all of it when a test failed. Skipped
tests are listed by name with their reason, those of another system apart. Exit status: 1 when a test failed, or a module did not get to its end.
For one test: python3 -m unittest test_http1.Framing.test_name, here in this folder.
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
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ELSEWHERE = "of another system: "  # as luaserve_e2e.py has it


def run_here(module):
    """The child: run one module's tests, then say how they ended as one line of JSON."""
    sys.path.insert(0, HERE)
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1).run(suite)
    print(json.dumps({"run": result.testsRun, "ok": result.wasSuccessful(),
                      "skipped": [[test.id(), reason] for test, reason in result.skipped]}))


@contextlib.contextmanager
def environment():
    """Of a module. Under Wine it has a prefix, and with it a server of Wine's, of its own: one serves all programs of a prefix,
    one call after the other. Only the registry is copied; the rest of the prefix is that of scripts/test-windows."""
    if os.environ.get("LUASERVE_SYSTEM") != "windows":
        yield None
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


def run_module(module):
    """-> (module, seconds, what it said of itself or None, its other output)"""
    begun = time.monotonic()
    with environment() as env:
        child = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--here", module], cwd=HERE, env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = child.stdout.splitlines()
    told = None
    if child.returncode == 0 and lines:
        told = json.loads(lines.pop())
    return module, time.monotonic() - begun, told, "\n".join(lines) + child.stderr


def all_modules():
    """The largest files first: they take longest, and the end is not spent waiting for one of them."""
    names = [name for name in os.listdir(HERE) if name.startswith("test_") and name.endswith(".py")]
    names.sort(key=lambda name: -os.path.getsize(os.path.join(HERE, name)))
    return [name[:-3] for name in names]


def main():
    parser = argparse.ArgumentParser(description="Run the end-to-end tests, several modules at a time.")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1,
                        help="modules at a time (processors + 1)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("modules", metavar="MODULE", nargs="*")
    args = parser.parse_args()
    if args.here:
        run_here(args.modules[0])
        return 0

    tests, skipped, failed = 0, [], []
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        runs = [pool.submit(run_module, module) for module in args.modules or all_modules()]
        for run in concurrent.futures.as_completed(runs):
            module, seconds, told, output = run.result()
            ok = told is not None and told["ok"] and told["run"] > 0
            print(f"{'ok' if ok else 'FAILED':6}  {module:24} {told['run'] if told else 0:4} tests  {seconds:5.1f} s",
                  flush=True)
            if not ok:
                failed.append(module)
                print(output, flush=True)
            if told:
                tests += told["run"]
                skipped += told["skipped"]
    elsewhere = [entry for entry in skipped if entry[1].startswith(ELSEWHERE)]
    for name, reason in sorted(elsewhere) + sorted(entry for entry in skipped if entry not in elsewhere):
        print(f"{'skipped ' if not reason.startswith(ELSEWHERE) else ''}{name}: {reason}")
    of_others = f", {len(elsewhere)} more are of another system" if elsewhere else ""
    print(f"{tests - len(elsewhere)} tests, {len(skipped) - len(elsewhere)} skipped{of_others}" + (f"; FAILED: {' '.join(sorted(failed))}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
