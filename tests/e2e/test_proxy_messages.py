"""app:proxy between a strict client and a strict server: no odd message reaches the other side in a form that it reads otherwise.
proxy_messages.py has the messages, and compares the results with those of other proxies."""
import unittest

import proxy_messages
from harness import E2E, SANITIZER, WINDOWS, main, table
from harness.proxies import PROGRAMS, Upstream, installed


class Messages(E2E):
    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream()
        cls.addClassCleanup(cls.upstream.close)
        cls.SITE = proxy_messages.SITE % cls.upstream.port
        super().setUpClass()

    def test_each_message(self):
        def check(case):
            expected, job = case
            self.assertIn(job(), {expected, "502"} if expected == "cut" else {expected})  # nothing that looks complete
        jobs = proxy_messages.jobs(self.upstream, self.server.at(), None)
        table(self, [(name, case) for name, *case in jobs], check, workers=1)

    def test_the_page(self):
        def columns(lines):
            return [line.rstrip(" |").split(" | ")[:2] for line in lines if line.startswith("| ")]
        with open(proxy_messages.PAGE, encoding="utf-8") as file:
            self.assertEqual(columns(file.read().splitlines()), columns(proxy_messages.page({}).splitlines()))

    @unittest.skipIf(WINDOWS or SANITIZER, "the results of other programs are those of any build")
    @unittest.skipUnless(len(installed()) == len(PROGRAMS), "not installed: " + ", ".join(set(PROGRAMS) - set(installed())))
    def test_no_message_passes_here_alone(self):
        names = [row[0] for row in proxy_messages.REQUESTS + proxy_messages.RESPONSES]
        ours = [row[-1] for row in proxy_messages.REQUESTS + proxy_messages.RESPONSES]
        results = zip(*proxy_messages.others().values())
        self.assertEqual([name for name, own, other in zip(names, ours, results)
                          if proxy_messages.passes(own) and not any(map(proxy_messages.passes, other))], [])


if __name__ == "__main__":
    main()
