"""What a benchmark case is: a name, what it measures, and what is expected of its ratio.

A case runs several times. Each run returns figures by label: ``ours``, its yardsticks, and peers. Machines are shared
and noisy, so what counts is the ratio of figures taken in one run, never a figure alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from jobqueue.bench.scratch import Scratch

Figures = dict[str, float]


class Target(msgspec.Struct, frozen=True):
    """``ours`` divided by ``label``: at least (or at most) *bound*."""

    label: str
    relation: Literal[">=", "<="]
    bound: float

    def is_met(self, ratio: float) -> bool:
        """Tell whether a measured ratio is good enough."""
        return ratio >= self.bound if self.relation == ">=" else ratio <= self.bound


class Case(msgspec.Struct, frozen=True):
    """One thing that is measured. *run* makes one run and returns its figures, in *unit*."""

    name: str
    title: str
    unit: str
    run: Callable[[Scratch], Figures]
    targets: tuple[Target, ...] = ()
    limit: float | None = None
    """Largest value ``ours`` may have by itself (memory, log, idle cost)."""
    runs: int | None = None
    """Runs at most; for cases that take minutes to prepare."""


CASES: dict[str, Case] = {}


def case(
    name: str, title: str, unit: str, *targets: Target, limit: float | None = None, runs: int | None = None
) -> Callable[[Callable[[Scratch], Figures]], Callable[[Scratch], Figures]]:
    """Register a function as a case."""

    def register(run: Callable[[Scratch], Figures]) -> Callable[[Scratch], Figures]:
        CASES[name] = Case(name, title, unit, run, targets, limit, runs)
        return run

    return register


def at_least(bound: float, label: str) -> Target:
    """Return the target *ours ≥ bound × label*."""
    return Target(label, ">=", bound)


def at_most(bound: float, label: str) -> Target:
    """Return the target *ours ≤ bound × label*."""
    return Target(label, "<=", bound)
