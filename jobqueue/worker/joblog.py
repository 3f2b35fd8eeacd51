"""What an executor logs with Python's ``logging`` goes to its job's log.

The attempt is found through a context variable, so it works in tasks and in threads alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar

from jobqueue.job import LogLevel

Sink = Callable[[LogLevel, str], None]

MAX_LINES = 1_000
current_sink: ContextVar[Sink | None] = ContextVar("current_sink", default=None)
"""Where lines of the attempt that runs in this context go."""


class JobLogHandler(logging.Handler):
    """Copies log records of a running executor into its job's log. Never raises."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line to the attempt that runs here, if one does."""
        sink = current_sink.get()
        if sink is None:
            return
        try:
            sink(level_of(record.levelno), self.format(record))
        except Exception:  # noqa: BLE001  a line that cannot be formatted must not fail the job
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is logging's
        """Say that a line was lost, without the traceback that logging prints by default."""
        sink = current_sink.get()
        if sink is not None:
            sink(LogLevel.WARNING, f"A log line of {record.name} could not be formatted")


def level_of(number: int) -> LogLevel:
    """Translate a level number of ``logging``."""
    if number >= logging.ERROR:
        return LogLevel.ERROR
    if number >= logging.WARNING:
        return LogLevel.WARNING
    return LogLevel.INFO if number >= logging.INFO else LogLevel.DEBUG
