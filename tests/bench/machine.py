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
    ("nginx", "nginx-light"), ("/usr/lib/nginx/modules/ngx_http_lua_module.so", "libnginx-mod-http-lua"),
    ("/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so /usr/lib/aarch64-linux-gnu/lua/5.1/cjson.so", "lua-cjson"),
    ("haproxy", "haproxy"), ("wrk", "wrk"), ("gcc", "gcc"), ("taskset", "util-linux"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"), ("openssl", "openssl"),
)
JAVASCRIPT = (("node", "nodejs"), ("npm", "npm"))
NEEDED_FOR = {  # the same for groups of sections
    "websocket": JAVASCRIPT,
    "client": JAVASCRIPT,
    "sites": (("git", "git"),),
    "counts": (("strace", "strace"), ("valgrind", "valgrind")),
    "http2": (("h2load", "nghttp2-client"), ("nghttpd", "nghttp2-server"), ("h2o", "h2o")),
    "data": JAVASCRIPT + (("/usr/share/lua/5.1/nginx/redis.lua", "lua-nginx-redis"), ("redis-server", "redis-server"),
                          ("runuser", "util-linux"), (" ".join(f"/usr/lib/postgresql/{n}/bin/postgres" for n in range(13, 20)), "postgresql")),
}
NPM_PACKAGES = {"websocket": ("bun", "ws"), "client": ("bun",), "data": ("bun", "pg")}
TEMPLATE = ("https://github.com/bungle/lua-resty-template", "v2.0")


def is_there(places):
    return any(os.path.exists(place) if place.startswith("/") else shutil.which(place) for place in places.split())


def install_missing(groups):
    """Install missing packages; if that is not possible, exit with what scripts/setup says."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
    needed = NEEDED + tuple(one for group in groups for one in NEEDED_FOR.get(group, ()))
    packages = list(dict.fromkeys(package for places, package in needed if not is_there(places)))
    setup = [os.path.join(ROOT, "scripts", "setup"), *packages]
    if packages and subprocess.run(setup, stdout=sys.stderr, check=False).returncode != 0:
        sys.exit("bench: without these packages --no-install measures what there is: " + " ".join(packages))


def bun_of(packages):
    """The program of Bun in a folder of install_packages."""
    return os.path.join(packages, "node_modules", ".bin", "bun")


def template_of(build):
    """The folder of lua-resty-template's modules."""
    return os.path.join(build, "lua-resty-template", "lib")


def install_outside(groups, build, packages):
    """Install what is no package of the system, once: npm's packages into `packages`, lua-resty-template below `build`. Servers
    whose packages cannot be had are left out of the run."""
    if "sites" in groups and not os.path.exists(template_of(build)):
        run(["git", "clone", "--quiet", "--depth", "1", "--branch", TEMPLATE[1], TEMPLATE[0], os.path.dirname(template_of(build))])
    names = sorted({name for group in groups for name in NPM_PACKAGES.get(group, ())})
    modules = os.path.join(packages, "node_modules")
    if all(os.path.exists(os.path.join(modules, name)) for name in names):
        return
    os.makedirs(packages, exist_ok=True)
    if run(["npm", "install", "--no-audit", "--no-fund", "--prefix", packages, *names]) and "bun" in names \
            and first_line([bun_of(packages), "--version"]) == "missing":  # the system does not run scripts of packages
        subprocess.run(["node", "install.js"], cwd=os.path.join(modules, "bun"), stdout=sys.stderr, check=False)


def run(command):
    """Run and show an installing command. Returns whether it succeeded."""
    print("bench: " + " ".join(command), file=sys.stderr)
    succeeded = subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0
    if not succeeded:
        print(f"bench: {command[0]} failed", file=sys.stderr)
    return succeeded


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


def describe(luaserve, packages=None, groups=()):
    """What the report says about the machine; `packages`: the folder of npm's packages; `groups`: of the sections of the run."""
    outside = sorted({name for group in groups for name in NPM_PACKAGES.get(group, ())})
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
            **({"node": first_line(["node", "--version"])} if outside else {}),
            **{name: version_of_package(packages, name) for name in outside},
            **({name: first_line([name, "--version"]) for name in ("h2load", "nghttpd", "h2o")} if "http2" in groups else {}),
            **({"redis": first_line(["redis-server", "--version"]), "postgresql": first_line(["psql", "--version"])}
               if "data" in groups else {}),
        },
    }
