"""How errors are answered: the one table from exception to status, and the body of RFC 9457.

Every error of every route goes through :func:`problem_for`. Bodies say what was wrong and what is allowed; what
went wrong inside is logged and never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar.exceptions import HTTPException

from jobqueue.batch import QueueFull
from jobqueue.errors import Conflict, InvalidInput, KeyReused, NotFound, Unavailable
from jobqueue.safejson import clean_text

log = structlog.get_logger(__name__)

Headers = list[tuple[bytes, bytes]]

MEDIA_TYPE = b"application/problem+json"
_MAX_DETAIL_CHARS = 2_000


class Answer(msgspec.Struct, frozen=True):
    """A whole response. *must_drain*: the request's body was not read to its end, and will not be."""

    status: int
    headers: Headers
    body: bytes
    must_drain: bool = False
    problem: dict[str, Any] = {}


class HttpProblem(Exception):
    """A request that HTTP itself has a status for."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, *, must_drain: bool = False
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}
        self.must_drain = must_drain


class InvalidFields(Exception):
    """Several fields have values that are not allowed."""

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


# status, code (the end of the problem's type), title
_KNOWN: dict[type[Exception], tuple[int, str, str]] = {
    InvalidInput: (422, "invalid-input", "A value is not allowed"),
    InvalidFields: (422, "invalid-input", "A value is not allowed"),
    KeyReused: (422, "idempotency-key-reused", "The idempotency key was used with another body"),
    NotFound: (404, "not-found", "There is no such job"),
    Conflict: (409, "conflict", "The job's status does not allow this"),
    Unavailable: (503, "unavailable", "Not available right now"),
    QueueFull: (503, "overloaded", "Too much work is waiting"),
}


def problem_for(error: Exception, *, instance: str, request_id: str) -> Answer:
    """Return the answer to a request that failed with *error*. *instance* is the request's path."""
    if isinstance(error, HttpProblem):
        status, code, title = error.status, *_http_name(error.status)
        detail, headers = str(error), error.headers
    elif isinstance(error, HTTPException):
        # The framework's 400 means a value it could not accept, which is 422 here (failures.md L10).
        status = 422 if error.status_code == 400 else error.status_code
        code, title = _http_name(status)
        detail, headers = _http_detail(error, instance), _allow(error)
    elif type(error) in _KNOWN:
        status, code, title = _KNOWN[type(error)]
        detail, headers = _known_detail(error), _retry_after(error)
    else:
        log.error("request_failed", path=instance, request_id=request_id, exc_info=error)
        status, code, title = 500, "internal-error", "Something went wrong inside"
        detail, headers = f"The server's log has the reason under request id {request_id}.", {}
    body = {
        "type": f"urn:jobqueue:problem:{code}",
        "title": title,
        "status": status,
        "detail": clean_text(detail, _MAX_DETAIL_CHARS),
        "instance": clean_text(instance, 200),
        "request_id": request_id,
    }
    if status == 422:
        body["errors"] = _field_errors(error)
    encoded = msgspec.json.encode(body)
    raw = [(b"content-type", MEDIA_TYPE), (b"content-length", b"%d" % len(encoded))]
    raw += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    must_drain = isinstance(error, HttpProblem) and error.must_drain
    return Answer(status, raw, encoded, must_drain=must_drain, problem=body)


def _http_name(status: int) -> tuple[str, str]:
    phrase = HTTPStatus(status).phrase
    return phrase.lower().replace(" ", "-"), phrase


def _http_detail(error: HTTPException, instance: str) -> str:
    if error.status_code == 404:
        return f"There is nothing at {instance}. The routes are listed at /docs."
    if error.status_code == 405:
        return f"This method is not allowed at {instance}. Allowed: {_allow(error).get('allow', 'none')}."
    if error.status_code >= 500:
        return "Something went wrong inside."
    return error.detail


def _allow(error: HTTPException) -> dict[str, str]:
    allowed = (error.headers or {}).get("allow")
    if allowed is None:
        return {}
    methods = {method.strip() for method in allowed.split(",")}
    return {"allow": ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))}


def _known_detail(error: Exception) -> str:
    if isinstance(error, QueueFull):
        return "Too many jobs wait to be written. This one was not accepted; try again."
    return str(error)


def _retry_after(error: Exception) -> dict[str, str]:
    if isinstance(error, Unavailable):
        return {"retry-after": str(max(1, error.retry_after_seconds))}
    return {"retry-after": "1"} if isinstance(error, QueueFull) else {}


def _field_errors(error: Exception) -> list[dict[str, Any]]:
    if isinstance(error, InvalidInput):
        problems: Sequence[InvalidInput] = [error]
    elif isinstance(error, InvalidFields):
        problems = error.problems
    elif isinstance(error, KeyReused):
        problems = [InvalidInput("idempotency_key", str(error))]
    else:
        problems = [InvalidInput("", str(error))]
    return [
        {"field": clean_text(problem.field, 200), "message": clean_text(str(problem), _MAX_DETAIL_CHARS)}
        for problem in problems
    ]
