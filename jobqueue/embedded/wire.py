"""Just enough of PostgreSQL's protocol (version 3) to ask a server of ours one question over its socket.

A driver would do it too, but importing one takes longer than the server takes to start. Trust
authentication only: the socket's private folder is the protection.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import BinaryIO

USER = "postgres"
PROTOCOL = 3 << 16


class WireError(Exception):
    """The server refused; *sqlstate* says why (57P03: it is still starting)."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def query(socket_path: Path, dbname: str, sql: str, timeout_seconds: float = 30.0) -> list[str]:
    """Run *sql* in a connection of its own and return the first column of its rows (NULL: empty text).

    Raises:
        OSError: nobody listens, or no answer within *timeout_seconds*.
        WireError: the server answered with an error.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(str(socket_path))
        start = b"".join(part.encode() + b"\0" for part in ("user", USER, "database", dbname)) + b"\0"
        connection.sendall(struct.pack("!II", len(start) + 8, PROTOCOL) + start)
        with connection.makefile("rb") as stream:
            _read_until_ready(stream)
            text = sql.encode() + b"\0"
            connection.sendall(b"Q" + struct.pack("!I", len(text) + 4) + text)
            values = _read_until_ready(stream)
            connection.sendall(b"X\0\0\0\4")
    return values


def _read_until_ready(stream: BinaryIO) -> list[str]:
    values: list[str] = []
    failure: WireError | None = None
    while True:
        head = stream.read(5)
        if len(head) < 5:
            raise failure or ConnectionResetError("the server closed the connection")
        kind, length = struct.unpack("!cI", head)
        body = stream.read(length - 4)
        if kind == b"D":
            (size,) = struct.unpack("!i", body[2:6])
            values.append("" if size < 0 else body[6 : 6 + size].decode())
        elif kind == b"E":
            failure = _error(body)
        elif kind == b"Z":
            if failure is not None:
                raise failure
            return values


def _error(body: bytes) -> WireError:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return WireError(fields.get(b"C", ""), fields.get(b"M", "the server refused"))
