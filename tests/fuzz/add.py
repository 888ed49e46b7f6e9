"""Add inputs to the corpus of a fuzz target, in the form that replay.c describes.

    tests/fuzz/add.py TARGET FILE...        each file is an input, with the name of the file
"""
import os
import re
import sys

WIDTH = 110
ESCAPES = {ord("\\"): "\\\\", ord("\r"): "\\r", ord("\t"): "\\t"}
REPETITION = re.compile(rb"(.{1,64}?)\1{7,}", re.DOTALL)


def units(piece):
    """The text of each byte of the piece; neighbours in hexadecimal are one unit."""
    for part in re.findall(rb"[\t\r\n -~]|[^\t\r\n -~]{1,32}", piece):
        plain = part == b"\n" or len(part) == 1 and 0x20 <= part[0] < 0x7f or part[0] in ESCAPES
        yield ESCAPES.get(part[0], part.decode("latin-1")) if plain else f"\\<{part.hex()}>"


def pieces(data):
    """The units of the whole input, with repetitions that are shorter than what they repeat."""
    at = 0
    for found in REPETITION.finditer(data):
        unit, count = found[1], len(found[0]) // len(found[1])
        text = "\\(" + "".join(units(unit)) + f"\\){count};"
        if b"\n" in unit or len(text) >= sum(map(len, units(found[0]))):
            continue
        yield from units(data[at:found.start()])
        yield text
        at = found.end()
    yield from units(data[at:])


def lines(data):
    """The lines of the input."""
    line = ""
    for unit in pieces(data):
        if unit == "\n":
            yield line
            line = ""
            continue
        if line and len(line) + len(unit) > WIDTH:
            yield line + "\\"
            line = ""
        line += "\\<3d>" if not line and unit == "=" else unit
    if line:
        yield line + "\\"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
    with open(os.path.join(folder, sys.argv[1] + ".txt"), "a", encoding="ascii", newline="\n") as pack:
        for name in sys.argv[2:]:
            with open(name, "rb") as file:
                data = file.read()
            pack.write("".join(line + "\n" for line in [f"= {os.path.basename(name)}", *lines(data)]))


main()
