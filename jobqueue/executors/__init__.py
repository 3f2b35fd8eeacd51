"""User code and the door to it. See README.md in this folder."""

from jobqueue.errors import GiveUp, RetryLater
from jobqueue.executors.payloads import payload_decoder, payload_schema, validate_payload
from jobqueue.executors.plugins import load_executors
from jobqueue.executors.registry import EXECUTOR_REGISTRY, BaseExecutor, executor, register

__all__ = [
    "EXECUTOR_REGISTRY",
    "BaseExecutor",
    "GiveUp",
    "RetryLater",
    "executor",
    "load_executors",
    "payload_decoder",
    "payload_schema",
    "register",
    "validate_payload",
]
