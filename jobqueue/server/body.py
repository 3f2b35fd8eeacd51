"""What a create request says: from the body's bytes to a job that only needs to be written.

The usual body is decoded once, with the payload left as its own text. Only a body that is refused is read a
second time, leniently, to say exactly what is wrong with it (``explain``).
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, NoReturn

import msgspec

from jobqueue.errors import InvalidInput
from jobqueue.ids import new_id
from jobqueue.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, MAX_KEY_LENGTH, MAX_MAX_ATTEMPTS, NewJob, Priority
from jobqueue.safejson import MAX_DEPTH, UnsafeValue, check_value
from jobqueue.server.problems import HttpProblem, InvalidFields

_MAX_EXPONENT = 400  # a double ends at e+308 and e-324; PostgreSQL would write 1e-16000 out in full
_MAX_DIGITS = 4300  # Python reads no longer integers, so workers could not
_EMPTY = msgspec.Raw(b"{}")
_PRIORITIES: dict[Any, Priority] = {priority.value: priority for priority in Priority}


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """The body's fields as they came; :func:`check` tells whether they are allowed."""

    type: Any = None
    payload: msgspec.Raw = _EMPTY
    priority: Any = Priority.MEDIUM.value
    queue: Any = DEFAULT_QUEUE
    max_attempts: Any = DEFAULT_MAX_ATTEMPTS
    run_at: Any = None
    idempotency_key: Any = None


FIELDS = Body.__struct_fields__


class Checked(msgspec.Struct):
    """A body whose fields are allowed, apart from what only the catalog and the executor know."""

    type: str
    payload: bytes
    payload_value: dict[str, Any]
    priority: Priority
    queue: str
    max_attempts: int
    run_at: datetime | None
    idempotency_key: str | None

    def fingerprint(self) -> bytes:
        """Return 16 bytes that stand for everything but the key."""
        run_at = self.run_at and self.run_at.isoformat()
        whole = [self.type, self.payload_value, self.priority, self.queue, self.max_attempts, run_at]
        return blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=16).digest()

    def new_job(self, trace_context: str | None = None) -> NewJob:
        """Return the job to write, with a new id."""
        return NewJob(
            id=new_id(),
            type=self.type,
            payload=self.payload,
            priority=self.priority,
            queue=self.queue,
            max_attempts=self.max_attempts,
            run_at=self.run_at,
            idempotency_key=self.idempotency_key,
            request_hash=None if self.idempotency_key is None else self.fingerprint(),
            trace_context=trace_context,
        )


