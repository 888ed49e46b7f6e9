"""A server for each short program of a test: the text is between HEAD, which makes `app`, and a listener."""
from harness.case import E2E


class Program(E2E):
    HEAD = 'local ls = require "luaserve"\nlocal app = ls.app()\n'
    LISTEN = '\nls.listen("127.0.0.1:0", app)\n'

    def of(self, text, listen=LISTEN, **kw):
        server = self.serve(self.HEAD + text + listen, **kw)
        self.addCleanup(server.stop)
        return server

    def ask_of(self, server, method, target, headers=(), body=None):
        with server.connect() as conn:
            return conn.ask(method, target, headers, body)
