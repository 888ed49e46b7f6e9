"""Sites whose POST /run runs the text of a chunk, and answers whether it succeeded and its results, as a JSON list."""
import json

from harness.case import E2E

ROUTE = r"""
app:post("/run", function(req) -- the text of a chunk, which sees `env`; its results as a list
  local results = table.pack(pcall(assert(load(req:body(), "=chunk", "t", setmetatable(env, { __index = _G })))))
  local e = results[2]
  if not results[1] and type(e) == "table" then results = { false, tostring(e), e.message, e.code, e.sqlstate, n = 5 } end
  for i = 1, results.n do results[i] = results[i] == nil and ls.json.null or results[i] end
  results.n = nil
  return ls.json.array(results)
end)
"""


class Chunks(E2E):
    def results(self, server, code):
        with server.connect() as conn:
            response = conn.ask("POST", "/run", body=code.encode())
        self.assertEqual(response.status, 200, response.text + server.log()[-4000:])
        return json.loads(response.text)

    def run_lua(self, server, code):
        results = self.results(server=server, code=code)
        self.assertTrue(results[0], results)
        return results[1:]

    def raises(self, server, code, message):
        results = self.results(server=server, code=code)
        self.assertFalse(results[0], results)
        self.assertIn(message, results[1])

    def fails(self, server, code, message, error, state=None):
        """A database fails with this message, code and SQLSTATE."""
        results = self.results(server=server, code=code)
        self.assertEqual((results[0], *results[3:5]), (False, error, state), results)
        self.assertIn(message, results[1])


class SiteChunks(Chunks):
    """The same with the server of the class, unless another one is given."""

    def results(self, code, server=None):
        return super().results(server or self.server, code)

    def run_lua(self, code, server=None):
        return super().run_lua(server, code)

    def raises(self, code, message, server=None):
        super().raises(server, code, message)

    def fails(self, code, message, error, state=None, server=None):
        super().fails(server, code, message, error, state)
