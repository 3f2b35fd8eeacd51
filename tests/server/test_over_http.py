"""What only a real server can show: sizes, slow and broken bodies, connections."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from jobqueue.batch import QueueFull
from jobqueue.server import protocol
from jobqueue.server.admission import Admission, Hold
from jobqueue.server.problems import HttpProblem
from jobqueue.server.protocol import BoundedProtocol
from jobqueue.server.reading import Disconnected, read_body
from jobqueue.settings import Settings
from tests.server.conftest import served

LIMIT = 262_144


@pytest.fixture
def port(settings: Settings, registry: object) -> Iterator[int]:
    with served(settings, http=BoundedProtocol) as url:
        yield int(urlsplit(url).port or 0)


def head(rest: str) -> bytes:
    return f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{rest}\r\n\r\n".encode()


def answer(connection: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def body_of(size: int) -> bytes:
    frame = b'{"type":"email_send","payload":{"a":""}}'
    return frame[:-3] + b"x" * (size - len(frame)) + frame[-3:]


def test_the_largest_allowed_body_is_taken_and_one_byte_more_is_not(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for size, status in ((LIMIT, 201), (LIMIT + 1, 413)):
        connection.request("POST", "/api/v1/jobs", body_of(size), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        assert response.status == status, text[:300]
    assert b"262144" in text
    connection.close()


def test_a_client_that_sends_far_too_much_still_reads_the_answer(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head(f"Content-Length: {LIMIT * 20}") + b"x" * LIMIT * 20)
        assert answer(connection)[0] == 413


def test_chunks_are_counted_while_they_come(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head("Transfer-Encoding: chunked"))
        for _ in range(10):
            connection.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert answer(connection)[0] == 413


def test_a_client_that_asks_first_is_told_before_it_sends(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head(f"Content-Length: {LIMIT + 1}\r\nExpect: 100-continue"))
        assert answer(connection)[0] == 413


def test_a_body_in_small_pieces_is_put_together(port: int) -> None:
    body = b'{"type":"email_send","payload":{"a":"piecemeal"}}'
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head(f"Content-Length: {len(body)}"))
        for index in range(len(body)):
            connection.sendall(body[index : index + 1])
        status, text = answer(connection)
    assert status == 201
    assert b"piecemeal" in text


def test_a_client_that_goes_away_in_the_middle_does_no_harm(port: int) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head("Content-Length: 100") + b'{"type":')

    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()


@pytest.mark.parametrize(
    "raw",
    [
        head("Content-Length: -1"),
        head("Content-Length: 9999999999999999999999999"),
        head("Content-Length: 5\r\nTransfer-Encoding: chunked"),
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
def test_broken_http_ends_in_an_error_and_not_in_silence(port: int, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(raw)
        assert b" 4" in connection.recv(65_536)[:12]


def test_a_connection_is_used_again_after_an_error(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for body, status in ((b"{", 400), (b'{"type":"nope"}', 422), (b'{"type":"email_send"}', 201)):
        connection.request("POST", "/api/v1/jobs", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


async def test_a_body_that_never_ends_is_408() -> None:
    import asyncio

    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> object:
        try:
            return next(messages)
        except StopIteration:
            await asyncio.Event().wait()

    with pytest.raises(HttpProblem) as raised:
        await read_body({}, receive, Hold(Admission()), 1000, timeout=0.05)  # type: ignore[arg-type]
    assert raised.value.status == 408


async def test_a_client_that_is_gone_is_not_answered() -> None:
    async def receive() -> object:
        return {"type": "http.disconnect"}

    with pytest.raises(Disconnected):
        await read_body({}, receive, Hold(Admission()), 1000)  # type: ignore[arg-type]


def refused(connection: socket.socket) -> tuple[int, bool]:
    """Return the status of the answer, and whether the server closed the connection behind it."""
    status, text = answer(connection)
    assert b"urn:jobqueue:problem" in text
    return status, connection.recv(1) == b""


def test_a_head_that_trickles_in_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    for beginning in (b"", b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX: ", b"\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(beginning)
            assert refused(connection) == (408, True)


def test_a_second_head_on_a_connection_has_its_time_limit_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer(connection)[0] == 200
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x")
        assert refused(connection) == (408, True)


@pytest.mark.parametrize(
    "fields",
    [b"X: " + b"x" * 70_000, b"\r\n".join(b"X-%d: " % n + b"x" * 600 for n in range(150)), b"X: 1\r\n" * 199 + b"X: 1"],
)
def test_a_head_that_is_too_large_is_431(port: int, fields: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n")
        assert answer(connection)[0] == 431


def test_a_head_without_an_end_is_not_kept(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, suppress(OSError):
        connection.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 20_000_000)
        assert connection.recv(65_536)[9:12] == b"431"


def test_requests_sent_ahead_of_their_answers_are_all_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 900)
        received = b""
        while received.count(b'{"status":"ok"}') < 900:
            received += connection.recv(65_536)


def test_requests_without_end_sent_ahead_of_their_answers_end_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)
        received = 0
        with suppress(OSError):
            while part := connection.recv(65_536):
                received += part.count(b'{"status":"ok"}')
        assert received < 100_000


def test_one_client_too_many_is_503_and_the_others_go_on(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "limit", 2)
    with ExitStack() as clients:
        first, second, third = (
            clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(3)
        )
        assert refused(third) == (503, True)
        for connection in (first, second):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer(connection)[0] == 200


def test_an_answer_that_nobody_reads_is_not_kept_for_ever(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:

        def ask_on() -> None:
            while True:
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")

        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            ask_on()


def test_the_two_ways_to_say_where_a_body_ends_are_not_both_believed(port: int) -> None:
    smuggled = b"0\r\n\r\nGET /api/v1/metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    for fields in (
        f"Content-Length: {len(smuggled)}\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        f"Content-Length: 5\r\nContent-Length: {len(smuggled)}",
        f"Content-Length : {len(smuggled)}",
        f"Content-Length: +{len(smuggled)}",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\n chunked",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head(fields) + smuggled)
            received = b""
            with suppress(OSError):
                while part := connection.recv(65_536):
                    received += part
        assert received.startswith(b"HTTP/1.1 4"), (fields, received)
        assert received.count(b"HTTP/1.1") == 1, (fields, received)


async def test_bodies_that_are_too_many_together_are_503_and_let_go_of() -> None:
    admission = Admission(max_bytes=100)
    first = Hold(admission)
    first.add(60)
    pieces = [{"type": "http.request", "body": b"x" * 30, "more_body": True} for _ in range(2)]

    async def receive() -> object:
        return pieces.pop()

    second = Hold(admission)
    with pytest.raises(HttpProblem) as raised:
        await read_body({}, receive, second, 1000)  # type: ignore[arg-type]
    assert (raised.value.status, raised.value.headers["retry-after"], raised.value.must_drain) == (503, "1", True)
    with pytest.raises(QueueFull):
        Hold(admission).add(11)
    second.release()
    first.release()
    assert admission.held_bytes == 0
