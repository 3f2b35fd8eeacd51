"""Exit 0 when this container's process answers 200, else 1 with the reason: ``healthcheck.py api|worker``.

Run every few seconds beside the process it watches, so it imports nothing but sockets (about 20 ms of CPU).
The ports are the same two variables that the process itself reads.
"""

import os
import socket
import sys

CHECKS = {"api": ("API_PORT", "8000", "/health"), "worker": ("METRICS_PORT", "8001", "/metrics")}


def answers(port: int, path: str) -> str:
    """Return the status line of a GET on this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return answer.readline(200).decode("latin-1").strip()


def main(role: str) -> int:
    """Check one role. Returns the exit code."""
    variable, default, path = CHECKS[role]
    port = int(os.environ.get(variable) or default)  # noqa: TID251 - runs alone, without the package
    try:
        status = answers(port, path)
    except OSError as error:
        status = str(error)
    if status.split()[1:2] == ["200"]:
        return 0
    sys.stdout.write(f"{role}: GET {path} on port {port}: {status or 'no answer'}\n")
    return 1


if __name__ == "__main__":
    if sys.argv[1:] not in (["api"], ["worker"]):
        sys.exit("usage: healthcheck.py api|worker")
    sys.exit(main(sys.argv[1]))
