"""Sites in dev mode, and the lines of them that it warns of."""
import re

from . import E2E, LUASERVE

DEV = (LUASERVE, "dev")
LISTEN = '\nls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'
HEAD = 'local ls = require "luaserve"\nlocal app = ls.app()\n'


class DevSites(E2E):
    def dev(self, site, **kw):
        return self.serve(HEAD + site + LISTEN, program=DEV, **kw)

    def check_lines(self, site, paths, listeners=1):
        """In dev mode these requests give the warning that a comment "-- WARN text" names, at its line, once, and no other one. A path
        begins with its method and a blank, unless it is GET."""
        server = self.dev(site, listeners=listeners)
        for path in paths * 2:
            method, _, path = path.rpartition(" ")
            with server.connect(listeners - 1) as conn:
                self.assertIn(conn.ask(method or "GET", path).status, (200, 204, 401, 404, 409), server.log())
        server.stop()
        found = {int(re.search(r"site\.lua:(\d+): ", line).group(1)): line for line in server.warnings()}
        wanted = {n: m.group(1) for n, m in enumerate((re.search("-- WARN (.*)", line) for line in (HEAD + site).split("\n")), 1) if m}
        self.assertEqual((sorted(found), len(server.warnings())), (sorted(wanted), len(wanted)), server.log())
        for n, text in wanted.items():
            self.assertRegex(found[n], text)
