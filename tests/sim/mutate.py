#!/usr/bin/env python3
"""Puts the faults of mutations.txt into a copy of the tree, one at a time, and shows who finds them.

usage: tests/sim/mutate.py [--folder FOLDER] [--unit-tests REGEX] [--seed N] [--runs N] [--sample N | NUMBER...]

All faults are in one build of the copy (build/mutants); the variable LUASERVE_MUTANT chooses one. A row of the table says
whether unit tests fail, and else after how many seeds of the simulated world the first failure is. --sample: so many, drawn by
the seed, that no unit test finds; the exit status is 1 if a seed finds fewer than nine of ten.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORLDS = {"http/http2/": "http2", "http/proxy/": "proxy", "net/acceptor": "limits", "net/listener": "limits",
          "script/core/wait": "channel"}  # the only one that can reach the fault; others: all
HEADER = """#include <stdlib.h>
__attribute__((weak)) int ls_mutant;
__attribute__((constructor)) static void ls_mutant_read(void)
{
    const char *number = getenv("LUASERVE_MUTANT");
    ls_mutant = number != NULL ? atoi(number) : 0;
}
"""


def faults():
    """(file, what, code, other code) of each."""
    for block in (ROOT / "tests/sim/mutations.txt").read_text().split("\n\n")[1:]:
        head, *lines = block.strip("\n").split("\n")
        name, what = head.split(": ", 1)
        yield name, what, *("\n".join(l[2:] for l in lines if l[0] == sign) for sign in "-+")


def put_in(text, number, code, other):
    if text.count(code) != 1:
        raise SystemExit(f"mutation {number}: there is not one place with {code!r}")
    plain = re.sub(r"\s*/\*.*?\*/", "", code, flags=re.S)
    if plain.endswith(";"):
        return text.replace(code, f"if (ls_mutant == {number}) {{ {other} }} else {{ {plain} }}")
    return text.replace(code, f"(ls_mutant == {number} ? ({other}) : ({plain}))")


def build(folder):
    """A copy of what git knows, with all faults."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    texts = {}
    for number, (name, _, code, other) in enumerate(faults(), 1):
        texts[name] = put_in(texts.get(name) or (ROOT / "src" / name).read_text(), number, code, other)
    texts = {"src/" + name: HEADER + text for name, text in texts.items()}
    for name in filter(None, names):
        to = folder / name
        data = texts[name].encode() if name in texts else (ROOT / name).read_bytes()
        if to.exists() and to.read_bytes() == data:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
        shutil.copymode(ROOT / name, to)
    if not (folder / "build/sources").exists():
        shutil.copytree(ROOT / "build/sources", folder / "build/sources", symlinks=True)
    subprocess.run(["scripts/build", "release", "-DLUASERVE_TESTS=ON"], cwd=folder, check=True)


def run(folder, number, *command):
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "LUASERVE_MUTANT": str(number)}, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def unit_tests_fail(folder, number, regex):
    command = ["ctest", "--test-dir", "build", "-R", regex, "-E", "sim$", "-j", "2", "--stop-on-failure", "--repeat", "until-pass:2"]
    process = run(folder, number, *command)
    process.communicate()
    return process.returncode != 0


def first_failure(folder, number, name, seed, runs):
    """The first seed that fails, counted from 1, and its last words; None: there is none."""
    world = [arg for start, world in WORLDS.items() if name.startswith(start) for arg in ("--world", world)]
    process = run(folder, number, "build/tests/sim", "--seed", str(seed), "--runs", str(runs), *world)
    last = ""
    for line in process.stderr:
        if line.startswith("FAILED"):
            process.kill()
            world, failing = re.search(r"--world (\S+) --seed (\d+)", line).groups()
            return f"{int(failing) - seed + 1}: {world}: {last[:90]}"
        if line.startswith("seed "):
            last = line.split(": ", 1)[1].strip()
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--unit-tests", help="a regular expression; else those of the folder of the fault's file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--sample", type=int, default=0)
    given = parser.parse_args()
    build(given.folder)
    rows = [row for row in enumerate(faults(), 1) if not given.numbers or row[0] in given.numbers]
    if given.sample:
        random.Random(given.seed).shuffle(rows)
    unseen = found = 0
    for number, (name, what, _, _) in rows:
        if given.sample and unseen == given.sample:
            break
        by = "unit tests"
        tests = given.unit_tests or "^unit[.]" + os.path.dirname(name).replace("/", "[.]")
        if not unit_tests_fail(given.folder, number, tests):
            by = first_failure(given.folder, number, name, given.seed, given.runs) or "NOT FOUND"
            unseen += 1
            found += by != "NOT FOUND"
        print(f"| {number} | {name}: {what} | {by} |", flush=True)
    print(f"{found} of {unseen} that unit tests do not see are found")
    sys.exit(found < 0.9 * unseen)


main()
