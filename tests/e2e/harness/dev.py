"""Sites in dev mode, and the lines of them that it warns of."""
import re

from . import E2E, LUASERVE

DEV = (LUASERVE, "dev")
LISTEN = '\nls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'
HEAD = 'local ls = require "luaserve"\nlocal app = ls.app()\n'


def with_handlers(site):
    """A site in which "GET path" and the indented lines behind it are a handler; one without a result at its end responds 204."""
    def handler(match):
        method, path, body = match.groups()
        result = "" if re.findall(r"\n  (?!end|else)(\w+)", body)[-1] == "return" else "\n  return 204"
        return 'app:%s("%s", function(req, res)%s%s\nend)' % (method.lower(), path, body, result)
    return re.sub(r"(?m)^(GET|POST|PUT|PATCH) (\S+)((?:\n  .*)+)", handler, site)


def paths_of(site):
    """The paths of the handlers, with their methods unless these are GET."""
    return [(method.upper() + " " if method != "get" else "") + path for method, path in re.findall(r'app:(get|post|put|patch)\("(/[^"]*)"', site)]


class DevSites(E2E):
    def dev(self, site, **kw):
        return self.serve(HEAD + site + LISTEN, program=DEV, **kw)

    def check_lines(self, site, paths=(), listeners=1):
        """In dev mode these requests, by default those of all handlers, give the warning that a comment "-- WARN text" names, at its line, once, and no other one. A path
        begins with its method and a blank, unless it is GET."""
        site = with_handlers(site)
        server = self.dev(site, listeners=listeners)
        for path in (paths or paths_of(site)) * 2:
            method, _, path = path.rpartition(" ")
            with server.connect(listeners - 1) as conn:
                self.assertIn(conn.ask(method or "GET", path).status, (200, 204, 401, 404, 409), server.log())
        server.stop()
        found = {int(re.search(r"site\.lua:(\d+): ", line).group(1)): line for line in server.warnings()}
        wanted = {n: m.group(1) for n, m in enumerate((re.search("-- WARN (.*)", line) for line in (HEAD + site).split("\n")), 1) if m}
        self.assertEqual((sorted(found), len(server.warnings())), (sorted(wanted), len(wanted)), server.log())
        for n, text in wanted.items():
            self.assertRegex(found[n], text)
