"""What the tests know about the build and the system that they run on.

Environment variables:
    LUASERVE            the program; default: build/luaserve of this tree
    LUASERVE_ENGINE     http.sys: sites with `host = "127.0.0.1", port = 0` use that engine instead (httpsys.py)
    LUASERVE_SYSTEM     windows: the program is luaserve.exe, under Wine (scripts/test-windows). With Python for Windows it
                        is luaserve.exe without this variable
    LUASERVE_SANITIZER  asan or tsan: fewer repeats, fewer modules (run.py), no memory assertions, no LD_PRELOAD
"""
import contextlib
import os
import random
import socket
import tempfile
import unittest

try:
    from harness import system_posix as system
except ImportError:  # Python for Windows has no module resource
    from harness import system_windows as system

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
LUASERVE = os.path.abspath(os.environ.get("LUASERVE") or os.path.join(ROOT, "build", "luaserve"))
SANITIZER = os.environ.get("LUASERVE_SANITIZER", "")
ENGINE = os.environ.get("LUASERVE_ENGINE", "")
WINE = os.environ.get("LUASERVE_SYSTEM") == "windows" and os.name != "nt"  # luaserve.exe, run by Python for Linux
WINDOWS = WINE or os.name == "nt"  # luaserve.exe, whatever runs it
SLOW = 4 if SANITIZER else 1
# Of every program that a test starts.
SUPPRESSIONS = os.path.join(ROOT, "tests", "tsan.supp")
if SANITIZER == "tsan":  # a copy for programs that run as a user who may not enter the folder of the tree
    with tempfile.NamedTemporaryFile(prefix="luaserve-e2e-", delete=False) as copy, open(SUPPRESSIONS, "rb") as original:
        copy.write(original.read())
    SUPPRESSIONS = os.path.join(tempfile.gettempdir(), "luaserve-e2e-tsan-%d.supp" % os.getuid())
    os.chmod(copy.name, 0o644)
    os.replace(copy.name, SUPPRESSIONS)
os.environ.setdefault("TSAN_OPTIONS", "suppressions=%s second_deadlock_stack=1" % SUPPRESSIONS)
os.environ.setdefault("ASAN_OPTIONS", "exitcode=67:allocator_may_return_null=1")  # else 1, the status of luaserve when it refuses a site
os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=0")
os.environ["TERM"] = "xterm"  # colours do not depend on the terminal of who runs the tests
os.environ.pop("NO_COLOR", None)
WAIT = 90.0  # seconds: the longest that one wait of a test may take, in any build, on a machine that runs other work
# Wine 8: socket(AF_UNIX) fails with WSAEAFNOSUPPORT. Python for Windows has no AF_UNIX.
HAS_UNIX_SOCKETS = not WINE and hasattr(socket, "AF_UNIX")
# The command that sleeps, for os.execute and io.popen of a site.
SLEEP = ("start /wait /unix /bin/sleep" if WINE else
         "python " + os.path.join(os.path.dirname(os.path.abspath(__file__)), "sleep.py").replace("\\", "/") if WINDOWS else "sleep")
# Wine's server sends SIGKILL to a process that has not ended half a second after its exit began (server/process.c,
# process_sigkill). On a busy machine its exit status is lost then; this one takes its place. None elsewhere.
EXIT_STATUS_LOST = -9 if WINE else None
OTHER_SYSTEM = "of another system: "  # the reasons of skips that run.py lists apart begin so

# A difference between Wine 8 and Windows; a program of a few lines shows it.
no_refusals = unittest.skipIf(WINE, "Wine 8 drops the error of a refused datagram unless a receive waits for it, and receives "
                                       "nothing afterwards")


def not_on_windows(reason):
    """Skip a test of a feature that Windows does not have."""
    return unittest.skipIf(WINDOWS, OTHER_SYSTEM + reason)


_kept = []  # sockets whose names are those of ports, in the abstract namespace (unix(7)), which ends with the process


def free_port(least=10240, most=32767):
    """A port without a listener of TCP or UDP a moment ago, for programs that cannot choose one themselves. The tests that run
    beside this one take theirs from the system, which gives from 32768 up (ip(7), ip_local_port_range), or from this function,
    which gives none that another process of the tests has."""
    while True:
        port = random.randint(least, most)
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram, contextlib.suppress(OSError):  # taken
            stream.bind(("0.0.0.0", port))
            datagram.bind(("0.0.0.0", port))
            if hasattr(socket, "AF_UNIX") and os.path.exists("/proc/net/unix"):
                _kept.append(socket.socket(socket.AF_UNIX))
                _kept[-1].bind("\0luaserve port %d" % port)
            return port


def has_ipv6():
    """Whether this machine has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def repeats(count):
    """How often to repeat something: a tenth of `count` under a sanitizer and under Wine, which are slow."""
    return max(1, count // 10) if SANITIZER or WINE else count
