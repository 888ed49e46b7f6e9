"""What the tests ask the operating system that they run on, on Linux. system_windows.py has the same functions."""
import os
import resource
import signal
import socket
import struct

# A program started with nohup(1) ignores SIGHUP, one that a shell started in the background ignores SIGINT, and the
# programs that they start do as well: not those of the tests.
for ignored in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)
PROCESS_OPTIONS = {}  # of subprocess.Popen, for a program that gets signals


def rss(pid):
    """Resident bytes of a process."""
    with open("/proc/%d/status" % pid) as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def cpu(pid):
    """Seconds of processor time of a process."""
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads(pid):
    """The number of threads of a process."""
    return len(os.listdir("/proc/%d/task" % pid))


def descriptors(pid):
    """The number of open descriptors of a process."""
    return len(os.listdir("/proc/%d/fd" % pid))


def tcp_sockets(ports):
    """The number of open TCP sockets, in any process, with one of these local ports."""
    count = 0
    for table_name in ("tcp", "tcp6"):
        with open("/proc/net/" + table_name) as rows:
            for row in list(rows)[1:]:
                fields = row.split()
                count += int(fields[1].rsplit(":", 1)[1], 16) in ports and fields[9] != "0"  # it has an inode: it is open
    return count


def data_segments(sock):
    """The number of segments with data that a TCP connection has received, or None."""
    return struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 152)[0]


def udp_sockets(ports):
    """The number of UDP sockets, in any process, that are connected to one of these ports."""
    with open("/proc/net/udp") as rows:
        return sum(int(row.split()[2].rsplit(":", 1)[1], 16) in ports for row in list(rows)[1:])


def descriptor_limit(count):
    """The preexec_fn that gives a program this descriptor limit."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def raise_descriptor_limit(wanted):
    """Raise the descriptor limit of this process to `wanted`, or to the hard limit; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def send_signal(process, number):
    """Send a signal to a subprocess."""
    process.send_signal(number)


def kill(process):
    """End a subprocess at once."""
    process.send_signal(signal.SIGKILL)


def processors():
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
