"""Throw-away root directories, in which packages are installed and removed. They are in memory; only processes in a mount
namespace of their own see them, and they end with these.

Root      an overlay: it reads the files of this machine and keeps all changes. Nothing is downloaded or unpacked, and the
          dependencies of the packages are the real ones
BareRoot  a minimal system, as debootstrap makes one: a copy of those files of this machine that belong to the packages of such
          a system"""
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

# $1: an empty directory for the changes; $2: the directory of temporary files, which is that of the machine; the others are
# those of make(). FILL fills $1/root. The last command keeps the root until its standard input ends.
VIEW = """
set -e
mount -t tmpfs -o mode=755 luaserve-e2e "$1"
mkdir "$1/root"
FILL
for directory in /proc /sys /dev; do mount --rbind $directory "$1/root$directory"; done
mkdir -p "$1/root$2"
mount --bind "$2" "$1/root$2"
exec chroot "$1/root" sh -c 'echo ready; read -r end'
"""
OVERLAY = """
mkdir "$1/changes" "$1/work"
mount -t overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" luaserve-e2e "$1/root"
"""
# $3: a list of paths.
BARE = """
tar -C / --no-recursion --ignore-failed-read --files-from="$3" -cf - 2>/dev/null | tar -C "$1/root" -xf - 2>/dev/null || true
"""
# What the scripts of its packages have made, beside the links of a merged /usr, without which tar would make directories.
MADE = ["/" + name for name in "usr usr/bin usr/sbin usr/lib usr/lib64 bin sbin lib lib64 etc etc/group etc/gshadow etc/passwd etc/shadow "
        "etc/resolv.conf etc/hosts etc/ssl etc/ssl".split()]

DPKG = "/var/lib/dpkg"


class Root:
    """The overlay. Raises unittest.SkipTest where the system does not allow it, such as for a user other than root."""

    def __init__(self):
        self.make(OVERLAY)

    def make(self, fill, *arguments):
        self.directory = tempfile.mkdtemp(prefix="luaserve-e2e-")
        view = VIEW.replace("FILL", fill.strip())
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", view, "sh", self.directory, tempfile.gettempdir(), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            reason = " ".join(self.holder.stderr.read().split())
            self.close()
            raise unittest.SkipTest("a root directory needs root in a mount namespace: " + reason)
        # The start of a command that runs inside, and of one that sees the file systems but keeps this machine's root.
        self.enter = ["nsenter", "--target", str(self.holder.pid), "--mount", "--root", "--wd",
                      "env", "-u", "CMAKE_C_COMPILER_LAUNCHER"]  # a developer's ccache
        self.beside = ["nsenter", "--target", str(self.holder.pid), "--mount"]

    def changes(self):
        """The paths of the files that were created or changed inside."""
        where = os.path.join(self.directory, "changes")
        done = subprocess.run([*self.beside, "find", where, "-not", "-type", "d", "-printf", "%P\\n"], capture_output=True, text=True,
                              check=True)
        return set(done.stdout.splitlines())

    def write(self, path, text):
        """Write a file of the root; its folder exists."""
        subprocess.run([*self.beside, "tee", self.directory + "/root" + path], input=text, text=True, stdout=subprocess.DEVNULL,
                       check=True)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()
        shutil.rmtree(self.directory)


class BareRoot(Root):
    """The minimal system, and apt configured as on this machine."""

    def __init__(self):
        if not os.path.exists(DPKG + "/status"):
            raise unittest.SkipTest("the system is not Debian")
        packages = self.packages()
        info = [os.path.join(DPKG, "info", name) for name in os.listdir(DPKG + "/info") if re.sub(r"(:\w+)?\.\w+$", "", name) in packages]
        paths = MADE + info + self.output("dpkg-query", "-L", *packages).splitlines()
        for folder in "/etc/apt", "/etc/alternatives", "/etc/ssl/certs", DPKG + "/alternatives", DPKG + "/info/format":
            paths += [folder, *glob.glob(folder + "/**", recursive=True)]
        with tempfile.NamedTemporaryFile("w", prefix="luaserve-e2e-") as names:
            names.write("".join(path + "\n" for path in dict.fromkeys(paths) if path.startswith("/")))
            names.flush()
            self.make(BARE, names.name)
        self.write(DPKG + "/status", "\n".join(packages.values()))

    @classmethod
    def packages(cls):
        """{package: its paragraph of dpkg's status}, of those that every system has, of apt, and of what they need. A mirror by
        https needs certificates before apt can install anything."""
        with open(DPKG + "/status", encoding="utf-8") as status:
            paragraphs = [text for text in status.read().split("\n\n") if "\nStatus: install ok installed\n" in text]
        known = {text.split("\n")[0].split()[1]: text for text in paragraphs}
        fields = {name: dict(re.findall(r"(?m)^([A-Z][\w-]*): (.*)", text)) for name, text in known.items()}
        wanted = ["apt"] + ["ca-certificates"] * ("https:" in cls.output("apt-get", "indextargets", "--format", "$(REPO_URI)"))
        wanted += [name for name in known if fields[name].get("Essential") == "yes" or fields[name].get("Priority") == "required"]
        packages = {}
        for name in wanted:  # which grows
            if name in known and name not in packages:
                packages[name] = known[name] + "\n"
                for field in "Pre-Depends", "Depends":
                    for need in fields[name].get(field, "").split(","):
                        wanted += [other for other in re.findall(r"(?:^|\|) *([\w.+-]+)", need) if other in known][:1]
        return packages

    @staticmethod
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
