"""Pseudo-terminals, and the modules of Python that only POSIX systems have."""
import contextlib
import os
import unittest

from harness.environment import OTHER_SYSTEM

try:
    import fcntl
    import grp
    import pty
    import pwd
    import termios
except ImportError:  # Python for Windows
    fcntl = grp = pty = pwd = termios = None


@contextlib.contextmanager
def terminal():
    """A pseudo-terminal -> its master's side, its other side."""
    sides = pty.openpty()
    try:
        yield sides
    finally:
        for side in sides:
            os.close(side)


needs_terminal = unittest.skipUnless(pty, OTHER_SYSTEM + "Python for Windows has no pseudo-terminals")
