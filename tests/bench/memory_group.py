"""What a server costs in memory, the kernel's share included: a control group of its own (cgroups(7)).

Resident memory leaves out what the kernel keeps for a process (the kernel stacks of its threads, page tables, sockets), and
counts the C library's pages, which all processes share. A memory control group is charged with all that its processes
make the kernel take, and with pages of files only when they were the first to read them.
"""
import os
import subprocess
import tempfile

V2_ROOT = "/sys/fs/cgroup"


def _v2():
    """The root of the unified hierarchy when its children are charged for memory, else None."""
    try:
        with open(os.path.join(V2_ROOT, "cgroup.subtree_control"), encoding="ascii") as file:
            return V2_ROOT if "memory" in file.read().split() else None
    except OSError:
        return None


def _v1():
    """Where the hierarchy of the memory controller is mounted, or None."""
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, place, kind, options, *_ = line.split()
            if kind == "cgroup" and "memory" in options.split(","):
                return place
    return None


class MemoryGroup:
    """A group for the processes of one server. Making one raises OSError where that is not allowed: it wants root."""

    mounted = None  # of version 1, when nobody else had mounted it: kept until the program ends

    def __init__(self):
        root, self.counter = _v2(), "memory.current"
        if root is None:
            root, self.counter = _v1() or MemoryGroup._mount(), "memory.usage_in_bytes"
        self.path = tempfile.mkdtemp(prefix="luaserve-bench-", dir=root)

    @classmethod
    def _mount(cls):
        if cls.mounted is None:
            place = tempfile.mkdtemp(prefix="luaserve-bench-memory-")
            done = subprocess.run(["mount", "-t", "cgroup", "-o", "memory", "none", place], capture_output=True, text=True,
                                  check=False)
            if done.returncode != 0:
                os.rmdir(place)
                raise OSError(f"no memory control groups: {done.stderr.strip()}")
            cls.mounted = place
        return cls.mounted

    @classmethod
    def unmount(cls):
        if cls.mounted is not None:
            subprocess.run(["umount", cls.mounted], check=False)
            os.rmdir(cls.mounted)
            cls.mounted = None

    def enter(self):
        """The calling process and all that it starts from now on belong to the group."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")

    def charged(self):
        """Bytes."""
        with open(os.path.join(self.path, self.counter), encoding="ascii") as file:
            return int(file.read())

    def close(self):
        """When its processes have ended."""
        os.rmdir(self.path)
