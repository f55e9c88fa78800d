"""In the memory that chart and unit give it, console and API live through what strangers ask."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2

from support.cgroup import memory_group
from support.web_site import NO_TLS

LIMIT_BYTES = 512 * 2**20
"""Of `helm/amqsidecar/values.yaml` and `deploy/systemd/amqsidecar.service`."""

PATHS = ("/api/v1/messages?limit=500", "/api/v1/messages.csv", "/messages", "/api/v1/overview")


def test_the_process_lives_in_512_mib_under_attack(tmp_path: Path) -> None:
    with memory_group(LIMIT_BYTES) as group, ExitStack() as stack:
        child = subprocess.Popen(
            [sys.executable, "-m", "soak.attacked", str(tmp_path)],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": "."},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        group.add(child.pid)
        assert child.stdin is not None
        assert child.stdout is not None
        stack.enter_context(child)
        address, token = child.stdout.readline().split()
        host, port = address.rsplit(":", 1)
        viewer = {"Authorization": f"Bearer {token}"}

        for number in range(20):  # who asks much and never reads
            client = stack.enter_context(closing(socket.socket()))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            path = PATHS[number % len(PATHS)]
            client.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode() * 5)

        def ask(number: int) -> int:
            with httpx2.Client(base_url=f"http://{address}", timeout=120, verify=NO_TLS) as client:
                try:
                    if number % 3:
                        return client.get(PATHS[number % len(PATHS)], headers=viewer).status_code
                    form = {"Content-Type": "application/json"}
                    body = b"x" * (8 * 2**20)
                    path = "/api/v1/operations"
                    return client.post(path, content=body, headers=viewer | form).status_code
                except httpx2.HTTPError:
                    return 0  # It was cut for somebody else, or before all of the body was sent.

        with ThreadPoolExecutor(12) as pool:
            statuses = set(pool.map(ask, range(60)))
        assert statuses <= {0, 200, 403, 503}
        assert 200 in statuses
        assert child.poll() is None
        assert httpx2.get(f"http://{address}/healthz", verify=NO_TLS).status_code == 200
        print(f"peak {group.peak_bytes() / 2**20:.0f} MiB")
