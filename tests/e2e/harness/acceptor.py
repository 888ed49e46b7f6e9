"""Acceptor: a port whose connections are served by threads, for raw servers of tests."""
import contextlib
import itertools
import socket
import threading


class Acceptor:
    """serve(conn, number) for each connection to self.port, on a thread of its own; the end of the client ends it."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        for number in itertools.count(1):
            try:
                conn = self.listener.accept()[0]
            except OSError:  # close()
                return
            threading.Thread(target=self._run, args=(conn, number), daemon=True).start()

    def _run(self, conn, number):
        with conn, contextlib.suppress(OSError, EOFError):
            self.serve(conn, number)

    def close(self):
        with contextlib.suppress(OSError):  # Windows: it is not connected
            self.listener.shutdown(socket.SHUT_RDWR)  # else accept() goes on
        self.listener.close()
