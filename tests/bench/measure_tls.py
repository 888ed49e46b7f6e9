"""The measurements of handshakes and of idle TLS connections. The others of TLS and of files are those of HTTP, with
another URL (measure.cpu_per_request).

Both servers have the same P-256 certificate, and check_same_answers found the same version and cipher at both."""
from measure import cpu_while, idle_connections, request_hello, wrk
from measure_sockets import WARM_UP_SECONDS

CLIENTS = 64
# Our client needs a few milliseconds and 100 KiB for each connection.
IDLE_MAX = 2000


def handshakes(server, open_load, seconds, kind):
    """CPU per connection with one request; its handshake is "full" or "resumed"."""
    with open_load("tls_load", server.port, CLIENTS, kind) as load:
        load.run(WARM_UP_SECONDS)
        return cpu_while(server, lambda: load.run(seconds))


def idle(server, load_cpu, count):
    return idle_connections(server, lambda: wrk(server.url(), CLIENTS, 1, load_cpu), request_hello, min(count, IDLE_MAX))
