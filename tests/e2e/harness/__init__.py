"""The harness of the end-to-end tests: a real server process, raw sockets, strict checks of the framing.

A test imports the names below from here:

    from harness import E2E, request

E2E        a test case that owns servers: it ends each by its pid even when a test fails; a server that dies fails the test
Server     one server process: its site, its addresses, its log, its exit status, the reports of a sanitizer
app_site   the text of a site from the routes of one app
Conn       one connection with a deadline on every wait; it reads one response at a time and rejects malformed framing

environment.py holds what the tests know about the build and the system, with the environment variables that say so.
`system` is system_posix.py or system_windows.py: what the tests ask the system that they run on.
Fixtures of one subject are modules of their own: harness.http1, harness.udp, harness.dns, harness.stress,
harness.stress_report, harness.stress_sockets, harness.screen, harness.websocket, harness.websocket_site,
harness.http2, harness.browser, harness.proxies, harness.fault, harness.program, harness.chunks, harness.acceptor.
"""
from harness.case import E2E, beside, in_parallel, table
from harness.conn import Closed, Conn, Framing, Response, TimedOut, chunked, request
from harness.environment import (ENGINE, EXIT_STATUS_LOST, HAS_UNIX_SOCKETS, LUASERVE, OTHER_SYSTEM, ROOT, SANITIZER,
                                 SLEEP, SLOW, WAIT, WINDOWS, WINE, free_port, has_ipv6, no_refusals, not_on_windows,
                                 repeats, system)
from harness.terminal import fcntl, grp, needs_terminal, pty, pwd, termios
from harness.server import (REPORT, Server, app_site, has_sqlite, lua_paths, many_files, read_bytes, read_text, run_program,
                            scratch, temporary_folder, write_bytes, write_text)

__all__ = [
    "Closed", "Conn", "E2E", "ENGINE", "EXIT_STATUS_LOST", "Framing", "HAS_UNIX_SOCKETS", "LUASERVE", "OTHER_SYSTEM", "REPORT", "ROOT",
    "Response", "SANITIZER", "SLEEP", "SLOW", "Server", "TimedOut", "WAIT", "WINDOWS", "WINE", "app_site", "beside", "chunked", "fcntl",
    "free_port", "grp", "has_ipv6", "has_sqlite", "in_parallel", "lua_paths", "many_files", "needs_terminal", "no_refusals",
    "not_on_windows", "pty", "pwd", "read_bytes", "read_text", "repeats", "request", "run_program", "scratch", "system", "table",
    "temporary_folder", "termios", "write_bytes", "write_text",
]
