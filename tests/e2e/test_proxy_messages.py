"""app:proxy between a strict client and a strict server: no odd message reaches the other side in a form that it reads otherwise.
proxy_messages.py has the messages, and compares the results with those of other proxies."""
# sanitizers: asan; one message after the other
# long; thousands of messages, one after the other
# wine: none; bytes for the parsers; test_proxy uses the sockets there
import re
import unittest

import proxy_messages
from harness import E2E, SANITIZER, WINDOWS, chunked, read_text, repeats, table
from harness.proxies import (DATE, END, PROGRAMS, Request, Upstream, installed, request_outcome, response_outcome,
                             strictly)


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
            self.assertIn(job(), {expected, "502"} if expected == "truncated" else {expected})  # nothing that looks complete
        table(self, [(name, case) for name, *case in proxy_messages.jobs(self.upstream, self.server.at(), None)], check, workers=1)

    @staticmethod
    def with_a_byte(message):
        """The message with each of some bytes at each place."""
        return (message[:at] + bytes([byte]) + message[at:] for at in range(0, len(message), 1 if repeats(10) == 10 else 5)
                for byte in b"\0\t\n\x0b\r ,:;x\x85")

    def test_a_byte_anywhere_in_a_request(self):
        """The server reads of the proxy what a strict reader reads of the client."""
        evil = b"GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
        fields = b"POST /a HTTP/1.1\r\nHost: h\r\nX: y\r\n"
        for message in (fields + b"Content-Length: %d\r\n\r\n" % len(evil) + evil,
                        fields + b"Transfer-Encoding: chunked\r\n\r\n" + chunked([evil[:9], evil[9:]])):
            for data in self.with_a_byte(message):
                result = request_outcome(self.upstream, self.server.at(), data)
                read, strict = [one for one in self.upstream.seen if one != "GET /next"], strictly(data + END)
                both = min(len(read), len(strict))
                self.assertEqual(read[:both], strict[:both], data)
                self.assertFalse(any(re.search("invalid|/evil", one) for one in read[both:]), (data, read))
                self.assertNotRegex(result, "invalid|next|waits", data)

    def test_a_byte_anywhere_in_a_response(self):
        """The client reads of the proxy what a strict reader reads of the server, or that there is no whole response."""
        evil = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        fields = b"HTTP/1.1 200 OK\r\n" + DATE
        for message in (fields + b"Content-Length: %d\r\n\r\n" % len(evil) + evil,
                        fields + b"Transfer-Encoding: chunked\r\n\r\n" + chunked([evil[:9], evil[9:]])):
            for data in self.with_a_byte(message):
                result = response_outcome(self.upstream, self.server.at(), "GET", data, "close")
                strict = strictly(data, Request.response)
                bodies = [strict[0].body] if strict else [evil, data.partition(b"\r\n\r\n")[2]]  # valid after all, or to the end
                self.assertIn(result, ["502", "truncated", *("200 " + body.decode("latin-1")[:12] for body in bodies)], data)

    def test_the_page(self):
        def columns(lines):
            return [line.rstrip(" |").split(" | ")[:2] for line in lines if line.startswith("| ")]
        self.assertEqual(columns(read_text(proxy_messages.PAGE).splitlines()), columns(proxy_messages.page({}).splitlines()))

    @unittest.skipIf(WINDOWS or SANITIZER, "of another system: one build is enough")
    @unittest.skipUnless(len(installed()) == len(PROGRAMS), "not installed: " + ", ".join(set(PROGRAMS) - set(installed())))
    def test_no_message_passes_here_alone(self):
        names = [row[0] for row in proxy_messages.REQUESTS + proxy_messages.RESPONSES]
        ours = [row[-1] for row in proxy_messages.REQUESTS + proxy_messages.RESPONSES]
        results = zip(*proxy_messages.others().values())
        self.assertEqual([name for name, own, other in zip(names, ours, results)
                          if proxy_messages.passes(own) and not any(map(proxy_messages.passes, other))], [])
