"""One job type as this worker runs it: what is the same for all its jobs is found out once, not per job."""

from __future__ import annotations

from jobqueue.executors import BaseExecutor, payload_decoder
from jobqueue.executors.registry import is_async
from jobqueue.telemetry import (
    EXECUTOR_SECONDS,
    JOB_PROCESSING_SECONDS,
    JOBS_COMPLETED,
    JOBS_FAILED,
    JOBS_RETRIED,
)


class Handler:
    """An executor with its limits, the decoder of its payloads, and the metrics of its type."""

    __slots__ = (
        "completed",
        "decode",
        "execute",
        "executor_seconds",
        "failed",
        "is_async",
        "limit_seconds",
        "processing_seconds",
        "result_max_bytes",
        "retried",
    )

    def __init__(self, name: str, executor: BaseExecutor, *, limit_seconds: float, result_max_bytes: int) -> None:
        self.execute = executor.execute
        self.is_async = is_async(executor)
        self.decode = payload_decoder(executor)
        self.limit_seconds = executor.max_execution_seconds or limit_seconds
        self.result_max_bytes = result_max_bytes
        self.executor_seconds = EXECUTOR_SECONDS.labels(name)
        self.processing_seconds = JOB_PROCESSING_SECONDS.labels(name)
        self.completed = JOBS_COMPLETED.labels(name)
        self.failed = JOBS_FAILED.labels(name)
        self.retried = JOBS_RETRIED.labels(name)