def parse(raw: bytes) -> tuple[Body, Any]:
    """Return the body and its decoded payload.

    Raises:
        HttpProblem: 400, it is not JSON.
        InvalidFields: it is JSON, but not an object, has unknown fields, or holds what cannot be stored.
    """
    try:
        body = _decode_body(raw)
        return body, _decode_payload(body.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        explain(raw, error)


def check(body: Body, payload: Any, header_key: str | None) -> Checked:
    """Return the checked body. *header_key* is the Idempotency-Key header.

    Raises:
        InvalidFields: with every field that is not allowed.
    """
    problems: list[InvalidInput] = []
    if not isinstance(body.type, str) or not body.type:
        message = "is missing" if body.type is None else f"is {shown(body.type)}"
        problems.append(InvalidInput("type", f"type {message}: use the name of a registered job type"))
    _check_payload(payload, problems)
    priority = _PRIORITIES.get(body.priority) if isinstance(body.priority, str) else None
    if priority is None:
        problems.append(_refused("priority", body.priority, "high, medium or low"))
    if not isinstance(body.queue, str) or not body.queue:
        problems.append(_refused("queue", body.queue, "the name of a queue"))
    if isinstance(body.max_attempts, float) and body.max_attempts.is_integer():
        body.max_attempts = int(body.max_attempts)  # JSON has one kind of number: 5.0 is 5
    # type() and not isinstance: true is an int to Python.
    if type(body.max_attempts) is not int or not 1 <= body.max_attempts <= MAX_MAX_ATTEMPTS:
        problems.append(_refused("max_attempts", body.max_attempts, f"a whole number from 1 to {MAX_MAX_ATTEMPTS}"))
    run_at = None if body.run_at is None else _check_run_at(body.run_at, problems)
    key = body.idempotency_key
    if key is not None or header_key is not None:
        key = _check_key(key, header_key, problems)
    if problems or priority is None:
        raise InvalidFields(problems)
    return Checked(body.type, bytes(body.payload), payload, priority, body.queue, body.max_attempts, run_at, key)


def explain(raw: bytes, refused: Exception) -> NoReturn:
    """Read a refused body again and raise what is wrong with it.

    Raises:
        HttpProblem: 400, it is not JSON.
        InvalidFields: it is, but cannot be accepted.
    """
    try:
        value = json.loads(raw.decode(), parse_float=_exact_float, parse_int=_exact_int)
    except UnicodeDecodeError as error:
        raise HttpProblem(400, f"The body is not JSON: byte {error.start} is not UTF-8.") from error
    except RecursionError as error:
        raise _one("", f"The body is nested too deeply: at most {MAX_DEPTH} levels are allowed") from error
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}" if raw.strip() else "it is empty"
        raise HttpProblem(400, f"The body is not JSON: {reason}.") from error
    except ValueError as error:
        raise _one("", f"The body holds a number that cannot be kept exactly: {error}") from error
    if not isinstance(value, dict):
        raise _one("", f"The body is {shown(value)}: use a JSON object with at least the field type")
    unknown = [field for field in value if field not in FIELDS]
    if unknown:
        allowed = f"The fields are {', '.join(FIELDS)}"
        raise InvalidFields(
            [InvalidInput(field[:100], f"The field {shown(field)} is not known. {allowed}") for field in unknown[:10]]
        )
    for field, part in value.items():
        try:
            check_value(part, field)
        except UnsafeValue as error:
            raise _one(field, str(error)) from error
    raise _one("", f"The body cannot be accepted: {refused}") from refused


def shown(value: Any) -> str:
    """Return a value as it may appear in a message: short, and never deep."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a very large number"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:50]}… ({len(text)} characters)"


def _exact_float(text: str) -> float:
    """Refuse numbers whose exponent is beyond any double: few bytes here, but thousands once stored."""
    exponent = text.lower().partition("e")[2]
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > _MAX_EXPONENT):
        raise ValueError(f"{text[:40]} is beyond the range of a 64-bit float")
    return float(text)


def _exact_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"{text[:20]}… has {len(text)} digits, {_MAX_DIGITS} are allowed")
    return int(text)


_decode_body = msgspec.json.Decoder(Body).decode
_decode_payload = msgspec.json.Decoder(float_hook=_exact_float).decode


def _check_payload(payload: Any, problems: list[InvalidInput]) -> None:
    if not isinstance(payload, dict):
        problems.append(_refused("payload", payload, "a JSON object"))
        return
    try:
        check_value(payload)
    except UnsafeValue as error:
        problems.append(InvalidInput("payload", str(error)))


def _check_run_at(value: Any, problems: list[InvalidInput]) -> datetime | None:
    allowed = "an RFC 3339 time with its offset, such as 2030-01-31T12:00:00Z"
    moment = None
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            moment = _convert_time(value).astimezone(UTC)
    if moment is None:
        problems.append(_refused("run_at", value, allowed))
        return None
    return moment


def _convert_time(text: str) -> datetime:
    moment: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
    return moment


def _check_key(body_key: Any, header_key: str | None, problems: list[InvalidInput]) -> str | None:
    if body_key is not None and header_key is not None and body_key != header_key:
        message = "idempotency_key and the Idempotency-Key header differ: send one of them, or the same in both"
        problems.append(InvalidInput("idempotency_key", message))
        return None
    key = header_key if body_key is None else body_key
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH:
        length = f" ({len(key)} characters)" if isinstance(key, str) and len(key) <= 60 else ""
        problems.append(_refused("idempotency_key", key, f"1 to {MAX_KEY_LENGTH} characters{length}"))
        return None
    try:
        check_value(key, "idempotency_key")
    except UnsafeValue as error:
        problems.append(InvalidInput("idempotency_key", str(error)))
    return key


def _refused(field: str, value: Any, allowed: str) -> InvalidInput:
    return InvalidInput(field, f"{field} is {shown(value)}: use {allowed}")


def _one(field: str, message: str) -> InvalidFields:
    return InvalidFields([InvalidInput(field, message)])
