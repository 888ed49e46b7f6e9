"""Throw-away root directories, in which packages are installed and removed. They are in memory; only processes in a mount
namespace of their own see them, and they end with these.

Root      an overlay: it reads the files of this machine and keeps all changes. Nothing is downloaded or unpacked, and the
          dependencies of the packages are the real ones
BareRoot  a minimal system made by debootstrap, from the mirror that apt of this machine uses"""
import os
import shutil
import subprocess
import tempfile
import time
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
# $3: its archive, made by the first run; $4: the release; $5: the URL of the mirror; $6: packages; $7: the log.
BARE = """
if [ -f "$3" ]; then
    tar -C "$1/root" -xf "$3"
else
    debootstrap --variant=minbase ${6:+--include="$6"} "$4" "$1/root" "$5" >"$7" 2>&1
    tar -C "$1/root" --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./var/cache/apt/archives/*.deb' \
        -czf "$3.$$" .
    mv "$3.$$" "$3"
fi
"""
ARCHIVE_DAYS_MAX = 30


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
    """The minimal system, and apt configured for the repositories of the machine's own release. Its archive is kept for a
    month, in the folder where scripts/library-windows keeps its libraries."""

    def __init__(self):
        if not shutil.which("debootstrap"):
            raise unittest.SkipTest("debootstrap is not installed; scripts/setup --test installs it")
        with open("/etc/os-release", encoding="utf-8") as lines:
            system = dict(line.rstrip("\n").replace('"', "").split("=", 1) for line in lines if "=" in line)
        release = system["VERSION_CODENAME"]
        sources = [line.split() for line in self.output(
            "apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").splitlines()]
        sources = [source[1:] for source in sources if source[0].lower() == system["ID"] and len(source) == 4]
        mirrors = [url for url, name, _ in sources if name == release]
        if not mirrors:
            raise unittest.SkipTest("apt has no list of the packages of %s: apt-get update" % release)
        # A mirror by https needs these before apt can install anything.
        packages = "ca-certificates" if any(url.startswith("https:") for url, _, _ in sources) else ""
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "luaserve")
        os.makedirs(cache, exist_ok=True)
        archive = os.path.join(cache, "bare-%s-%s%s.tar.gz" % (release, self.output("dpkg", "--print-architecture").strip(), packages and "-https"))
        if os.path.exists(archive) and time.time() - os.path.getmtime(archive) > ARCHIVE_DAYS_MAX * 86400:
            os.remove(archive)
        with tempfile.NamedTemporaryFile("r", prefix="luaserve-e2e-") as log:
            try:
                self.make(BARE, archive, release, mirrors[0], packages, log.name)
            except unittest.SkipTest:
                text = log.read()
                if not text or "Failed getting release file" in text or "Couldn't download" in text:
                    raise
                raise AssertionError("debootstrap: " + text) from None
        self.write("/etc/apt/sources.list", "".join("deb %s %s %s\n" % tuple(source) for source in sources))
        acquire = [line for line in self.output("apt-config", "dump").splitlines() if line.startswith("Acquire::")]
        self.write("/etc/apt/apt.conf.d/50machine", "\n".join(acquire) + "\n")
        for name in "/etc/resolv.conf", "/etc/hosts":
            with open(name, encoding="utf-8") as file:
                self.write(name, file.read())

    @staticmethod
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
