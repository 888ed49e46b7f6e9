#!/usr/bin/env python3
"""Checks that the shared library exports exactly the functions that src/luaserve.h declares as LS_PUBLIC.

usage: exports.py libluaserve.so luaserve.h
"""
import re
import subprocess
import sys


def main(library, header):
    with open(header) as text:
        declared = set(re.findall(r"LS_PUBLIC\b[^;]*?\b(ls_\w+)\(", text.read()))
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    # Names with two leading underscores belong to the compiler (sanitizers, coverage).
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    exported = {name for name in exported if not name.startswith("__")}
    for name in sorted(exported - declared):
        print(f"exported, but not declared: {name}")
    for name in sorted(declared - exported):
        print(f"declared, but not exported: {name}")
    print(f"{len(declared)} declared, {len(exported)} exported")
    return 0 if declared and declared == exported else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
