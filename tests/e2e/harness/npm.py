"""Programs of npm: the packages of tests/npm, which scripts/setup --npm installs into build/npm.

Tests that need them have @needs_npm.
"""
import json
import os
import shutil
import subprocess
import unittest

from harness.environment import OTHER_SYSTEM, ROOT, WAIT, WINDOWS
from harness.server import read_text

FOLDER = os.path.join(ROOT, "build", "npm")
LOCKS = [os.path.join(folder, "package-lock.json") for folder in (FOLDER, os.path.join(ROOT, "tests", "npm"))]
INSTALLED = os.path.exists(os.path.join(FOLDER, "node_modules", ".package-lock.json")) and read_text(LOCKS[0]) == read_text(LOCKS[1])


def needs_npm(case):
    """Skip the tests where the programs are not."""
    for wrong, reason in ((WINDOWS, OTHER_SYSTEM + "the programs of npm run on this system"),
                          (not (shutil.which("node") and INSTALLED), "build/npm is missing or older; scripts/setup --npm installs it")):
        if wrong:
            return unittest.skip(reason)(case)
    return case


def node(script, value):
    """The JSON that a script writes to standard output, a module whose imports are in build/npm. `input` in it is the value."""
    done = subprocess.run(["node", "--input-type=module", "--eval", """
import { readFileSync } from "node:fs";
const input = JSON.parse(readFileSync(0, "utf8"));
""" + script], cwd=FOLDER, input=json.dumps(value), capture_output=True, encoding="utf-8", timeout=3 * WAIT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
