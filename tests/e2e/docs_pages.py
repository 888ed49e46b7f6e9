"""Pages of documentation (*.md): their fenced code blocks, and their links.

    ```lua handler path=/a?b=c         the info string: a language, words, and options as name=value or name='a value'

Blocks that belong together are a Scope: the files of a site, the site, and all that follows until the next site. The order of
a page is what a reader types: the files of a page stay for all of its later sites.
"""
import os
import re

from harness import ROOT

DOCS = os.path.join("lua", "docs")

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`]*?)[ \t]*$")
WORD = re.compile(r"([^\s=]+)(?:=('[^']*'|\S*))?")


class DocError(AssertionError):
    """A block or link that is wrong. The text begins with page:line."""


class Block:
    """words: what follows the language; options: those of the form name=value. `line` is that of the block's first line."""

    def __init__(self, page, line, info, lines):
        self.page, self.line, self.lines = page, line, lines
        self.words, self.options = [], {}
        for word, value in WORD.findall(info):
            if value or f"{word}=" in info.split():
                self.options[word] = value.strip("'")
            else:
                self.words.append(word)
        self.language = self.words.pop(0) if self.words else ""

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def file(self):
        return self.options.get("file")

    def error(self, message, line=None):
        """An error at a line of the page (default: the block's first)."""
        return DocError("%s:%d: %s" % (self.page, line or self.line, message))


class Scope:
    """files: Blocks with file=, those of earlier scopes included; site: a Block or None; rest: the Blocks that run beside it."""

    def __init__(self, files):
        self.files, self.site, self.rest = list(files), None, []


def tracked(root=ROOT):
    """The pages of the tree, as paths relative to it."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "build" and not name.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".md")]
    return sorted(found)


RECIPES = [page for page in tracked() if page.startswith(os.path.join(DOCS, "cookbook", "")) and not page.endswith("README.md")]


def blocks_of(page, text):
    """The fenced blocks of a page, in order."""
    blocks, fence = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence, info, begun, lines = match.group(1), match.group(2), number + 1, []
        elif fence is not None and match and match.group(1).startswith(fence) and not match.group(2):
            blocks.append(Block(page, begun, info, lines))
            fence = None
        elif fence is not None:
            lines.append(line)
    if fence is not None:
        raise DocError("%s:%d: the code block has no end" % (page, begun))
    return blocks


def scopes_of(blocks):
    """Blocks of text are left out: there is nothing to run."""
    scopes = [Scope([])]
    for block in blocks:
        if block.language == "text" and not block.file:
            continue
        current = scopes[-1]
        is_site = block.language == "lua" and not block.words and not block.file
        is_file = block.file is not None and "stress" not in block.words
        if (is_site or is_file) and (current.site or current.rest):
            current = Scope(current.files)
            scopes.append(current)
        if is_site:
            current.site = block
        elif is_file:
            current.files.append(block)
        else:
            current.rest.append(block)
    return scopes


def without_wrong_input(page, text):
    """The sections of a page, or the page without them, that have a site, but not both a console block and one of wrong input: their
    titles."""
    blocks, found = blocks_of(page, text), []
    begins = [(number, line.lstrip("# ")) for number, line in enumerate(without_code(text), 1) if re.match("##? ", line)]
    for (first, title), (last, _) in zip(begins, [*begins[1:], (len(text), "")]):
        section = [block for block in blocks if first < block.line < last]
        kinds = {tuple(block.words) for block in section if block.language == "console"}
        if any(block.language == "lua" and not block.words and not block.file for block in section) and \
                not kinds >= {(), ("wrong",)}:
            found.append(title)
    return found


# ---- links ---------------------------------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")


def without_code(text):
    """The page with its code blocks and `code` emptied; lines keep their numbers."""
    out, fence = [], None
    for line in text.split("\n"):
        match = FENCE.match(line)
        if match and (fence is None or match.group(1).startswith(fence)):
            fence = match.group(1) if fence is None else None
            line = ""
        elif fence is not None:
            line = ""
        out.append(re.sub(r"`[^`]*`", "``", line))
    return out


def anchors_of(text):
    """The names that headings get: in small letters, without punctuation, spaces as hyphens, -1 for the second of a name."""
    names, fence = {}, None
    for line in text.split("\n"):
        match = FENCE.match(line)
        if match and (fence is None or match.group(1).startswith(fence)):
            fence = match.group(1) if fence is None else None
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if fence is None and heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "")
            name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            count = names.get(name, 0)
            names[name] = count + 1
            if count:
                names["%s-%d" % (name, count)] = 1
    return set(names)


def check_links(page, text, root=ROOT):
    """Raise when a relative link of a page names a file or a heading that does not exist."""
    for number, line in enumerate(without_code(text), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            where = os.path.normpath(os.path.join(root, os.path.dirname(page), path)) if path else os.path.join(root, page)
            if not os.path.exists(where):
                raise DocError("%s:%d: the link %s names no file" % (page, number, target))
            if anchor and where.endswith(".md"):
                with open(where, encoding="utf-8") as other:
                    if anchor not in anchors_of(text if not path else other.read()):
                        raise DocError("%s:%d: the link %s names no heading" % (page, number, target))
