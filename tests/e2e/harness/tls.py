"""Certificates made with the openssl command, and TLS clients."""
import contextlib
import hashlib
import os
import socket
import ssl
import struct
import subprocess
import unittest

from harness.environment import ROOT, WAIT, WINDOWS, WINE


def openssl(*args, folder):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=WAIT)


def certificate(folder, name, names=("localhost",), ca=None, password=None, days=2, extra=()):
    """Makes NAME.pem and NAME.key in the folder, signed by the certificate `ca` or by itself. `names`: DNS names, or
    with their kind, such as IP:127.0.0.1."""
    key = ["-nodes"] if password is None else ["-passout", "pass:" + password]
    sign = ["-CA", ca + ".pem", "-CAkey", ca + ".key"] if ca else []
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *key, "-days", str(days), *sign,
            "-subj", "/CN=" + name, "-addext",
            "subjectAltName=" + ",".join(n if ":" in n else "DNS:" + n for n in names), *extra,
            "-keyout", name + ".key", "-out", name + ".pem", folder=folder)


@contextlib.contextmanager
def system_trust(path):
    """The system trusts the certificate of a PEM file -> the environment for a server of this system. Windows keeps a
    certificate of the account's store ROOT in the registry: properties, each with its number, 1 and its size in front; 32
    is the certificate itself."""
    if not WINDOWS:
        yield {"SSL_CERT_FILE": path}
        return
    if not WINE:
        raise unittest.SkipTest("would change what this account trusts")
    with open(path, encoding="ascii") as text:
        der = ssl.PEM_cert_to_DER_cert(text.read())
    key = "HKCU\\Software\\Microsoft\\SystemCertificates\\Root\\Certificates\\" + hashlib.sha1(der).hexdigest().upper()
    blob = struct.pack("<III", 32, 1, len(der)) + der

    def reg(*args):
        subprocess.run([os.path.join(ROOT, "third_party", "windows", "wine"), "reg", *args, "/f"], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT)

    reg("add", key, "/v", "Blob", "/t", "REG_BINARY", "/d", blob.hex())
    try:
        yield {}
    finally:
        reg("delete", key)


def fingerprint(der):
    """SHA-256 in the form of the log: hexadecimal digits with colons."""
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[i:i + 2] for i in range(0, len(digest), 2))


def context(ca=None, cert=None, alpn=None, version=None):
    """A client's context; without `ca` it accepts any certificate. `cert`: the path of NAME without .pem and .key."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    else:
        made.load_verify_locations(ca)
    if cert:
        made.load_cert_chain(cert + ".pem", cert + ".key")
    if alpn:
        made.set_alpn_protocols(alpn)
    if version:
        made.minimum_version = made.maximum_version = version
    return made


@contextlib.contextmanager
def client(port, made=None, name="localhost", first=b""):
    """A TLS connection; `first` is sent in front of the handshake."""
    with socket.create_connection(("127.0.0.1", port), WAIT) as plain:
        plain.sendall(first)
        with (made or context()).wrap_socket(plain, server_hostname=name, suppress_ragged_eofs=False) as conn:
            yield conn


def read_all(conn):
    """Everything up to the end; fails unless the end is a close_notify."""
    data = b""
    while True:
        part = conn.recv(65536)
        if not part:
            return data
        data += part


def get(port, target="/", made=None, name="localhost", first=b""):
    """The body of a response to GET."""
    with client(port, made, name, first) as conn:
        conn.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target.encode())
        head, _, body = read_all(conn).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise AssertionError(head)
        return body.decode()
