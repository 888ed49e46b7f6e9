"""Starts nginx and HAProxy with a configuration of a page, in front of the site that the page has above it.

A page shows what matters: a `server` or `location` of nginx without the `http` around it, a `frontend` and `backend` of HAProxy
without `defaults`. What is left out is added here, and certificates that a page names are replaced by one made for the test.
"""
import os
import re
import shutil
import socket
import subprocess
import time

from harness import WAIT, read_text, tls, write_text

TEMPORARY = "".join("%s_temp_path %s; " % (what, what) for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


def certificate(folder):
    """The paths of a self-signed certificate, of its key, and of a file that holds both."""
    paths = [os.path.join(folder, name) for name in ("proxy.pem", "proxy.key", "both.pem")]
    if not os.path.exists(paths[2]):
        tls.certificate(folder, "proxy")
        write_text(paths[2], "".join(map(read_text, paths[:2])))
    return paths


def nginx(text, folder):
    """-> (command, [(port, whether it speaks TLS)])"""
    if re.search(r"\bssl_certificate", text):
        cert, key, _ = certificate(folder)
        text = re.sub(r"(\bssl_certificate)\s+[^;]+;", r"\1 %s;" % cert, text)
        text = re.sub(r"(\bssl_certificate_key)\s+[^;]+;", r"\1 %s;" % key, text)
    if not re.search(r"(?m)^\s*http\s*\{", text):
        if not re.search(r"(?m)^\s*server\s*\{", text):
            raise AssertionError("the block has no server { }")
        text = "http {\n%s}\n" % text
    text = re.sub(r"(?m)^(\s*http\s*\{)", r"\1 access_log off; %s" % TEMPORARY, text, count=1)
    if not re.search(r"(?m)^\s*events\s*\{", text):
        text = "events { }\n" + text
    path = os.path.join(folder, "nginx.conf")
    write_text(path, text)
    listens = re.findall(r"(?m)^\s*listen\s+(?:[^\s;]*:)?(\d+)([^;]*);", text)
    return (["nginx", "-p", folder, "-c", path, "-e", "stderr", "-g", "daemon off; master_process off; pid %s/nginx.pid;" % folder],
            [(int(port), "ssl" in more) for port, more in listens])


def haproxy(text, folder):
    """-> (command, [(port, whether it speaks TLS)])"""
    if re.search(r"\bcrt\s", text):
        text = re.sub(r"(\bcrt)\s+\S+", r"\1 " + certificate(folder)[2], text)
    if not re.search(r"(?m)^defaults\b", text):
        text = "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n" + text
    path = os.path.join(folder, "haproxy.cfg")
    write_text(path, text)
    binds = re.findall(r"(?m)^\s*bind\s+\S*:(\d+)(.*)$", text)
    return ["haproxy", "-db", "-f", path], [(int(port), "ssl" in more) for port, more in binds]


def start(kind, text, folder):
    """Start the program, one process, and ask at each of its ports. -> the process"""
    command, ports = {"nginx": nginx, "haproxy": haproxy}[kind](text, folder)
    if not ports:
        raise AssertionError("the block listens on no port")
    program = shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        raise AssertionError("%s is not installed; scripts/setup --test installs it" % kind)
    output = os.path.join(folder, kind + ".out")
    with open(output, "w") as out:
        process = subprocess.Popen([program, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder)

    def fail(message):
        if process.poll() is None:
            process.kill()
        process.wait()
        raise AssertionError("%s: %s\n%s" % (kind, message, read_text(output)))

    for port, tls in ports:
        deadline = time.monotonic() + WAIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), WAIT).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None:
                    fail("it ended with status %d" % process.returncode)
                if time.monotonic() > deadline:
                    fail("it does not listen on port %d" % port)
                time.sleep(0.01)
        done = subprocess.run(["curl", "-s", "-k", "-o", os.devnull, "-w", "%{http_code}", "--max-time", str(WAIT),
                               "http%s://127.0.0.1:%d/" % ("s" if tls else "", port)], capture_output=True, text=True, check=False)
        if not "200" <= done.stdout < "500":
            fail("the answer on port %d has the status %s" % (port, done.stdout))
    return process
