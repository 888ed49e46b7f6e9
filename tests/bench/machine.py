"""The machine: its description, and the packages and programs that the benchmark needs."""
import json
import os
import platform
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# What the benchmark needs, and the Debian/Ubuntu package that contains it.
NEEDED = (
    ("nginx", "nginx-light"),
    ("/usr/lib/nginx/modules/ngx_http_lua_module.so", "libnginx-mod-http-lua"),
    ("/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so /usr/lib/aarch64-linux-gnu/lua/5.1/cjson.so", "lua-cjson"),
    ("haproxy", "haproxy"),
    ("wrk", "wrk"),
    ("gcc", "gcc"),
    ("taskset", "util-linux"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("openssl", "openssl"),
)
NEEDED_FOR_WEBSOCKET = (("node", "nodejs"), ("npm", "npm"))
NPM_PACKAGES = ("bun", "ws")


def is_there(places):
    return any(os.path.exists(place) if place.startswith("/") else shutil.which(place) for place in places.split())


def install_missing(websocket):
    """Install missing packages; if that is not possible, exit with what scripts/setup says."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
    packages = [package for places, package in NEEDED + (NEEDED_FOR_WEBSOCKET if websocket else ())
                if not is_there(places)]
    setup = [os.path.join(ROOT, "scripts", "setup"), *packages]
    if packages and subprocess.run(setup, stdout=sys.stderr, check=False).returncode != 0:
        sys.exit("bench: without these packages --no-install measures what there is: " + " ".join(packages))


def bun_of(packages):
    """The program of Bun in a folder of install_packages."""
    return os.path.join(packages, "node_modules", ".bin", "bun")


def install_packages(directory):
    """Install the packages of npm into this folder, once. Without them their servers are left out of the run."""
    modules = os.path.join(directory, "node_modules")
    if all(os.path.exists(os.path.join(modules, name)) for name in NPM_PACKAGES):
        return
    os.makedirs(directory, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", directory, *NPM_PACKAGES]
    print("bench: " + " ".join(command), file=sys.stderr)
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        print("bench: npm failed", file=sys.stderr)
        return
    if first_line([bun_of(directory), "--version"]) == "missing":  # the system does not run scripts of packages
        subprocess.run(["node", "install.js"], cwd=os.path.join(modules, "bun"), stdout=sys.stderr, check=False)


def build_programs(directory):
    """Compile the bare servers and the load generators."""
    os.makedirs(directory, exist_ok=True)
    common = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    programs = {
        "bare_epoll": ["bare_epoll.c", "bare.c"],
        "bare_echo": ["bare_echo.c", "bare.c"],
        "bare_udp": ["bare_udp.c", "bare.c"],
        "open_loop": ["open_loop.c", "load.c"],
        "echo_load": ["echo_load.c", "load.c"],
        "udp_load": ["udp_load.c", "load.c"],
        "tls_load": ["tls_load.c", "load.c", "-lssl", "-lcrypto"],
        "s6": ["s6_one_to_one.c"],
        "s7": ["s7_thread_per_client.c", "-pthread"],
    }
    for name, sources in programs.items():
        paths = [os.path.join(HERE, word) if word.endswith(".c") else word for word in sources]
        subprocess.run(common + ["-o", os.path.join(directory, name)] + paths, check=True)


def build_luaserve():
    """The release build, compiled with a profile of a run under load. Returns the program's path, or None with the
    reason on standard error."""
    for script in (["setup"], ["build", "profiled"]):
        command = [os.path.join(ROOT, "scripts", script[0])] + script[1:]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ended.returncode != 0:
            print(f"bench: scripts/{' '.join(script)} failed:\n{ended.stdout[-2000:]}", file=sys.stderr)
            return None
    return os.path.join(ROOT, "build", "profiled", "luaserve")


def raise_descriptor_limit():
    """Raise the soft limit to the hard limit, for this process and its children. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def first_line(command):
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError:
        return "missing"
    return (ended.stdout.strip().splitlines() or ["?"])[0]


def version_of_package(directory, name):
    try:
        with open(os.path.join(directory, "node_modules", name, "package.json"), encoding="utf-8") as file:
            return json.load(file)["version"]
    except OSError:
        return "missing"


def describe(luaserve, packages=None):
    """What the report says about the machine; `packages`: the folder of install_packages, if the run needs it."""
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                cpu = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
        "versions": {
            "luaserve": first_line([luaserve, "--version"]) if luaserve else "missing",
            "nginx": first_line(["nginx", "-v"]),
            "haproxy": first_line(["haproxy", "-v"]),
            "wrk": first_line(["wrk", "-v"]),
            "openssl": first_line(["openssl", "version"]),
            "gcc": first_line(["gcc", "--version"]),
            **({"node": first_line(["node", "--version"]), "bun": first_line([bun_of(packages), "--version"]),
                "ws": version_of_package(packages, "ws")} if packages else {}),
        },
    }
