"""Odd messages, and their results through app:proxy: test_proxy_messages.py runs them. As a program it sends them through nginx,
HAProxy and nghttpx as well, and writes proxy_messages.md, which shows all results side by side.

A request: its name, its bytes, and what the upstream server reads, or the status of the proxy. A response: its name, the method
of its request, its bytes, what the server does then (keep or close the connection, or reset it), and what the client reads."""
import concurrent.futures
import os
import re
import shutil

from harness import temporary_folder, write_text
from harness.conn import chunked
from harness.proxies import DATE, PROGRAMS, Started, Upstream, installed, request_outcome, response_outcome

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:proxy("/", "http://127.0.0.1:%d", { host = "keep" })
ls.listen { port = 0, host = "127.0.0.1", handler = app }
"""
HEADER = """# Odd messages through proxies

`tests/e2e/proxy_messages.py` wrote this page. It sends each message through `app:proxy`, with the options of that file, and through
%s, with those of `harness/proxies.py`, between a client and a server that accept valid HTTP only. A result is

- a status of the proxy, which refuses the message,
- `what the other side reads` if the proxy passes the message on,
- **invalid** if it passes on what no strict reader accepts,
- truncated: the reader sees that the response is not complete; closed: nothing is sent; waits: nothing for 3 seconds.

