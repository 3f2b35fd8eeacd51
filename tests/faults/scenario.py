"""The scenarios by name, and how one is run to a verdict."""

from __future__ import annotations

import importlib
import pkgutil
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import psycopg

from tests.faults import scenarios
from tests.faults.audit import audit
from tests.faults.world import Cannot, World, world

Body = Callable[[World], Awaitable[None]]


class Scenario(NamedTuple):
    """One fault: what is done is the function, what must hold is its docstring and the audit behind it."""

    name: str
    rows: tuple[int, ...]
    body: Body
    is_short: bool
    waits_for_drain: bool

    @property
    def purpose(self) -> str:
        """The first line of what it says about itself."""
        return (self.body.__doc__ or "").strip().partition("\n")[0]


class Verdict(NamedTuple):
    """What came out. *cannot* says what this machine lacks."""

    scenario: Scenario
    seed: int
    seconds: float
    violations: list[str]
    cannot: str = ""


SCENARIOS: dict[str, Scenario] = {}


def scenario(*rows: int, short: bool = False, drain: bool = True) -> Callable[[Body], Body]:
    """Register a scenario for these rows of the fault plan. *short*: it belongs to the short form as well."""

    def register(body: Body) -> Body:
        name = body.__name__
        SCENARIOS[name] = Scenario(name, rows, body, short, drain)
        return body

    return register


def load() -> dict[str, Scenario]:
    """Import every scenario and return them in the order of their rows."""
    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    return dict(sorted(SCENARIOS.items(), key=lambda item: item[1].rows))


async def run(
    which: Scenario, template: Path, seed: int, size: float, *, patience: float = 1.0, keep: Path | None = None
) -> Verdict:
    """Run one scenario in a world of its own and judge it."""
    started = time.monotonic()
    violations: list[str] = []
    try:
        async with world(template, seed, size, patience=patience, keep=keep) as made:
            try:
                await which.body(made)
                if which.waits_for_drain:
                    await made.drained()
                violations += await audit(made)
            except AssertionError as error:
                violations.append(f"{which.name}: {error or traceback.format_exc(limit=-2)}")
            except (psycopg.Error, OSError, ValueError) as error:
                violations.append(f"{which.name}: {error!r} at {traceback.format_exc(limit=-3)}")
    except Cannot as lack:
        return Verdict(which, seed, time.monotonic() - started, [], str(lack))
    return Verdict(which, seed, time.monotonic() - started, violations)
