"""The form for a new job: what it shows, and the job that it describes.

A type whose payload is declared as a Struct has a field for each of its plain members; all others are JSON text.
The job is checked by the rules of the API, so both refuse the same things with the same words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from jobqueue.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, JobWithLogs, Priority
from jobqueue.server.dashboard.render import pretty
from jobqueue.server.parts import Parts

PRESETS: dict[str, dict[str, str]] = {
    "failing": {
        "type": "payment_retry",
        "payload": '{\n  "amount": 1999,\n  "currency": "EUR"\n}',
        "max_attempts": "1",
    },
    "high": {"type": "email_send", "payload": '{\n  "to": "ann@example.com"\n}', "priority": "high"},
    "retries": {
        "type": "payment_retry",
        "payload": '{\n  "amount": 1999,\n  "currency": "EUR"\n}',
        "max_attempts": "10",
    },
}
PRESET_NAMES = {"failing": "Failing", "high": "High priority", "retries": "Retry-heavy"}
_PREFIX = "payload."


class Field(msgspec.Struct, frozen=True):
    """One member of a payload. *kind* is that of the input: text, number, checkbox or select."""

    name: str
    kind: str
    is_required: bool
    default: str
    choices: tuple[str, ...] = ()
    help: str = ""
    step: str = "any"


class Draft(msgspec.Struct, kw_only=True):
    """The form as it stands: everything that was typed, and what is wrong with it by field."""

    types: list[str]
    queues: list[str]
    type: str
    fields: list[Field] | None
    values: dict[str, str]
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    wait_seconds: int = 0
    presets: dict[str, str] = msgspec.field(default_factory=lambda: PRESET_NAMES)

    @classmethod
    def copy_of(cls, parts: Parts, job: JobWithLogs) -> Draft:
        """Return the form of a new job like *job*. Its key is left out: it belongs to the other one."""
        return _draft(
            parts,
            {
                "type": job.type,
                "payload": pretty(job.payload, limit=sys.maxsize),
                "priority": job.priority.value,
                "queue": job.queue,
                "max_attempts": str(job.max_attempts),
                "as_json": "1",
            },
        )


def blank(parts: Parts, query: Mapping[str, str]) -> Draft:
    """Return the form for a type, or a preset."""
    preset = PRESETS.get(query.get("preset", ""), {})
    return _draft(parts, {**preset, **{name: query[name] for name in ("type", "as_json") if query.get(name)}})


def filled(parts: Parts, form: Mapping[str, str], problems: Mapping[str, str], wait_seconds: int = 0) -> Draft:
    """Return the form as it was sent, with what is wrong."""
    draft = _draft(parts, form)
    shown = {
        name if name.startswith(_PREFIX) and draft.fields else name.partition(".")[0]: text
        for name, text in problems.items()
    }
    draft.problems = shown
    draft.wait_seconds = wait_seconds
    return draft


def body_of(parts: Parts, form: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return the create request that a form stands for, and what is wrong with it already, by field."""
    problems: dict[str, str] = {}
    body: dict[str, Any] = {"type": form.get("type", "")}
    fields = None if form.get("as_json") else fields_of(parts, body["type"])
    payload = b"{}"
    if fields is None:
        text = form.get("payload", "").strip() or "{}"
        try:
            json.loads(text)
            payload = text.encode()
        except json.JSONDecodeError as error:
            problems["payload"] = f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        except (RecursionError, ValueError) as error:
            problems["payload"] = f"Not JSON that can be kept: {error}"
    else:
        payload = msgspec.json.encode(_members(fields, form, problems))
    if form.get("priority"):
        body["priority"] = form["priority"]
    if form.get("queue"):
        body["queue"] = form["queue"]
    attempts = form.get("max_attempts", "").strip()
    if attempts:
        body["max_attempts"] = (
            int(attempts) if attempts.isascii() and attempts.isdigit() and len(attempts) < 10 else attempts
        )
    if form.get("idempotency_key"):
        body["idempotency_key"] = form["idempotency_key"]
    run_at = form.get("run_at", "").strip()
    if run_at:
        has_offset = run_at.endswith(("Z", "z")) or "+" in run_at or run_at.count("-") > 2
        seconds = "" if run_at.count(":") > 1 or has_offset else ":00"
        body["run_at"] = run_at if has_offset else f"{run_at}{seconds}Z"
    return msgspec.json.encode({**body, "payload": msgspec.Raw(payload)}), problems


def fields_of(parts: Parts, job_type: str) -> list[Field] | None:
    """Return the members of a type's payload; None when it has no schema of plain members."""
    entry = parts.known.types().get(job_type)
    if entry is None or entry.payload_schema is None:
        return None
    schema = msgspec.json.decode(entry.payload_schema)
    reference = schema.get("$ref", "").rpartition("/")[2]
    schema = schema.get("$defs", {}).get(reference, schema)
    properties = schema.get("properties")
    if not properties:
        return None
    fields = [_field(name, member, name in schema.get("required", ())) for name, member in properties.items()]
    return None if None in fields else [field for field in fields if field is not None]


def _field(name: str, member: Mapping[str, Any], is_required: bool) -> Field | None:
    default = member.get("default")
    text = "" if default is None else default if isinstance(default, str) else json.dumps(default)
    note = str(member.get("description", ""))
    if "enum" in member:
        return Field(name, "select", is_required, text, tuple(map(str, member["enum"])), note)
    kind = member.get("type")
    if kind == "boolean":
        return Field(name, "checkbox", is_required, text, (), note)
    if kind in {"integer", "number"}:
        return Field(name, "number", is_required, text, (), note, "1" if kind == "integer" else "any")
    return Field(name, "text", is_required, text, (), note) if kind == "string" else None


def _members(fields: list[Field], form: Mapping[str, str], problems: dict[str, str]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for field in fields:
        text = form.get(_PREFIX + field.name, "")
        if field.kind == "checkbox":
            members[field.name] = bool(text)
        elif not text and (field.default or not field.is_required):
            continue
        elif field.kind == "number":
            try:
                members[field.name] = msgspec.Raw(msgspec.json.encode(json.loads(text, parse_constant=_no_constant)))
            except ValueError:
                problems[_PREFIX + field.name] = f"{text[:40]} is not a number"
        else:
            members[field.name] = text
    return members


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _draft(parts: Parts, values: Mapping[str, str]) -> Draft:
    types = list(parts.known.types())
    job_type = values.get("type") or (types[0] if types else "")
    if job_type and job_type not in types:
        types.append(job_type)
    defaults = {
        "payload": "{}",
        "priority": Priority.MEDIUM.value,
        "queue": DEFAULT_QUEUE,
        "max_attempts": str(DEFAULT_MAX_ATTEMPTS),
        "idempotency_key": "",
        "run_at": "",
        "as_json": "",
    }
    return Draft(
        types=types,
        queues=list(parts.known.queues()),
        type=job_type,
        fields=None if values.get("as_json") else fields_of(parts, job_type),
        values={**defaults, **values},
    )
