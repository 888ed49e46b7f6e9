"""The memory of a server including the kernel's share, measured with a control group (cgroups(7)).

Resident memory excludes the memory that the kernel uses for a process (kernel stacks of threads, page tables,
sockets), and includes the pages of the C library, which all processes share. A memory control group is charged for all
memory that the kernel allocates for its processes, and for file pages only if they were the first to read them.
"""
import os
import subprocess
import tempfile

V2_ROOT = "/sys/fs/cgroup"


def _v2():
    """The root of the unified hierarchy if its children are charged for memory, else None."""
    try:
        with open(os.path.join(V2_ROOT, "cgroup.subtree_control"), encoding="ascii") as file:
            return V2_ROOT if "memory" in file.read().split() else None
    except OSError:
        return None


def _v1():
    """The mount point of the hierarchy of the memory controller, or None."""
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, place, kind, options, *_ = line.split()
            if kind == "cgroup" and "memory" in options.split(","):
                return place
    return None


class MemoryGroup:
    """A group for the processes of one server. Creating one raises OSError without permission: it needs root."""

    mounted = None  # of version 1, if it was not mounted: kept until the program exits

    def __init__(self):
        root, self.counter = _v2(), "memory.current"
        if root is None:
            root, self.counter = _v1() or MemoryGroup._mount(), "memory.usage_in_bytes"
        self.path = tempfile.mkdtemp(prefix="luaserve-bench-", dir=root)

    @classmethod
    def _mount(cls):
        if cls.mounted is None:
            place = tempfile.mkdtemp(prefix="luaserve-bench-memory-")
            done = subprocess.run(["mount", "-t", "cgroup", "-o", "memory", "none", place], capture_output=True, text=True, check=False)
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
        """Add the calling process, and all processes that it starts from now on, to the group."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")

    def charged(self):
        """The charged memory in bytes."""
        with open(os.path.join(self.path, self.counter), encoding="ascii") as file:
            return int(file.read())

    def close(self):
        """Call it when its processes have ended."""
        os.rmdir(self.path)
