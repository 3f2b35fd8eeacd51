"""The OpenAPI 3.1 document: every route with its parameters, answers and headers.

Written by hand beside the code that does the checking (``body``, ``query``, ``problems``); the tests compare it
with the routes that exist and with the answers they give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobqueue import __version__
from jobqueue.job import Priority, Status
from jobqueue.server import schemas
from jobqueue.server.query import DEFAULT_PAGE_SIZE, MAX_PAGE, MAX_PAGE_SIZE
from jobqueue.settings import Settings
from jobqueue.store.catalog import JobType

Json = dict[str, Any]


def build_document(settings: Settings, types: Mapping[str, JobType], queues: Sequence[str]) -> Json:
    """Return the document for the job types and queues of this moment."""
    components, payloads = schemas.build_schemas(types, queues)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jobqueue",
            "version": __version__,
            "summary": "Create, watch and cancel jobs.",
            "description": "A job is accepted once it is committed, and runs at least once.\n\n"
            "Errors are `application/problem+json` (RFC 9457). Times are RFC 3339 in UTC, ending in `Z`. "
            "Every response carries `X-Request-ID`; a request may bring its own.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": "jobs"}, {"name": "figures"}, {"name": "operation"}],
        "paths": {
            "/api/v1/jobs": {"post": _create(settings, types, payloads), "get": _list(types)},
            "/api/v1/jobs/{job_id}": {"get": _get_one()},
            "/api/v1/jobs/{job_id}/cancel": {"post": _cancel()},
            "/api/v1/metrics": {"get": _figures()},
            "/health": {"get": _health()},
            "/health/ready": {"get": _ready()},
            "/metrics": {"get": _prometheus()},
        },
        "components": {"schemas": components, "responses": _problems(settings), "headers": _HEADERS},
    }


def _create(settings: Settings, types: Mapping[str, JobType], payloads: Mapping[str, str]) -> Json:
    replay = {
        "X-Idempotency-Replay": _header("X-Idempotency-Replay"),
        "X-Idempotency-Mismatch": _header("X-Idempotency-Mismatch"),
        "Location": _header("Location"),
    }
    return {
        "operationId": "createJob",
        "tags": ["jobs"],
        "summary": "Create a job",
        "description": _create_text(settings, types, payloads),
        "parameters": [
            {
                "name": "traceparent",
                "in": "header",
                "description": "W3C trace context; the job's execution is linked to it. Ignored when malformed.",
                "schema": {"type": "string"},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref("JobCreate"), "examples": schemas.CREATE_EXAMPLES}},
        },
        "responses": {
            "201": {**_json("Created and committed.", "Job", {"Location": _header("Location")}), "links": _LINKS},
            "200": {
                **_json("This idempotency key was used before: the job that has it.", "Job", replay),
                "links": _LINKS,
            },
            **_refused(400, 408, 413, 415, 422, 429, 500, 503),
        },
    }


_LINKS: Json = {
    name: {
        "operationId": operation,
        "parameters": {"job_id": "$response.body#/id"},
        "description": f"{text} the job.",
    }
    for name, operation, text in (("get", "getJob", "Read"), ("cancel", "cancelJob", "Cancel"))
}


def _create_text(settings: Settings, types: Mapping[str, JobType], payloads: Mapping[str, str]) -> str:
    rows = []
    for name, entry in types.items():
        limit = settings.job_max_execution_seconds
        seconds = limit if entry.max_execution_seconds is None else entry.max_execution_seconds
        payload = f"`{payloads[name]}`" if name in payloads else "any object"
        rows.append(f"| `{name.replace('|', chr(92) + '|')}` | {payload} | {seconds:g} s |")
    return (
        "Limited to "
        f"{settings.rate_limit_per_minute} a minute per client address; a replay counts, a refused body does not. "
        f"The body may have {settings.request_max_bytes} bytes. Keys are compared byte by byte and live as long as "
        "their job.\n\n| type | payload | time limit |\n|---|---|---|\n" + "\n".join(rows)
    )


def _list(types: Mapping[str, JobType]) -> Json:
    words = {"status": list(Status), "priority": list(Priority)}
    filters = [_query(name, f"Only jobs of this {name}.", {"type": "string", "enum": words[name]}) for name in words]
    a_type = {"type": "string", "enum": list(types)}
    filters.insert(
        1, _query("type", "Only jobs of this type. One that is gone is known as long as a job has it.", a_type)
    )
    page = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 1}
    page_size = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": DEFAULT_PAGE_SIZE}
    return {
        "operationId": "listJobs",
        "tags": ["jobs"],
        "summary": "List jobs, newest first",
        "description": "A page past the end is empty. A parameter that is unknown, empty or given twice is refused.",
        "parameters": [
            *filters,
            _query("page", "Counted from 1.", page),
            _query("page_size", "Jobs per page.", page_size),
        ],
        "responses": {"200": _json("One page.", "JobPage"), **_refused(422, 500, 503)},
    }


def _get_one() -> Json:
    return {
        "operationId": "getJob",
        "tags": ["jobs"],
        "summary": "Get a job with its log",
        "parameters": [_JOB_ID],
        "responses": {"200": _json("The job.", "JobWithLogs"), **_refused(404, 422, 500, 503)},
    }


def _cancel() -> Json:
    return {
        "operationId": "cancelJob",
        "tags": ["jobs"],
        "summary": "Cancel a job",
        "description": "A job that runs is told to stop within a second; whatever it still returns is dropped. "
        "A job that is cancelled already is returned as it is. A body is ignored.",
        "parameters": [_JOB_ID],
        "responses": {"200": _json("The cancelled job.", "Job"), **_refused(404, 409, 422, 500, 503)},
    }


def _figures() -> Json:
    return {
        "operationId": "getFigures",
        "tags": ["figures"],
        "summary": "Jobs by status, mean processing time, queue depths",
        "responses": {"200": _json("The figures.", "Figures"), **_refused(500, 503)},
    }


def _health() -> Json:
    return {
        "operationId": "getHealth",
        "tags": ["operation"],
        "summary": "This process lives",
        "responses": {"200": _json("Always.", "Health"), **_refused(500)},
    }


def _ready() -> Json:
    return {
        "operationId": "getReadiness",
        "tags": ["operation"],
        "summary": "The database can be reached and written, and its schema is current",
        "responses": {"200": _json("Ready.", "Readiness"), "503": _json("Not ready.", "Readiness"), **_refused(500)},
    }


def _prometheus() -> Json:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "getMetrics",
        "tags": ["operation"],
        "summary": "Metrics of this API process for Prometheus",
        "responses": {
            "200": {"description": "Prometheus text.", "headers": _COMMON, "content": content},
            **_refused(500),
        },
    }


_JOB_ID = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "description": "The job's UUID, 8-4-4-4-12 hexadecimal digits.",
    "schema": {"type": "string", "format": "uuid"},
}

_HEADERS: Json = {
    "X-Request-ID": {
        "description": "Names this request in the server's log: the one that was sent, else a new one.",
        "schema": {"type": "string"},
    },
    "Location": {"description": "Path of the job.", "schema": {"type": "string", "format": "uri-reference"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
    "X-Idempotency-Replay": {
        "description": "Present when the key was used before.",
        "schema": {"type": "string", "const": "true"},
    },
    "X-Idempotency-Mismatch": {
        "description": "Present when the body differs from the first one.",
        "schema": {"type": "string", "const": "true"},
    },
}


def _header(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


_COMMON: Json = {"X-Request-ID": _header("X-Request-ID")}
_PROBLEM_NAMES = {
    400: "NotJson",
    404: "NotFound",
    408: "TooSlow",
    409: "Conflict",
    413: "TooLarge",
    415: "NotJsonType",
    422: "Invalid",
    429: "TooMany",
    500: "InternalError",
    503: "Unavailable",
}


def _problems(settings: Settings) -> Json:
    texts = {
        400: "The body is not JSON.",
        404: "There is no such job.",
        408: "The body did not arrive in time.",
        409: "The job is completed or failed; `detail` names the status.",
        413: f"The body is larger than {settings.request_max_bytes} bytes.",
        415: "The Content-Type is not `application/json`, or the body is compressed.",
        422: "A value is not allowed; `errors` names each field and what is allowed.",
        429: "Over the rate limit.",
        500: "Something went wrong inside; the server's log has the reason under the request id.",
        503: "The database does not answer right now, or too much work is waiting. Nothing is known to be accepted.",
    }
    waits = {429, 503}
    return {
        _PROBLEM_NAMES[status]: {
            "description": text,
            "headers": {**_COMMON, **({"Retry-After": _header("Retry-After")} if status in waits else {})},
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        for status, text in texts.items()
    }


def _refused(*statuses: int) -> Json:
    return {str(status): {"$ref": f"#/components/responses/{_PROBLEM_NAMES[status]}"} for status in statuses}


def _json(description: str, schema: str, headers: Json | None = None) -> Json:
    return {
        "description": description,
        "headers": {**_COMMON, **(headers or {})},
        "content": {"application/json": {"schema": _ref(schema)}},
    }


def _query(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
