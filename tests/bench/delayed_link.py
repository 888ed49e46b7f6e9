"""A link with a round trip time, where the kernel has no netem: a TUN device whose peer, 10.9.0.2, is this machine. As root:

    unshare -n sh -c 'python3 tests/bench/delayed_link.py 0.025 & sleep 1; luaserve site.lua & sleep 1
                      curl -k -T file https://10.9.0.2:8443/up'

for a site that listens on 10.9.0.1. Each packet waits for the delay, which the first argument has in seconds, and goes back
with its addresses exchanged, so that both ends are this machine, with all that TCP does on such a link."""
import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, TUN_WITHOUT_HEADER, BATCH = 0x400454CA, 0x1001, 64


def main(delay):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"far", TUN_WITHOUT_HEADER))
    for command in ("link set lo up", "addr add 10.9.0.1/24 dev far", "link set far mtu 9000 txqueuelen 20000 up"):
        subprocess.run(["ip", *command.split()], check=True)
    queue = collections.deque()
    while True:
        while queue and queue[0][0] <= time.monotonic():
            os.write(tun, queue.popleft()[1])
        wait = max(queue[0][0] - time.monotonic(), 0) if queue else None
        if not select.select([tun], [], [], wait)[0]:
            continue
        due = time.monotonic() + delay
        try:
            for _ in range(BATCH):
                packet = os.read(tun, 65536)
                if packet[0] >> 4 == 4:
                    queue.append((due, packet[:12] + packet[16:20] + packet[12:16] + packet[20:]))
        except BlockingIOError:
            pass


if __name__ == "__main__":
    main(float(sys.argv[1]))
