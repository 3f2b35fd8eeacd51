"""The schemas of the OpenAPI document: bodies of requests and answers, and the payload of each job type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jobqueue.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    MAX_KEY_LENGTH,
    MAX_MAX_ATTEMPTS,
    LogLevel,
    Priority,
    Status,
)
from jobqueue.store.catalog import JobType

Json = dict[str, Any]

CREATE_EXAMPLES: Json = {
    "smallest": {"summary": "Only what is required", "value": {"type": "email_send"}},
    "everything": {
        "summary": "Every field",
        "value": {
            "type": "payment_retry",
            "payload": {"amount": 1999, "currency": "EUR"},
            "priority": "high",
            "queue": "default",
            "max_attempts": 3,
            "run_at": "2030-01-31T12:00:00Z",
            "idempotency_key": "order-4711",
        },
    },
}

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_UUID: Json = {"type": "string", "format": "uuid"}
_TIME: Json = {"type": "string", "format": "date-time", "examples": ["2030-01-31T12:00:00.123456Z"]}
_OBJECT: Json = {"type": "object", "additionalProperties": True}
_WITHOUT_NUL: Json = {"type": "string", "pattern": r"^[^\u0000]*$"}
_STORABLE_OBJECT: Json = {
    "type": "object",
    "propertyNames": _WITHOUT_NUL,
    "additionalProperties": {"$ref": "#/components/schemas/Json"},
}
_STORABLE: Json = {
    "description": "Any JSON value without the character NUL, which PostgreSQL cannot store.",
    "anyOf": [
        {"type": ["null", "boolean", "number"]},
        _WITHOUT_NUL,
        {"type": "array", "items": {"$ref": "#/components/schemas/Json"}},
        _STORABLE_OBJECT,
    ],
}


def build_schemas(types: Mapping[str, JobType], queues: Sequence[str]) -> tuple[Json, dict[str, str]]:
    """Return all schemas by name, and which one describes the payload of which job type."""
    payloads: dict[str, str] = {}
    schemas = _fixed_schemas()
    for name, entry in types.items():
        schema = None if entry.payload_schema is None else msgspec.json.decode(entry.payload_schema)
        if isinstance(schema, dict):
            key = _free_name(f"Payload.{name}", schemas)
            payloads[name] = key
            schemas[key] = _moved(schema, f"#/components/schemas/{key}")
    schemas["JobCreate"] = _job_create(types, queues, payloads)
    return schemas, payloads


def _job_create(types: Mapping[str, JobType], queues: Sequence[str], payloads: Mapping[str, str]) -> Json:
    schema = _object(
        {
            "type": {"type": "string", "enum": list(types), "description": "A registered job type."},
            "payload": {
                **_STORABLE_OBJECT,
                "default": {},
                "description": "Handed to the executor; at most 64 levels deep.",
            },
            "priority": {"type": "string", "enum": list(Priority), "default": Priority.MEDIUM.value},
            "queue": {"type": "string", "enum": list(queues), "default": DEFAULT_QUEUE},
            "max_attempts": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_MAX_ATTEMPTS,
                "default": DEFAULT_MAX_ATTEMPTS,
                "description": "The attempt after which a failure is final.",
            },
            "run_at": {
                **_nullable(_TIME),
                "description": "Not before this time: RFC 3339 with its offset. Null or past: at once.",
            },
            "idempotency_key": {
                **_nullable({**_WITHOUT_NUL, "minLength": 1, "maxLength": MAX_KEY_LENGTH}),
                "description": "Any number of creates with one key make one job. Null: none. "
                "May come in the header `Idempotency-Key` instead, bare or in double quotes; both must agree.",
            },
        },
        required=["type"],
        is_closed=True,
    )
    typed = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"properties": {"payload": {"$ref": f"#/components/schemas/{key}"}}},
        }
        for name, key in payloads.items()
    ]
    return {**schema, "allOf": typed} if typed else schema


def _fixed_schemas() -> Json:
    log = {"id": _UUID, "job_id": _UUID, "level": _words(LogLevel), "message": _TEXT, "created_at": _TIME}
    page = {"items": {"type": "array", "items": _ref("Job")}, "total": _COUNT, "page": _COUNT, "page_size": _COUNT}
    depths = {
        "fifo": {**_COUNT, "description": "Due jobs of queues in plain arrival order."},
        "priority": {**_COUNT, "description": "All other due jobs."},
        "retry": {**_COUNT, "description": "Waiting for the time of a retry."},
        "scheduled": {**_COUNT, "description": "First runs that are not due yet."},
    }
    figures = {
        "counts_by_status": _object({status.value: _COUNT for status in Status}),
        "avg_processing_time_seconds": {"type": ["number", "null"], "description": "Of completed jobs."},
        "queue_depths": _object(depths),
    }
    return {
        "Json": _STORABLE,
        "Job": _object(_job()),
        "JobLog": _object(log),
        "JobWithLogs": _object({**_job(), "logs": {"type": "array", "items": _ref("JobLog")}}),
        "JobPage": _object(page),
        "Figures": _object(figures),
        "Health": _object({"status": {"type": "string", "const": "ok"}}),
        "Readiness": _readiness(),
        "Problem": _problem(),
    }


def _job() -> Json:
    return {
        "id": _UUID,
        "type": _TEXT,
        "payload": _OBJECT,
        "priority": _words(Priority),
        "status": _words(Status),
        "idempotency_key": _nullable(_TEXT),
        "attempts": {**_COUNT, "description": "Starts so far."},
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": MAX_MAX_ATTEMPTS},
        "next_retry_at": {**_nullable(_TIME), "description": "While a retry is waiting."},
        "created_at": _TIME,
        "started_at": {**_nullable(_TIME), "description": "Start of the latest attempt."},
        "completed_at": {**_nullable(_TIME), "description": "End of a completed, failed or cancelled job."},
        "error": {**_nullable(_TEXT), "description": "The last failure; null once completed."},
        "result": {"description": "What the executor returned: any JSON value."},
        "queue": _TEXT,
        "next_run_at": {**_TIME, "description": "Not run before this time."},
    }


def _readiness() -> Json:
    return _object(
        {
            "status": {"type": "string", "enum": ["ready", "not ready"]},
            "database": {"type": "string", "enum": ["ok", "read-only", "unavailable"]},
            "reason": _TEXT,
            "database_version": _TEXT,
            "schema": _TEXT,
            "schema_revision": _nullable(_TEXT),
            "schema_needed": _TEXT,
            "redis": {"type": "string", "enum": ["ok", "away"]},
        },
        required=["status", "database", "redis"],
    )


def _problem() -> Json:
    error = _object({"field": _TEXT, "message": _TEXT})
    return _object(
        {
            "type": {"type": "string", "format": "uri", "description": "urn:jobqueue:problem: and a fixed word."},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": {**_TEXT, "description": "What was wrong, and what is allowed."},
            "instance": {**_TEXT, "description": "Path of the request."},
            "request_id": _TEXT,
            "errors": {"type": "array", "items": error, "description": "Only with 422: each field."},
        },
        required=["type", "title", "status", "detail", "instance", "request_id"],
    )


def _object(properties: Json, required: Sequence[str] | None = None, *, is_closed: bool = False) -> Json:
    schema: Json = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
    }
    return {**schema, "additionalProperties": False} if is_closed else schema


def _nullable(schema: Json) -> Json:
    return {**schema, "type": [schema["type"], "null"]}


def _words(words: type[Status | Priority | LogLevel]) -> Json:
    return {"type": "string", "enum": [word.value for word in words]}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _free_name(wanted: str, taken: Mapping[str, Any]) -> str:
    """Return a name that OpenAPI allows for a component and that is not taken."""
    name = base = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
    number = 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _moved(schema: Any, root: str) -> Any:
    """Return a schema that stood alone with its references pointing to its place in the document."""
    if isinstance(schema, list):
        return [_moved(part, root) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: root + part[1:] if key == "$ref" and isinstance(part, str) and part.startswith("#") else _moved(part, root)
        for key, part in schema.items()
    }
