"""The measurement of the access log: CPU time of hello with a line for each request in a file and metrics, and without; beside
nginx with access_log combined. The site is sites/access_log.lua."""
import os

from measure import cpu_per_request
from servers import HELLO, SITES, Server, luaserve, nginx

PLAIN, LOGGED = "luaserve", "luaserve access log and metrics"
NGINX_PLAIN, NGINX_LOGGED = "nginx", "nginx access log"
NGINX_HELLO = 'location / { access_log %s; return 200 "hello, world\\n"; }'


def request(server, load_cpu, seconds, **_):
    return cpu_per_request(server, load_cpu, seconds, "/", connections=64)


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    servers = {}
    for shown, file in ((PLAIN, []), (LOGGED, [os.path.join(at.directory, "access.log")])):
        for name, program in at.programs(shown):
            make = luaserve(program, 1, os.path.join(SITES, "access_log.lua"), file)
            servers["log: " + name] = Server("log: " + name, make, at.cpu, at.directory, answers=HELLO)
    for shown, file in ((NGINX_PLAIN, "off"), (NGINX_LOGGED, os.path.join(at.directory, "nginx.log") + " combined")):
        servers["log: " + shown] = Server("log: " + shown, nginx(NGINX_HELLO % file), at.cpu, at.directory, answers=HELLO)
    return servers


# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {"access-log": ({name: ("log: " + name, {}) for name in (PLAIN, LOGGED, NGINX_PLAIN, NGINX_LOGGED)}, request, {})}
