"""What a job type is, and the table of those that are known in this process."""

from __future__ import annotations

import inspect
import math
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

import msgspec

from jobqueue.errors import ExecutorError
from jobqueue.job import MAX_TYPE_LENGTH

Target = TypeVar("Target", bound=Callable[..., Any])


class BaseExecutor(ABC):
    """Performs jobs of one type. Subclass it, set the limit, write ``execute``, and register it.

    ``max_execution_seconds``: time limit of one attempt; ``None`` means JOB_MAX_EXECUTION_SECONDS.
    ``payload_type``: a ``msgspec.Struct`` that payloads must fit; it is found from the annotation of
    ``execute``'s *payload* when not set. ``execute`` may be ``async def``, or a plain ``def`` that then runs in
    a thread.
    """

    max_execution_seconds: ClassVar[float | None] = None
    payload_type: ClassVar[type[msgspec.Struct] | None] = None

    @abstractmethod
    def execute(self, job_id: str, payload: Any) -> Awaitable[Any] | Any:
        """Do the work and return a result that JSON can hold.

        Raise ``GiveUp`` to fail for good, ``RetryLater`` to choose the delay; any other exception fails the
        attempt, and it is retried while attempts are left.
        """


EXECUTOR_REGISTRY: dict[str, BaseExecutor] = {}
"""Job type → executor. An entry makes its type valid at once."""


def executor(name: str, *, max_execution_seconds: float | None = None) -> Callable[[Target], Target]:
    """Register the class or function below as the executor of job type *name*.

    A function takes ``(job_id, payload)``. Returns what it decorates, unchanged.

    Raises:
        ExecutorError: as :func:`register`.
    """

    def decorate(target: Target) -> Target:
        if inspect.isclass(target):
            if max_execution_seconds is not None:
                raise ExecutorError(f"Set max_execution_seconds of {name!r} in the class {target.__qualname__}")
            register(name, instantiate(name, target))
        else:
            register(name, _from_function(target, max_execution_seconds))
        return target

    return decorate


def register(name: str, instance: BaseExecutor) -> None:
    """Make *instance* the executor of job type *name*.

    Raises:
        ExecutorError: the name is taken by another executor or not 1 to 255 characters, ``execute`` is missing,
            or the time limit is not a positive number.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_TYPE_LENGTH or not name.isprintable():
        raise ExecutorError(f"{name!r} cannot be a job type: use 1 to {MAX_TYPE_LENGTH} printable characters")
    if not isinstance(instance, BaseExecutor):
        raise ExecutorError(f"The executor of {name!r} must be an instance of a subclass of BaseExecutor")
    limit = instance.max_execution_seconds
    if limit is not None and not (isinstance(limit, (int, float)) and 0 < limit < math.inf):
        raise ExecutorError(f"max_execution_seconds of {name!r} is {limit!r}: use a positive number of seconds")
    taken = EXECUTOR_REGISTRY.get(name)
    if taken is not None and _origin(taken) != _origin(instance):
        raise ExecutorError(f"The job type {name!r} is registered twice: by {_origin(taken)} and {_origin(instance)}")
    EXECUTOR_REGISTRY[name] = instance


def instantiate(name: str, kind: type) -> BaseExecutor:
    """Return an instance of an executor class.

    Raises:
        ExecutorError: it is not a subclass of BaseExecutor, lacks ``execute``, or cannot be made without arguments.
    """
    if not issubclass(kind, BaseExecutor):
        raise ExecutorError(f"The executor of {name!r}, {kind.__qualname__}, must subclass BaseExecutor")
    try:
        return kind()
    except TypeError as error:
        raise ExecutorError(f"The executor of {name!r} cannot be made: {error}") from error


def is_async(instance: BaseExecutor) -> bool:
    """Tell whether ``execute`` is a coroutine function."""
    return inspect.iscoroutinefunction(instance.execute)


def _from_function(function: Callable[..., Any], max_execution_seconds: float | None) -> BaseExecutor:
    name = getattr(function, "__qualname__", type(function).__name__)
    members = {
        "execute": staticmethod(function),
        "max_execution_seconds": max_execution_seconds,
        "__module__": getattr(function, "__module__", __name__),
        "__qualname__": name,
        "__doc__": function.__doc__,
    }
    made: BaseExecutor = ABCMeta(name, (BaseExecutor,), members)()
    return made


def _origin(instance: BaseExecutor) -> str:
    """Return where an executor was written; the same place twice is a module that was imported again."""
    place = f"{type(instance).__module__}.{type(instance).__qualname__}"
    code = getattr(instance.execute, "__code__", None)
    return place if code is None else f"{place} (line {code.co_firstlineno})"
