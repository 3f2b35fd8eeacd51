"""Every exception raised on purpose. No HTTP here: ``server/problems.py`` maps these to answers.

JobQueueError
├── RequestError          something a caller asked for cannot be done
│   ├── InvalidInput      a field has a value that is not allowed
│   ├── NotFound
│   ├── Conflict          the job's status does not allow it
│   ├── KeyReused         strict mode: same idempotency key, other body
│   └── Unavailable       the database does not answer, or too much work is waiting
├── ExecutorSignal        raised by executors to steer their own retry
│   ├── GiveUp
│   └── RetryLater
└── SetupError            the program cannot start like this
    ├── SettingsError
    ├── SchemaError
    └── ExecutorError     a job type is registered wrongly
"""

from __future__ import annotations


class JobQueueError(Exception):
    """Something went wrong in jobqueue."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or type(self).__name__)


class RequestError(JobQueueError):
    """The request cannot be carried out."""


class InvalidInput(RequestError):
    """A value is not allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NotFound(RequestError):
    """There is no such job."""


class Conflict(RequestError):
    """The job's status does not allow this."""


class KeyReused(RequestError):
    """This idempotency key was used before with another body."""


class Unavailable(RequestError):
    """The database does not answer right now. Nothing was accepted; try again."""

    def __init__(self, message: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ExecutorSignal(JobQueueError):
    """An executor steers its own retry."""


class GiveUp(ExecutorSignal):
    """Raised by an executor: this job can never succeed. It fails at once, whatever attempts are left."""


class RetryLater(ExecutorSignal):
    """Raised by an executor: the attempt failed, and the next one should start *delay_seconds* from now.

    The attempt counts like any other failure, and the delay replaces the usual backoff (0 to 86 400 seconds).
    """

    def __init__(self, delay_seconds: float, message: str | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = min(max(float(delay_seconds), 0.0), 86_400.0)


class SetupError(JobQueueError):
    """The program cannot start."""


class SettingsError(SetupError):
    """A setting has a value that is not allowed."""


class SchemaError(SetupError):
    """The database schema is not the one this version works with."""


class ExecutorError(SetupError):
    """A job type is registered wrongly."""
