"""Screen: as much of a terminal as `luaserve stress` uses for its live view."""
import os
import re
import select

from harness.environment import WAIT


def drawn_on(master, until):
    """What is written to the terminal with this master's side until until(text) is true, or until it is closed. The
    terminal delivers whole writes."""
    data = b""
    while not until(data.decode("utf-8", "ignore")):
        ready, _, _ = select.select([master], [], [], WAIT)
        assert ready, "the view stopped drawing: %r" % data[-500:]
        try:
            more = os.read(master, 65536)
        except OSError:  # EIO: the other side is closed
            more = b""
        if not more:
            break
        data += more
    return data.decode("utf-8")


class Screen:
    """A terminal with the control sequences CUU, EL, ED and SGR of ECMA-48. It wraps long lines, and wraps them again
    when the width changes, as terminals with reflow do."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0
        self.sgr = 0

    def feed(self, text):
        at = 0
        while at < len(text):
            sequence = re.compile(r"\x1b\[(\d*)([A-Za-z])").match(text, at)
            if sequence:
                at = sequence.end()
                self.control(sequence[2], sequence[1])
                continue
            char = text[at]
            at += 1
            if char == "\r":
                self.column = 0
            elif char == "\n":
                self.row += 1
                while len(self.rows) <= self.row:
                    self.rows.append("")
            else:
                assert char >= " ", repr(char)
                assert self.column < self.columns, "a line is longer than the terminal is wide"
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[:self.column] + char + row[self.column + 1:]
                self.column += 1

    def control(self, name, number):
        if name == "A":
            self.row = max(0, self.row - int(number or 1))
        elif name == "K":
            self.rows[self.row] = self.rows[self.row][:self.column]
        elif name == "J":
            self.rows[self.row] = self.rows[self.row][:self.column]
            del self.rows[self.row + 1:]
        elif name == "m":
            self.sgr += 1
        else:
            raise AssertionError("unexpected control sequence: CSI " + name)

    def resize(self, columns):
        above, rest = self.rows[:self.row], self.rows[self.row:]
        folded = [row[i:i + columns] for row in above for i in range(0, max(1, len(row)), columns)]
        self.rows, self.row, self.columns = folded + rest, len(folded), columns

    def text(self):
        return [row.rstrip() for row in self.rows if row.strip()]
