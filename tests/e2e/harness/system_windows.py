"""What the tests ask the operating system that they run on, with Python for Windows. system_posix.py has the same
functions. The calls are those of Microsoft's documentation: GetProcessMemoryInfo, GetProcessTimes,
GetProcessHandleCount, CreateToolhelp32Snapshot, GenerateConsoleCtrlEvent."""
import ctypes
import os
import re
import signal
import subprocess
import unittest

# CTRL_BREAK_EVENT goes to a process group: without one of its own the program would share that of the tests.
PROCESS_OPTIONS = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}

QUERY_INFORMATION, SNAP_THREADS = 0x0400, 0x0004


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS"""
    _fields_ = [("cb", ctypes.c_uint32), ("PageFaultCount", ctypes.c_uint32)] + [
        (name, ctypes.c_size_t) for name in ("PeakWorkingSetSize", "WorkingSetSize", "QuotaPeakPagedPoolUsage",
                                             "QuotaPagedPoolUsage", "QuotaPeakNonPagedPoolUsage", "QuotaNonPagedPoolUsage",
                                             "PagefileUsage", "PeakPagefileUsage")]


class ThreadEntry(ctypes.Structure):
    """THREADENTRY32"""
    _fields_ = [("dwSize", ctypes.c_uint32), ("cntUsage", ctypes.c_uint32), ("th32ThreadID", ctypes.c_uint32),
                ("th32OwnerProcessID", ctypes.c_uint32), ("tpBasePri", ctypes.c_int32), ("tpDeltaPri", ctypes.c_int32),
                ("dwFlags", ctypes.c_uint32)]


def _library(name):
    library = ctypes.WinDLL(name, use_last_error=True)
    for function in ("OpenProcess", "CreateToolhelp32Snapshot"):
        if name == "kernel32":
            getattr(library, function).restype = ctypes.c_void_p
    return library


def _checked(result, call):
    if not result:
        raise OSError("%s failed with error %d" % (call, ctypes.get_last_error()))
    return result


def _with_process(pid, use):
    """use(kernel32, handle) with a handle of the process."""
    kernel32 = _library("kernel32")
    handle = ctypes.c_void_p(_checked(kernel32.OpenProcess(QUERY_INFORMATION, False, pid), "OpenProcess"))
    try:
        return use(kernel32, handle)
    finally:
        kernel32.CloseHandle(handle)


def rss(pid):
    """Resident bytes of a process: its working set."""
    def read(_, handle):
        counters = MemoryCounters(cb=ctypes.sizeof(MemoryCounters))
        _checked(_library("psapi").GetProcessMemoryInfo(handle, ctypes.byref(counters), counters.cb), "GetProcessMemoryInfo")
        return counters.WorkingSetSize
    return _with_process(pid, read)


def cpu(pid):
    """Seconds of processor time of a process."""
    def read(kernel32, handle):
        times = [ctypes.c_uint64() for _ in range(4)]  # created, exited, kernel, user; in units of 100 ns
        _checked(kernel32.GetProcessTimes(handle, *map(ctypes.byref, times)), "GetProcessTimes")
        return (times[2].value + times[3].value) / 1e7
    return _with_process(pid, read)


def threads(pid):
    """The number of threads of a process."""
    kernel32 = _library("kernel32")
    snapshot = ctypes.c_void_p(kernel32.CreateToolhelp32Snapshot(SNAP_THREADS, 0))
    entry, count = ThreadEntry(dwSize=ctypes.sizeof(ThreadEntry)), 0
    more = _checked(kernel32.Thread32First(snapshot, ctypes.byref(entry)), "Thread32First")
    while more:
        count += entry.th32OwnerProcessID == pid
        more = kernel32.Thread32Next(snapshot, ctypes.byref(entry))
    kernel32.CloseHandle(snapshot)
    return count


def descriptors(pid):
    """The number of open handles of a process."""
    def read(kernel32, handle):
        count = ctypes.c_uint32()
        _checked(kernel32.GetProcessHandleCount(handle, ctypes.byref(count)), "GetProcessHandleCount")
        return count.value
    return _with_process(pid, read)


def open_ports(netstat):
    """The local port of each open TCP socket in the output of `netstat -an -p TCP` (or TCPv6). A socket in TIME_WAIT has
    no handle any more. The names of the states are not translated."""
    rows = re.findall(r"^\s*TCP\s+\S+:(\d+)\s+\S+\s+(\w+)", netstat, re.M)
    return [int(port) for port, state in rows if state != "TIME_WAIT"]


def tcp_sockets(ports):
    """The number of open TCP sockets, in any process, with one of these local ports."""
    count = 0
    for protocol in ("TCP", "TCPv6"):
        listed = subprocess.run(["netstat", "-an", "-p", protocol], capture_output=True, text=True, errors="replace", check=True)
        count += sum(port in ports for port in open_ports(listed.stdout))
    return count


def data_segments(sock):  # pylint: disable=unused-argument
    """The system does not tell."""
    return None


def udp_sockets(ports):
    """Not known on Windows, which does not list the peer of a UDP socket: skips the test."""
    raise unittest.SkipTest("of another system: Windows does not list the peer of a UDP socket")


def descriptor_limit(count):
    """Windows has no limit of handles that a program could be given: skips the test."""
    raise unittest.SkipTest("of another system: Windows has no descriptor limit")


def raise_descriptor_limit(wanted):
    """Windows has no such limit: returns `wanted`."""
    return wanted


def send_signal(process, number):
    """Ask a subprocess to end: Ctrl-Break for SIGINT and SIGTERM, on which luaserve drains."""
    if number not in (signal.SIGINT, signal.SIGTERM):
        raise unittest.SkipTest("of another system: Windows has no signal %s" % number)
    os.kill(process.pid, getattr(signal, "CTRL_BREAK_EVENT", 1))


def kill(process):
    """End a subprocess at once."""
    process.kill()


def processors():
    """The number of processors."""
    return os.cpu_count()
