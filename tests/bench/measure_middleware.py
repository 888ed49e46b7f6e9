"""The measurements of middleware: fields that are added behind next(), and a page behind one middleware. The site is
sites/middleware.lua."""
import os

from measure import cpu_per_request
from servers import BEFORE, HELLO, SITES, Server, luaserve

FIELDS, PAGE, PAGE_BEHIND = "luaserve fields", "luaserve page", "luaserve page, middleware"
PAGE_ANSWERS = {"/page": b"<!doctype html><title>t</title><p>" + b"hello " * 20}


def request(server, load_cpu, seconds, target, **_):
    return cpu_per_request(server, load_cpu, seconds, target, connections=64)


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    servers = {}
    for shown, kind, answers in ((FIELDS, "fields", HELLO), (PAGE, "page", PAGE_ANSWERS), (PAGE_BEHIND, "passed", PAGE_ANSWERS)):
        for name, program in at.programs(shown):
            older = "-results" if name.endswith(BEFORE) and kind != "page" else ""
            make = luaserve(program, 1, os.path.join(SITES, "middleware.lua"), [kind + older])
            servers[name] = Server(name, make, at.cpu, at.directory, answers=answers)
    return servers


# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {"middleware-fields": ({FIELDS: (FIELDS, {})}, request, {"target": "/"}),
            "middleware-page": ({name: (name, {}) for name in (PAGE, PAGE_BEHIND)}, request, {"target": "/page"})}
