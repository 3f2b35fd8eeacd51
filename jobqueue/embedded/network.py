"""Ports and one HTTP question, with plain sockets: importing an HTTP client takes too long for a start."""

from __future__ import annotations

import contextlib
import errno
import socket

from jobqueue.errors import SetupError


def require_free_port(host: str, port: int) -> int:
    """Return *port* if a server could listen there now (0: any free one).

    Raises:
        SetupError: one line that says what is in the way.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise SetupError(f"the host {host!r} is not known here: pass --host 127.0.0.1") from error
    try:
        with socket.socket(family, kind, protocol) as probe:
            # As the server does: connections of a predecessor that wait to be forgotten are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"port {port} is already in use: stop the other program or pass --port") from error
        raise SetupError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def next_free_port(host: str, port: int, taken: set[int]) -> int:
    """Return the first free port from *port* upwards that is not in *taken*, and add it there.

    Raises:
        SetupError: none of the next hundred is free.
    """
    for candidate in range(port, min(port + 100, 65_536)):
        if candidate not in taken:
            with contextlib.suppress(SetupError):
                taken.add(require_free_port(host, candidate))
                return candidate
    raise SetupError(f"no port is free from {port} on: set METRICS_PORT")


def reachable_host(host: str) -> str:
    """Return the address to connect to for a server that listens on *host*."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared only


def answers_health(host: str, port: int) -> bool:
    """Return whether ``GET /health`` is answered with 200."""
    try:
        with socket.create_connection((reachable_host(host), port), timeout=1.0) as connection:
            connection.settimeout(2.0)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            with connection.makefile("rb") as answer:
                # Read to its end: closing early would show up as an error in the API's log.
                return answer.read().split(b" ", 2)[1:2] == [b"200"]
    except OSError:
        return False