The tests compare the column luaserve with the program. Names of fields are as each proxy writes them."""
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "proxy_messages.md")


def post(fields, body=b"", line=b"POST / HTTP/1.1", host=b"Host: h\r\n"):
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def get(target=b"/", *fields, version=b"HTTP/1.1", method=b"GET", host=b"Host: h\r\n"):
    return post(fields, line=b" ".join((method, target, version)), host=host)


def length(value):
    return post([b"Content-Length: " + value], b"abc")


def coding(*lines):
    return post(lines, b"3\r\nabc\r\n0\r\n\r\n")


def upgrade(to):
    return get(b"/", b"Connection: Upgrade", b"Upgrade: " + to)


def chunks(body):
    return post([b"Transfer-Encoding: chunked"], body)


def alike(expected, title, make, *values):
    return [(title % value, make(value.encode()), expected) for value in values]


CL, TE = b"Content-Length: 3", b"Transfer-Encoding: chunked"
ABC, CHUNKED = "POST / body:abc", b"3\r\nabc\r\n0\r\n\r\n"
REQUESTS = [
    # Content-Length (RFC 9112 section 6.3)
    ("`Content-Length`, then `Transfer-Encoding`", coding(b"Content-Length: 13", TE), "400"),
    ("`Transfer-Encoding`, then `Content-Length`", coding(TE, CL), "400"),
    ("`Content-Length` twice, equal", post([CL, CL], b"abc"), "400"),
    ("`Content-Length` twice, different", post([CL, b"Content-Length: 0"], b"abc"), "400"),
    *alike("400", "`Content-Length: %s`", length, "3, 3", "3, 4", "+3", "-3", "0x3", "3;a", "3z", "3 3"),
    ("`Content-Length` without a value", length(b""), "400"),
    ("`Content-Length` without a value, then another", post([b"Content-Length:", CL], b"abc"), "400"),
    ("`Content-Length: 1_0`", length(b"1_0"), "400"),
    ("`Content-Length: 3` after a vertical tab", length(b"\x0b3"), "400"),
    ("`Content-Length` of 2^64 + 3", length(b"18446744073709551619"), "400"),
    ("`Content-Length: 0003`", length(b"0003"), ABC),
    ("`Content-Length: 010`, and ten bytes", post([b"Content-Length: 010"], b"0123456789"), "POST / body:0123456789"),
    ("`Content-Length: 0`, and another request", post([b"Content-Length: 0"], get(b"/2")), "POST / + GET /2"),
    ("spaces and tabs around the length", length(b" \t3\t "), ABC),
    ("`content_length: 0` beside the length", post([b"content_length: 0", CL], b"abc"), "POST / body:abc"),
    # Transfer-Encoding (section 6.1)
    ("`Transfer-Encoding: Chunked`", coding(b"Transfer-Encoding: Chunked"), ABC),
    *alike("501", "`%s`", coding, "Transfer-Encoding: xchunked", "Transfer-Encoding: identity"),
    ("`Transfer-Encoding: chunked, identity`", coding(b"Transfer-Encoding: chunked, identity"), "400"),
    ("`Transfer-Encoding: identity, chunked`", coding(b"Transfer-Encoding: identity, chunked"), "501"),
    ("`Transfer-Encoding: gzip, chunked`", coding(b"Transfer-Encoding: gzip, chunked"), "501"),
    ("`Transfer-Encoding: chunked, chunked`", coding(b"Transfer-Encoding: chunked, chunked"), "400"),
    ("`Transfer-Encoding: chunked` twice", coding(TE, TE), "400"),
    ("`Transfer-Encoding: chunked`, then `: identity`", coding(TE, b"Transfer-Encoding: identity"), "400"),
    ("`Transfer-Encoding: , chunked`", coding(b"Transfer-Encoding: , chunked"), "400"),
    ("`Transfer-Encoding: \"chunked\"`", coding(b"Transfer-Encoding: \"chunked\""), "400"),
    ("`Transfer-Encoding: chunked;q=1`", coding(b"Transfer-Encoding: chunked;q=1"), "400"),
    ("`Transfer-Encoding: chunked` after a vertical tab", coding(b"Transfer-Encoding: \x0bchunked"), "400"),
    ("`Transfer-Encoding: chunked` between bytes above 127", coding(b"Transfer-Encoding: \x85chunked\xa0"), "400"),
    ("`Transfer-Encoding` without a value", coding(b"Transfer-Encoding:"), "400"),
    ("`Transfer-Encoding` in HTTP/1.0", post([TE], CHUNKED, b"POST / HTTP/1.0"), "400"),
    ("`transfer_encoding: chunked` beside a length", post([b"transfer_encoding: chunked", CL], b"abc"), "POST / body:abc"),
    # chunks (section 7.1)
    *alike("400", "chunk size `%s`", lambda size: chunks(size + b"\r\nabc\r\n0\r\n\r\n"), "0x3", "+3", "-3", "3 ", " 3", "3_0", "3z"),
    ("no chunk size", chunks(b"\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk size `0003`, last chunk `000`", chunks(b"0003\r\nabc\r\n000\r\n\r\n"), ABC),
    ("chunk size `3` after 20 zeros", chunks(b"0" * 20 + b"3\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk size of 2^64 + 3", chunks(b"10000000000000003\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk extension `;a=b;c=\"d\"`", chunks(b"3;a=b;c=\"d\"\r\nabc\r\n0;e\r\n\r\n"), ABC),
    ("chunk extension `;a b`", chunks(b"3;a b\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk extension with a bare LF", chunks(b"3;a\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk extension with a bare CR", chunks(b"3;a\rb\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk extension with NUL", chunks(b"3;a\0\r\nabc\r\n0\r\n\r\n"), "400"),
    ("chunk extension of 100,000 bytes", chunks(b"3;" + b"a" * 100000 + b"\r\nabc\r\n0\r\n\r\n"), "400"),
    ("a bare LF after the chunk size", chunks(b"3\nabc\r\n0\r\n\r\n"), "400"),
    ("CR and another byte after the chunk size", chunks(b"3\rXabc\r\n0\r\n\r\n"), "400"),
    ("a bare LF after the chunk", chunks(b"3\r\nabc\n0\r\n\r\n"), "400"),
    ("a chunk longer than its size", chunks(b"3\r\nabcd\r\n0\r\n\r\n"), "400"),
    ("an empty line before the last chunk", chunks(b"3\r\nabc\r\n\r\n0\r\n\r\n"), "400"),
    ("a bare LF after the last chunk", chunks(b"3\r\nabc\r\n0\r\n\n"), "400"),
    ("trailers with a length, `Host` and another field", chunks(b"3\r\nabc\r\n0\r\nContent-Length: 9\r\nHost: x\r\nX: 1\r\n\r\n"),
     "POST / trailer X body:abc"),
    ("a trailer without a colon", chunks(b"3\r\nabc\r\n0\r\nX\r\n\r\n"), "400"),
    ("a folded trailer", chunks(b"3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n"), "400"),
    # fields (section 5)
    ("a space before the colon", post([b"Content-Length : 3"], b"abc"), "400"),
    ("a tab before the colon", coding(b"Transfer-Encoding\t: chunked"), "400"),
    ("a space before the first field", post([], b"abc", host=b" Content-Length: 3\r\nHost: h\r\n"), "400"),
    ("a folded `Transfer-Encoding`", coding(b"Transfer-Encoding:\r\n chunked"), "400"),
    ("a folded field", get(b"/", b"X: a\r\n\tb"), "400"),
    ("a bare LF after a field", get(b"/", b"X: a\nY: b"), "400"),
    ("a bare LF at the end of the head", b"GET / HTTP/1.1\r\nHost: h\r\n\n", "400"),
    ("bare LFs only", b"GET / HTTP/1.1\nHost: h\n\n", "400"),
    ("CR and another byte at the end of the head", b"GET / HTTP/1.1\r\nHost: h\r\n\rX", "400"),
    ("a bare CR in a value", get(b"/", b"X: a\rY: b"), "400"),
    ("two CRs after a value", coding(TE + b"\r"), "400"),
    ("a folded line before the colon", get(b"/", b"X\r\n : a"), "400"),
    ("NUL in a value", get(b"/", b"X: a\0b"), "400"),
    ("another control character in a value", get(b"/", b"X: a\x08b"), "400"),
    ("a byte above 127 in a value", get(b"/", b"X: \xe4"), "GET / X:\xe4"),
    ("NUL in a name", get(b"/", b"X\0Y: a"), "400"),
    ("a byte above 127 in a name", get(b"/", b"X\xe4: a"), "400"),
    ("a line without a colon", get(b"/", b"X"), "400"),
    ("a space in place of the colon", post([b"Content-Length 3"], b"abc"), "400"),
    ("a field without a name", get(b"/", b": a"), "400"),
    ("a value of 100,000 bytes", get(b"/", b"X: " + b"a" * 100000), "431"),
    ("1,000 fields", get(b"/", *[b"X: a"] * 1000), "431"),
    # Host and target (section 3.2)
    ("no `Host`", get(host=b""), "400"),
    ("`Host` twice, equal", get(b"/", b"Host: h"), "400"),
    ("`Host` twice, different", get(b"/", b"Host: x"), "400"),
    ("`Host` without a value", get(host=b"Host:\r\n"), "400"),
    *alike("400", "`Host: %s`", lambda host: get(host=b"Host: %s\r\n" % host), "a/b", "u@a", "a, b", "a:b"),
    ("`http://x/a` with another `Host`", get(b"http://x/a"), "GET /a Host:x"),
    ("`http://x` with another `Host`", get(b"http://x"), "GET / Host:x"),
    *alike("400", "`%s`", get, "http://u@x/a", "ftp://x/a"), *alike("400", "`GET %s`", get, "h:80", "a", "*"),
    ("`OPTIONS *`", get(b"*", method=b"OPTIONS"), "204"),
    ("`CONNECT h:80`", get(b"h:80", method=b"CONNECT"), "501"),
    *alike("400", "`%s`", get, "/a#b", "/a b"),
    ("NUL in the target", get(b"/a\0b"), "400"),
    ("a byte above 127 in the target", get(b"/\xe4"), "GET /\xe4"),
    ("a tab in the target", get(b"/a\tb"), "400"),
    *alike("400", "`%s`", get, "/../a", "/a/%2e%2e/b", "/a/..;x/b", "/%zz", "/%00"),
    ("`/a//b`", get(b"/a//b"), "GET /a//b"), ("`/a%0d%0aX:b`", get(b"/a%0d%0aX:b"), "GET /a%0d%0aX:b"),
    # the request line (section 3), versions
    ("method `get`", get(method=b"get"), "get /"),
    ("method `G(T`", get(method=b"G(T"), "400"),
    ("two spaces in the request line", b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
    ("a tab in the request line", b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
    ("a space after the version", b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "400"),
    ("no version", b"GET /\r\n\r\n", "400"),
    ("`HTTP/1.2`", get(version=b"HTTP/1.2"), "GET /"),
    ("`HTTP/1.10`", get(version=b"HTTP/1.10"), "400"),
    ("`HTTP/4294967297.1`", get(version=b"HTTP/4294967297.1"), "400"),
    ("`HTTP/2.0`", get(version=b"HTTP/2.0"), "505"),
    ("`http/1.1`", get(version=b"http/1.1"), "400"),
    ("an empty line before the request", b"\r\n" + get(), "GET /"),
    ("a target of 100,000 bytes", get(b"/" + b"a" * 100000), "414"),
    ("HTTP/1.0 without `Host`", get(version=b"HTTP/1.0", host=b""), "GET / Host:"),
    ("HTTP/1.0 with `keep-alive`", get(b"/", b"Connection: keep-alive", version=b"HTTP/1.0"), "GET /"),
    # connections, upgrades, expectations (section 9, RFC 9110 sections 7.6.1, 7.8 and 10.1.1)
    ("two requests at a time", post([CL], b"abc") + get(b"/2"), "POST / body:abc + GET /2"),
    ("NUL after a request", coding(TE) + b"\0", ABC),
    ("GET with a body", post([CL], b"abc", b"GET / HTTP/1.1"), "GET / body:abc"),
    ("GET with a body that is a request", post([b"Content-Length: 38"], get(b"/evil?0123456"), b"GET / HTTP/1.1"),
     "GET / body:GET /evil?01"),
    ("`Connection: X`", get(b"/", b"Connection: X", b"X: 1", b"Y: 2"), "GET / Y:2"),
    ("`Connection: Content-Length`", post([b"Connection: Content-Length", CL], b"abc"), ABC),
    ("`Connection: Transfer-Encoding`", coding(b"Connection: Transfer-Encoding", TE), ABC),
    ("`Connection: Host`", get(b"/", b"Connection: Host"), "GET /"),
    ("`Keep-Alive`, `TE`, `Trailer`, `Proxy-Connection`",
     get(b"/", b"Keep-Alive: 5", b"TE: trailers", b"Trailer: X", b"Proxy-Connection: close"), "GET /"),
    ("`Upgrade: h2c`", get(b"/", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"), "GET /"),
    *alike("GET /", "`Upgrade: %s`", upgrade, "a, h2c", "TLS/1.0", "HTTP/2.0"),
    ("`Upgrade: a`", upgrade(b"a"), "GET / Upgrade:a"),
    ("`Upgrade: a` with a body", post([b"Connection: Upgrade", b"Upgrade: a", CL], b"abc"), "POST / body:abc"),
    ("`Upgrade: a` without `Connection`", get(b"/", b"Upgrade: a"), "GET /"),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
    ("`Expect: 100-continue`, and the body at once", post([b"Expect: 100-continue", CL], b"abc"), "POST / Expect:100-continue body:abc"),
    ("`Expect: x`", post([b"Expect: x", CL], b"abc"), "417"),
]

H, OK = b"HTTP/1.1 200 OK\r\n" + DATE, b"HTTP/1.1 200 OK\r\n" + DATE + b"Content-Length: 2\r\n\r\nok"
FORGED = b"HTTP/1.1 200 OK\r\n" + DATE + b"Content-Length: 6\r\n\r\nforged"


def answer(fields, body=b""):
    return H + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def interim(count):
    return b"HTTP/1.1 102 Processing\r\n\r\n" * count


RESPONSES = [
    ("nothing", "GET", b"", "close", "502"), ("a reset", "GET", b"", "reset", "502"),
    ("another protocol", "GET", b"SSH-2.0-x\r\n\r\n", "close", "502"),
    ("a body without a head (HTTP/0.9)", "GET", b"hello", "close", "502"),
    ("`HTTP/2.0`", "GET", b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "close", "502"),
    ("`HTTP/1.0` with a length", "GET", b"HTTP/1.0 200 OK\r\n" + DATE + b"Content-Length: 2\r\n\r\nok", "close", "200 ok"),
    ("status `20`", "GET", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", "close", "502"),
    ("status `2000`", "GET", b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "close", "502"),
    ("status `099`", "GET", b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", "close", "502"),
    ("half a head", "GET", H + b"Content-Le", "close", "502"),
    ("both lengths", "GET", answer([b"Content-Length: 12", TE], b"2\r\nok\r\n0\r\n\r\n"), "close", "502"),
    ("two lengths, equal", "GET", answer([b"Content-Length: 2"] * 2, b"ok"), "close", "502"),
    ("two lengths, different", "GET", answer([b"Content-Length: 2", CL], b"okx"), "close", "502"),
    ("`Content-Length: 2, 2`", "GET", answer([b"Content-Length: 2, 2"], b"ok"), "close", "502"),
    ("`Content-Length: +2`", "GET", answer([b"Content-Length: +2"], b"ok"), "close", "502"),
    ("`Content-Length: 0x2`", "GET", answer([b"Content-Length: 0x2"], b"ok"), "close", "502"),
    ("`Content-Length` without a value", "GET", answer([b"Content-Length:"], b"ok"), "close", "502"),
    ("`Content-Length` of 2^64 + 2", "GET", answer([b"Content-Length: 18446744073709551618"], b"ok"), "close", "502"),
    ("`Transfer-Encoding: gzip`", "GET", answer([b"Transfer-Encoding: gzip"], b"ok"), "close", "502"),
    ("`Transfer-Encoding: chunked, identity`", "GET", answer([TE + b", identity"], b"2\r\nok\r\n0\r\n\r\n"), "close", "502"),
    ("`Transfer-Encoding: chunked` twice", "GET", answer([TE, TE], b"2\r\nok\r\n0\r\n\r\n"), "close", "502"),
    ("`Transfer-Encoding` in HTTP/1.0", "GET", b"HTTP/1.0 200 OK\r\n" + TE + b"\r\n\r\n2\r\nok\r\n0\r\n\r\n", "close", "502"),
    ("a space before the colon", "GET", answer([b"Content-Length : 2"], b"ok"), "close", "502"),
    ("a folded field", "GET", answer([b"X: a\r\n b", b"Content-Length: 2"], b"ok"), "close", "502"),
    ("bare LFs", "GET", b"HTTP/1.1 200 OK\n" + DATE[:-2] + b"\nContent-Length: 2\n\nok", "close", "502"),
    ("a bare CR in a value", "GET", answer([b"X: a\rY: b", b"Content-Length: 2"], b"ok"), "close", "502"),
    ("NUL in a value", "GET", answer([b"X: a\0b", b"Content-Length: 2"], b"ok"), "close", "502"),
    ("a line without a colon", "GET", answer([b"X", b"Content-Length: 2"], b"ok"), "close", "502"),
    ("a value of 200,000 bytes", "GET", answer([b"X: " + b"x" * 200000, b"Content-Length: 2"], b"ok"), "close", "502"),
    ("chunk size `0x2`", "GET", answer([TE], b"0x2\r\nok\r\n0\r\n\r\n"), "close", "502"),
    ("chunk size of 2^64 + 2", "GET", answer([TE], b"10000000000000002\r\nok\r\n0\r\n\r\n"), "close", "502"),
    ("a chunk longer than its size", "GET", answer([TE], b"2\r\nokk\r\n0\r\n\r\n"), "close", "502"),
    ("chunk extension with a bare LF", "GET", answer([TE], b"2;a\nok\r\n0\r\n\r\n"), "close", "502"),
    ("chunk extension `;a=b`", "GET", answer([TE], b"2;a=b\r\nok\r\n0\r\n\r\n"), "keep", "200 ok"),
    ("trailers with a length", "GET", answer([TE], b"2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n"), "keep", "200 ok"),
    ("less than the length, then the end", "GET", answer([b"Content-Length: 9"], b"hello"), "close", "truncated"),
    ("less than the length, then a reset", "GET", answer([b"Content-Length: 9"], b"hello"), "reset", "truncated"),
    ("no last chunk, then the end", "GET", answer([TE], b"5\r\nhello\r\n"), "close", "truncated"),
    ("no last chunk, then a reset", "GET", answer([TE], b"5\r\nhello\r\n"), "reset", "truncated"),
    ("more than the length", "GET", OK + FORGED, "keep", "200 ok"),
    ("more than the last chunk", "GET", answer([TE], chunked([b"ok"])) + FORGED, "keep", "200 ok"),
    ("a body without a length", "GET", answer([], b"hello"), "close", "200 hello"),
    ("a body without a length, then a reset", "GET", answer([], b"hello"), "reset", "truncated"),
    ("HEAD with a body", "HEAD", OK + FORGED, "keep", "200"),
    ("204 with a body", "GET", b"HTTP/1.1 204 N\r\n" + DATE + b"\r\n" + FORGED, "keep", "204"),
    ("204 with a length", "GET", b"HTTP/1.1 204 N\r\n" + DATE + b"Content-Length: 2\r\n\r\nok", "keep", "204"),
    ("304 with a body", "GET", b"HTTP/1.1 304 N\r\n" + DATE + b"Content-Length: 6\r\n\r\n" + FORGED, "keep", "304"),
    ("16 interim responses", "GET", interim(16) + OK, "keep", "200 ok"),
    ("1,000 interim responses", "GET", interim(1000) + OK, "keep", "502"),
    ("an interim response with a length", "GET", b"HTTP/1.1 103 E\r\nContent-Length: 2\r\n\r\n" + OK, "keep", "200 ok"),
    ("103 with `Link`", "GET", b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n" + OK, "keep", "103 200 ok"),
    ("101 that was not asked for", "GET", b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + FORGED, "keep", "502"),
    ("`Connection: X`", "GET", answer([b"Connection: X", b"X: 1", b"Y: 2", b"Content-Length: 2"], b"ok"), "keep", "200 ok Y:2"),
    ("`Connection: Content-Length`", "GET", answer([b"Connection: Content-Length", b"Content-Length: 2"], b"ok"), "keep", "200 ok"),
]


def jobs(upstream, where, wait):
    """[(name, expected, function)]: each function sends one message through the proxy there, and returns its result."""
    return ([(name, expected, lambda data=data: request_outcome(upstream, where, data, wait)) for name, data, expected in REQUESTS]
            + [(name, expected, lambda *_, of=(method, data, then): response_outcome(upstream, where, *of, wait))
               for name, method, data, then, expected in RESPONSES])


def others():
    """{name and version of each other proxy that is installed: its results}"""
    def one(name):
        upstream, folder = Upstream(), temporary_folder()
        proxy = Started(name, folder, upstream.port)
        try:
            return name + " " + proxy.version, [job() for _, _, job in jobs(upstream, proxy.where, 3)]
        finally:
            proxy.close()
            upstream.close()
            shutil.rmtree(folder)
    with concurrent.futures.ThreadPoolExecutor(len(PROGRAMS)) as pool:
        return dict(pool.map(one, installed()))


def passes(result):
    """Whether the message was passed on, and both sides read it as valid HTTP."""
    return not re.match(r"[45]\d\d\b|closed|waits|truncated", result) and "invalid" not in result and "next" not in result


def page(results):
    """The page of these results of others: {name: [result]}"""
    def cell(result):
        result = " ".join(result.split())
        if "invalid" in result or "next" in result:
            return "**%s**" % result
        return "`%s`" % result if passes(result) and not re.match(r"\d+\Z", result) else result
    out = [HEADER % ", ".join(results)]
    rows = [[name, expected] for name, *_, expected in REQUESTS + RESPONSES]
    for title, part in ("Requests", slice(0, len(REQUESTS))), ("Responses", slice(len(REQUESTS), None)):
        out += ["", "## " + title, "", "| " + " | ".join([title[:-1].lower(), "luaserve", *results]) + " |",
                "|---|---|" + "---|" * len(results)]
        out += ["| %s |" % " | ".join([name, cell(ours), *(cell(result[n + (part.start or 0)]) for result in results.values())])
                for n, (name, ours) in enumerate(rows[part])]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    write_text(PAGE, page(others()))
