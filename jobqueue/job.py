"""What a job is: its record, its statuses and priorities, what a new one may say. No I/O.

Field names are those of the table ``jobs``, of the REST API and of the log lines: one word for one thing.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class Status(StrEnum):
    """Where a job stands. ``completed``, ``failed`` and ``cancelled`` are final."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Priority(StrEnum):
    """Order of claiming: all due high before any due medium, before any due low."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class LogLevel(StrEnum):
    """Severity of a line in a job's log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 5
MAX_MAX_ATTEMPTS = 10
MAX_KEY_LENGTH = 255
MAX_TYPE_LENGTH = 255


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has passed every check and only needs to be written.

    *payload* is its JSON text, kept as the client sent it so that numbers stay exact. *request_hash* stands
    for the whole body and is set only beside an *idempotency_key*. *run_at* ``None`` means at once.
    """

    id: UUID
    type: str
    payload: bytes
    priority: Priority = Priority.MEDIUM
    queue: str = DEFAULT_QUEUE
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    run_at: datetime | None = None
    idempotency_key: str | None = None
    request_hash: bytes | None = None
    trace_context: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``jobs`` as everybody outside sees it. Times are UTC; JSON columns stay undecoded text."""

    id: UUID
    type: str
    payload: msgspec.Raw
    priority: Priority
    status: Status
    idempotency_key: str | None
    attempts: int
    max_attempts: int
    next_retry_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None
    result: msgspec.Raw | None
    queue: str
    next_run_at: datetime


class JobWithLogs(Job, frozen=True, kw_only=True):
    """A job and its log: a JSON array of :class:`JobLog`, oldest line first."""

    logs: msgspec.Raw


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's log."""

    id: UUID
    job_id: UUID
    level: LogLevel
    message: str
    created_at: datetime


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a listing is about; ``None`` leaves a field open."""

    status: Status | None = None
    type: str | None = None
    priority: Priority | None = None


LeaseToken = str
"""A uuid as text. Workers only compare it, many times per job, and for text that costs a tenth."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job: what the worker needs to run one attempt, and the token that proves its ownership."""

    id: UUID
    lease_token: LeaseToken
    type: str
    attempt: int
    max_attempts: int
    payload: msgspec.Raw
    priority: str
    queue: str
    wait_seconds: float
    trace_context: str | None
