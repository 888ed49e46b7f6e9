"""Comments in Lua blocks that state values and errors, and how they are checked.

    1 + 1                     --> 2           an expression: tostring of its value
    local a, b = 1, "x"       --> 1, x        an assignment: the values of its variables
    ls.json.decode("[1]")     --> [1]         a table: as JSON
    ls.sleep("x")             --!> seconds    the line raises; the message contains the text

The line is rewritten to a call of a recorder, on the same line: numbers of lines in messages stay. The recorder appends to a
file, because several Lua states run the same line.
"""
import contextlib
import json
import re

NAME = r"[A-Za-z_][\w]*"
LOCAL = re.compile(r"local\s+(?!function\b)(%s(?:\s*,\s*%s)*)\s*=[^=]" % (NAME, NAME))
ASSIGN = re.compile(r"(%s(?:\.%s|\[[^\]]*\])*(?:\s*,\s*%s(?:\.%s|\[[^\]]*\])*)*)\s*=[^=]" % (NAME, NAME, NAME, NAME))
KEYWORD = re.compile(r"(?:local|if|for|while|repeat|return|end|do|else|elseif|until|goto|break)\b")

RECORDER = """
local encode, open, type, tostring, pcall = require("luaserve").json.encode, io.open, type, tostring, pcall
local function record(...)
  local out = open(%r, "a")
  out:write(encode { ... }, "\\n")
  out:close()
end
local function show(value)
  if type(value) ~= "table" then return { "text", tostring(value) } end
  local ok, text = pcall(encode, value)
  return ok and { "json", text } or { "text", tostring(value) }
end
local function value(line, ...)
  local list = { line, "value" }
  for i = 1, select("#", ...) do list[i + 2] = show((select(i, ...))) end
  record(table.unpack(list))
end
local function raises(line, fn)
  local ok, err = pcall(fn)
  record(line, ok and "returned" or "raised", { "text", tostring(err) })
end
return value, raises
"""


def lua_string(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def recorder(path):
    """The source of the recorder that appends to the file at `path`."""
    return RECORDER.replace("%r", lua_string(path))


def wildcard(text):
    """A pattern in which ... stands for any text of a line."""
    return ".*".join(re.escape(part) for part in text.split("..."))


def same_json(expected, actual):
    """Equal, where a text of `expected` may hold ...; an empty Lua table is an array as well as an object."""
    if expected in ([], {}) and actual in ([], {}):
        return True
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(same_json(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same_json, expected, actual))
    if isinstance(expected, str) and isinstance(actual, str):
        return re.fullmatch(wildcard(expected), actual, re.S) is not None
    return expected == actual and type(expected) is type(actual)  # 1 is not 1.0, and not true


def same_text(expected, actual):
    """Equal as a text with ..., or as JSON in another order."""
    if re.fullmatch(wildcard(expected), actual, re.S):
        return True
    if expected[:1] not in ("{", "["):
        return False
    try:
        return same_json(json.loads(expected), json.loads(actual))
    except ValueError:
        return False


class Values:
    """The comments of one block. `text`: the block to run; check() compares what the recorder wrote. `recorder_path` is the file
    that holds the recorder's source."""

    def __init__(self, block, recorder_path):
        self.block, self.expected = block, {}  # line in the block -> (kind, text)
        lines = [self._rewrite(number, line) for number, line in enumerate(block.lines, 1)]
        if self.expected:
            lines[0] = "local value__, raises__ = dofile(%s); %s" % (lua_string(recorder_path), lines[0])
        self.text = "\n".join(lines) + "\n"

    def _rewrite(self, number, line):
        match = re.match(r"(.*?)--(!?)>(?!.*--!?>)\s*(.*?)\s*$", line)
        if not match:
            return line
        code, raises, text = match.group(1).strip().rstrip(";"), match.group(2), match.group(3)
        where = self.block.line + number - 1
        if not code:
            raise self.block.error("--%s> follows no code" % raises, where)
        keyword, assigned = KEYWORD.match(code), LOCAL.match(code) or ASSIGN.match(code)
        self.expected[number] = ("raised" if raises else "value", text)
        if raises:
            body = code if keyword or assigned else "local _ = " + code
            return "raises__(%d, function() %s end)" % (self.block.line + number - 1, body)
        if assigned:
            return "%s; value__(%d, %s)" % (code, where, assigned.group(1))
        if keyword:
            raise self.block.error("--> follows neither an expression nor an assignment", where)
        return "value__(%d, %s)" % (where, code)

    def check(self, path, back):
        """Compare with the records in the file at `path`. Raises for the first that differs or is missing. `back` puts back the
        ports of the page."""
        records = {}
        with contextlib.suppress(FileNotFoundError):
            with open(path, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    number, kind, *values = json.loads(line)
                    records.setdefault(int(number), []).append((kind, values))
        for number, (kind, text) in sorted(self.expected.items()):
            where = self.block.line + number - 1
            for got, values in records.get(where, ()):
                said = back(", ".join(value for _, value in values)).rstrip()
                if got == "returned":
                    raise self.block.error("raised nothing; the page states the error %s" % text, where)
                if got == "raised" and not re.search(wildcard(text), said):
                    raise self.block.error("raised %s; the page states %s" % (said, text), where)
                if got == "value" and not same_text(text, said):
                    raise self.block.error("the value is %s; the page states %s" % (said, text), where)
            if where not in records:
                raise self.block.error("the line never ran; the page states %s" % text, where)
