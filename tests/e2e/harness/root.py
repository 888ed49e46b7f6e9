"""A throw-away view of this machine, in which packages are installed and removed by the system's dpkg.

The root directory of the view is an overlay: it reads the files of this machine, and keeps all changes in memory. Only
processes in a mount namespace of their own see it, and it ends with them. So nothing is downloaded or unpacked, as a
root made by debootstrap would need, and the dependencies of the packages are the real ones."""
import os
import shutil
import subprocess
import tempfile
import unittest

# $1: an empty directory for the changes; $2: the directory of temporary files, which is that of the machine. The last
# command keeps the view until its standard input ends.
VIEW = """
set -e
mount -t tmpfs -o mode=755 luaserve-e2e "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" luaserve-e2e "$1/root"
for directory in /proc /sys /dev; do mount --rbind $directory "$1/root$directory"; done
mkdir -p "$1/root$2"
mount --bind "$2" "$1/root$2"
exec chroot "$1/root" sh -c 'echo ready; read -r end'
"""


class Root:
    """The view. Raises unittest.SkipTest where the system does not allow it, such as for a user other than root."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="luaserve-e2e-")
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", VIEW, "sh", self.directory, tempfile.gettempdir()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            reason = " ".join(self.holder.stderr.read().split())
            self.close()
            raise unittest.SkipTest("an overlay over / needs root in a mount namespace: " + reason)
        # The start of a command that runs inside, and of one that sees the file systems but keeps this machine's root.
        self.enter = ["nsenter", "--target", str(self.holder.pid), "--mount", "--root", "--wd"]
        self.beside = ["nsenter", "--target", str(self.holder.pid), "--mount"]

    def changes(self):
        """The paths of the files that were created or changed inside."""
        where = os.path.join(self.directory, "changes")
        done = subprocess.run([*self.beside, "find", where, "-not", "-type", "d", "-printf", "%P\\n"], capture_output=True, text=True,
                              check=True)
        return set(done.stdout.splitlines())

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()
        shutil.rmtree(self.directory)
