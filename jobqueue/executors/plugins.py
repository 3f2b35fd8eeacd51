"""Finding executors: importing a module registers what it defines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from jobqueue.errors import ExecutorError
from jobqueue.executors.registry import EXECUTOR_REGISTRY, BaseExecutor, instantiate, register

GROUP = "jobqueue.executors"


def load_executors(modules: Sequence[str]) -> dict[str, BaseExecutor]:
    """Import all executors of this process and return the registry.

    First the entry points of the group ``jobqueue.executors``, then *modules*, which may also lie in the
    working folder. An entry point that names a ``BaseExecutor`` subclass registers it under the entry's name.

    Raises:
        ExecutorError: one cannot be imported, or registers wrongly.
    """
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except ExecutorError:
            raise
        except (Exception, SystemExit) as error:
            raise ExecutorError(
                f"The executor entry point {entry.value!r} cannot be loaded: {_reason(error)}"
            ) from error
        if isinstance(loaded, type) and issubclass(loaded, BaseExecutor) and entry.name not in EXECUTOR_REGISTRY:
            register(entry.name, instantiate(entry.name, loaded))
    here = str(Path.cwd())
    if modules and here not in sys.path:
        sys.path.insert(0, here)
    for name in modules:
        try:
            importlib.import_module(name)
        except ExecutorError:
            raise
        except (Exception, SystemExit) as error:
            raise ExecutorError(
                f"JOBQUEUE_EXECUTORS names {name!r}, which cannot be imported: {_reason(error)}"
            ) from error
    return EXECUTOR_REGISTRY


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
