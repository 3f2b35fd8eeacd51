"""``POST /api/v1/jobs``, straight on ASGI: the framework would cost as much as everything below together.

The order is: read, check, limit, write. A request that is refused before the limit does not consume from it; a
replay does. The answer is given after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import structlog
from litestar.types import HTTPScope, Receive
from prometheus_client import Counter

from jobqueue.errors import InvalidInput, KeyReused
from jobqueue.executors import validate_payload
from jobqueue.server.admission import Hold
from jobqueue.server.body import Checked, check, parse
from jobqueue.server.problems import Answer, Headers, HttpProblem, InvalidFields, problem_for
from jobqueue.server.rate_limit import client_key
from jobqueue.server.reading import Disconnected, read_body
from jobqueue.store.jobs import CreateOutcome
from jobqueue.telemetry import IDEMPOTENCY_HITS, JOBS_CREATED, RATE_LIMIT_HITS
from jobqueue.tracing import create_span

if TYPE_CHECKING:
    from jobqueue.server.parts import Parts

log = structlog.get_logger(__name__)
_levels = logging.getLogger(__name__)

PATH = "/api/v1/jobs"
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


async def answer_create(parts: Parts, scope: HTTPScope, receive: Receive, request_id: str) -> Answer:
    """Return the answer to a create request; errors are answers too.

    Raises:
        Disconnected: the client went away; nobody is left to answer.
    """
    hold = Hold(parts.admission)
    try:
        headers = dict(scope["headers"])
        _check_headers(headers)
        raw = await read_body(headers, receive, hold, parts.settings.request_max_bytes)
        body, payload = parse(raw)
        checked = check(body, payload, _header_key(headers))
        del body, payload, raw  # a job that waits to be written is held as its text alone
        await check_names(parts, checked)
        await _check_rate(parts, scope)
        with create_span(_traceparent(headers), checked.type) as trace:
            written = parts.writer.put(checked.new_job(trace))
            del checked
            outcome = await written
        return _answer(parts, outcome, request_id)
    except (Disconnected, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer and the log the reason
        return problem_for(error, instance=PATH, request_id=request_id)
    finally:
        hold.release()


def _check_headers(headers: dict[bytes, bytes]) -> None:
    """Refuse what is not plain JSON: a form or text body could be sent by any web page (failures.md L7)."""
    media_type = headers.get(b"content-type", b"")
    if media_type != b"application/json":
        name = media_type.partition(b";")[0].strip().lower()
        if name != b"application/json":
            given = media_type[:100].decode("latin-1") or "missing"
            raise HttpProblem(
                415,
                f"The Content-Type is {given}: use application/json.",
                {"accept": "application/json", "connection": "close"},
                must_drain=b"expect" not in headers,
            )
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in {b"", b"identity"}:
        given = encoding[:100].decode("latin-1")
        raise HttpProblem(
            415,
            f"The Content-Encoding is {given}: send the body as it is.",
            {"accept-encoding": "identity", "connection": "close"},
            must_drain=b"expect" not in headers,
        )


def _header_key(headers: dict[bytes, bytes]) -> str | None:
    """Return the Idempotency-Key header: a structured-field string in quotes, or the bare text."""
    value = headers.get(b"idempotency-key")
    if value is None:
        return None
    try:
        text = value.decode().strip()
    except UnicodeDecodeError:
        message = "The Idempotency-Key header is not UTF-8 text"
        raise InvalidFields([InvalidInput("idempotency_key", message)]) from None
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


async def check_names(parts: Parts, checked: Checked) -> None:
    """Check what only the catalog and the executor know.

    Raises:
        InvalidInput: the type or the queue does not exist, or the payload is not one of this type.
        Unavailable: the catalog has to be asked, and the database is away.
    """
    await parts.known.require_type(checked.type)
    await parts.known.require_queue(checked.queue)
    validate_payload(checked.type, checked.payload_value)


async def take_turn(parts: Parts, scope: HTTPScope) -> int:
    """Take one create of the client's limit. Returns 0, or the whole seconds to wait when nothing is left."""
    client = scope.get("client")
    wait_seconds = await parts.rate_limit.take(client_key(client[0] if client else None))
    if wait_seconds:
        RATE_LIMIT_HITS.inc()
    return wait_seconds


async def _check_rate(parts: Parts, scope: HTTPScope) -> None:
    wait_seconds = await take_turn(parts, scope)
    if wait_seconds:
        limit = parts.settings.rate_limit_per_minute
        raise HttpProblem(
            429,
            f"More than {limit} creates a minute from this address: try again in {wait_seconds} s.",
            {"retry-after": str(wait_seconds)},
        )


def _traceparent(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"traceparent")
    return value.decode() if value is not None and _TRACEPARENT.fullmatch(value) else None


@lru_cache(maxsize=1024)
def _created(job_type: str, priority: str) -> Counter:
    """Return the counter of one label pair; finding it anew each time costs more than counting."""
    return JOBS_CREATED.labels(job_type, priority)


def _answer(parts: Parts, outcome: CreateOutcome, request_id: str) -> Answer:
    job = outcome.job
    body = _encode(job)
    location = b"/api/v1/jobs/%b" % str(job.id).encode()
    headers: Headers = [_JSON, (b"content-length", b"%d" % len(body)), (b"location", location)]
    if not outcome.is_replay:
        _created(job.type, job.priority.value).inc()
        if _levels.isEnabledFor(logging.DEBUG):  # asked first: even a dropped line costs as much as the checks
            log.debug("job_created", job_id=str(job.id), job_type=job.type, request_id=request_id)
        return Answer(201, headers, body)
    IDEMPOTENCY_HITS.inc()
    if outcome.is_mismatch:
        if parts.settings.idempotency_strict:
            raise KeyReused(
                f"The idempotency key was used before, for job {job.id}, with another body: "
                "send the same body again, or use a new key."
            )
        headers.append((b"x-idempotency-mismatch", b"true"))
    headers.append((b"x-idempotency-replay", b"true"))
    return Answer(200, headers, body)
