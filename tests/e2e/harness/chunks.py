"""Sites whose POST /run runs the text of a chunk, and answers whether it succeeded and its results, as a JSON list."""
import json

from harness.case import E2E


class Chunks(E2E):
    def results(self, server, code):
        with server.connect() as conn:
            response = conn.ask("POST", "/run", body=code.encode())
        self.assertEqual(response.status, 200, response.text)
        return json.loads(response.text)

    def run_lua(self, server, code):
        results = self.results(server, code)
        self.assertTrue(results[0], results)
        return results[1:]
