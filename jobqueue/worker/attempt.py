"""One attempt: call the executor, keep its time limit, and turn whatever it does into one outcome.

Built on callbacks around a single task (or thread): at ten thousand jobs a second a second task per job would be
felt. Invariant: exactly one report per attempt, and one end; the report may come before the end, when the
executor ignores its time limit or its cancellation.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jobqueue.backoff import retry_delay_seconds
from jobqueue.errors import GiveUp, RetryLater
from jobqueue.job import Claim, LogLevel
from jobqueue.safejson import UnsafeValue, clean_text, describe_exception, encode_value
from jobqueue.store.jobs import LogLine, Outcome
from jobqueue.tracing import end_attempt_span, start_attempt_span
from jobqueue.worker.handler import Handler
from jobqueue.worker.joblog import MAX_LINES, current_sink

if TYPE_CHECKING:
    from opentelemetry.trace import Span

STOP_PATIENCE_SECONDS = 1.0
"""How long a cancelled executor may take to end before its slot counts as stuck."""

MAX_RETRY_LATER_SECONDS = 86_400.0


class StopReason(Enum):
    """Why an attempt is told to stop."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    RELEASED = "released"


class _Unreadable(Exception):
    """The payload does not fit what the executor declares."""


class Owner(Protocol):
    """What an attempt tells the worker."""

    def reported(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Take the one outcome; None: the job goes back untouched (it is being released)."""

    def ended(self, attempt: Attempt) -> None:
        """Note that the executor has ended."""

    def logged(self, line: LogLine, logged_at: float) -> None:
        """Take a line for the job's log. May be called from any thread; *logged_at* is a monotonic time."""


class Attempt:
    """One run of one job."""

    __slots__ = (
        "_finished_after",
        "_lines",
        "_loop",
        "_owner",
        "_patience",
        "_span",
        "_started",
        "_task",
        "_timer",
        "claim",
        "handler",
        "has_ended",
        "is_reported",
        "is_written",
        "stop_reason",
    )

    def __init__(self, claim: Claim, handler: Handler, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.claim = claim
        self.handler = handler
        self.stop_reason: StopReason | None = None
        self.is_reported = False
        self.has_ended = False
        self.is_written = False
        self._owner = owner
        self._loop = loop
        self._task: asyncio.Task[Outcome] | None = None
        self._finished_after: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._started = time.monotonic()
        self._lines = 0
        self._span: Span | None = None

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._started

    def start(self) -> None:
        """Start the executor. Returns at once; the owner hears the rest."""
        self._span = start_attempt_span(self.claim)
        context = contextvars.copy_context()
        context.run(current_sink.set, self._log)
        self._timer = self._loop.call_later(self.handler.limit_seconds, self.stop, StopReason.TIMED_OUT)
        if self.handler.is_async:
            self._task = self._loop.create_task(self._execute(), context=context)
            self._task.add_done_callback(self._task_done)
        else:
            # A thread of its own, not from a pool: one that hangs must not keep the process from exiting.
            thread = threading.Thread(
                target=context.run, args=(self._execute_in_thread,), name=f"job-{self.claim.id}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no more threads: the attempt fails, and is tried again later
                self._loop.call_soon(self._ended, self._raised(error))

    def stop(self, reason: StopReason) -> None:
        """Tell the executor to stop. A task is cancelled; a thread cannot be, so its end is not waited for."""
        if self.is_reported or self.stop_reason is not None or self._finished_after is not None:
            return
        self.stop_reason = reason
        if self._task is None:
            self._report(self._outcome_of_stop())
            return
        self._task.cancel()
        self._patience = self._loop.call_later(STOP_PATIENCE_SECONDS, self.settle)

    @property
    def needs_release(self) -> bool:
        """Tell whether the job is to be handed back: it was stopped for that, and nothing else was reported."""
        return self.stop_reason is StopReason.RELEASED

    def settle(self) -> None:
        """Report a stop now if that has not happened: there is no time left to wait for the executor."""
        if not self.is_reported and self.stop_reason is not None:
            self._report(self._outcome_of_stop())

    async def _execute(self) -> Outcome:
        try:
            outcome = self._completed(await self.handler.execute(str(self.claim.id), self._payload()))
        except BaseException as error:  # noqa: BLE001  SystemExit and the like end the job, never the worker
            outcome = self._raised(error)
        self._finished_after = self.seconds
        return outcome

    def _execute_in_thread(self) -> None:
        try:
            outcome = self._completed(self.handler.execute(str(self.claim.id), self._payload()))
        except BaseException as error:  # noqa: BLE001  as above
            outcome = self._raised(error)
        self._finished_after = self.seconds
        # The worker goes on in a context of its own: what it logs is not this job's.
        with suppress(RuntimeError):  # the worker is gone already
            self._loop.call_soon_threadsafe(self._ended, outcome, context=contextvars.Context())

    def _payload(self) -> Any:
        try:
            return self.handler.decode(self.claim.payload)
        except msgspec.DecodeError as error:
            raise _Unreadable(f"The payload cannot be read: {error}") from error

    def _task_done(self, task: asyncio.Task[Outcome]) -> None:
        self._ended(self._raised(asyncio.CancelledError()) if task.cancelled() else task.result())

    def _ended(self, outcome: Outcome) -> None:
        self.has_ended = True
        if not self.is_reported:
            if self.stop_reason is None and (self._finished_after or 0.0) >= self.handler.limit_seconds:
                self.stop_reason = StopReason.TIMED_OUT  # it blocked the loop, so the timer could not fire
            elif self.stop_reason is StopReason.RELEASED and outcome.kind == "completed":
                self.stop_reason = None  # it came to its end all the same: running it again would be a waste
            self._report(outcome if self.stop_reason is None else self._outcome_of_stop())
        self._owner.ended(self)

    def _report(self, outcome: Outcome | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._patience is not None:
            self._patience.cancel()
        self.is_reported = True
        if self._span is not None:
            end_attempt_span(self._span, outcome.error if outcome is not None else "released")
        self._owner.reported(self, outcome)

    def _outcome_of_stop(self) -> Outcome | None:
        if self.stop_reason is StopReason.RELEASED:
            return None
        if self.stop_reason is StopReason.LOST:
            return Outcome(id=self.claim.id, lease_token=self.claim.lease_token, kind="stopped")
        return self._failed(f"Execution timed out after {self.handler.limit_seconds:g}s")

    def _raised(self, error: BaseException) -> Outcome:
        if isinstance(error, GiveUp):
            return self._failed(describe_exception(error, with_type=False), kind="gave_up")
        if isinstance(error, RetryLater):
            # A subclass may have set anything.
            delay = getattr(error, "delay_seconds", None)
            return self._failed(describe_exception(error, with_type=False), delay=delay)
        return self._failed(describe_exception(error, with_type=not isinstance(error, _Unreadable)))

    def _completed(self, value: Any) -> Outcome:
        try:
            result = encode_value(value, "result")
        except UnsafeValue as error:
            return self._failed(f"The result cannot be stored: {clean_text(str(error))}")
        except Exception as error:  # noqa: BLE001  encoding runs whatever methods the value has
            return self._failed(f"The result cannot be stored: {describe_exception(error)}")
        if len(result) > self.handler.result_max_bytes:
            return self._failed(
                f"The result cannot be stored: it has {len(result)} bytes, "
                f"RESULT_MAX_BYTES allows {self.handler.result_max_bytes}"
            )
        return Outcome(
            id=self.claim.id, lease_token=self.claim.lease_token, kind="completed", result=msgspec.Raw(result)
        )

    def _failed(self, error: str, *, kind: str = "failed", delay: float | None = None) -> Outcome:
        if not isinstance(delay, (int, float)) or not 0 <= delay <= MAX_RETRY_LATER_SECONDS:
            jitter = random.uniform(0.5, 1.5)  # noqa: S311  spreads retries, nothing secret
            delay = retry_delay_seconds(self.claim.attempt, jitter)
        return Outcome(
            id=self.claim.id, lease_token=self.claim.lease_token, kind=kind, error=error, delay_seconds=delay
        )

    def _log(self, level: LogLevel, message: str) -> None:
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        if self._lines == MAX_LINES:
            level, message = (
                LogLevel.WARNING,
                f"Further lines of this attempt are dropped (limit {MAX_LINES})",
            )
        line = LogLine(self.claim.id, self.claim.attempt, level, clean_text(message), 0.0)
        self._owner.logged(line, time.monotonic())
