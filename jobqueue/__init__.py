"""jobqueue: a job queue for people who already run PostgreSQL.

The names below are the public ones. They are loaded on first use, so that ``python3 -m jobqueue`` also
starts on a machine where nothing is installed yet (see ``bootstrap``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue.errors import InvalidInput
    from jobqueue.executors import (
        EXECUTOR_REGISTRY,
        BaseExecutor,
        GiveUp,
        RetryLater,
        executor,
        register,
    )
    from jobqueue.job import Job, NewJob
    from jobqueue.store.client import Enqueued, enqueue, enqueue_many, new_job

__version__ = "0.1.0"

__all__ = [
    "EXECUTOR_REGISTRY",
    "BaseExecutor",
    "Enqueued",
    "GiveUp",
    "InvalidInput",
    "Job",
    "NewJob",
    "RetryLater",
    "__version__",
    "enqueue",
    "enqueue_many",
    "executor",
    "new_job",
    "register",
]

_HOMES = {
    "EXECUTOR_REGISTRY": "jobqueue.executors",
    "BaseExecutor": "jobqueue.executors",
    "GiveUp": "jobqueue.executors",
    "RetryLater": "jobqueue.executors",
    "executor": "jobqueue.executors",
    "register": "jobqueue.executors",
    "InvalidInput": "jobqueue.errors",
    "Job": "jobqueue.job",
    "NewJob": "jobqueue.job",
    "Enqueued": "jobqueue.store.client",
    "enqueue": "jobqueue.store.client",
    "enqueue_many": "jobqueue.store.client",
    "new_job": "jobqueue.store.client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'jobqueue' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
