"""Runs cases and tells how far it is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import psycopg

from jobqueue.bench import claim, cost, drain, enqueue, http  # noqa: F401  they register their cases
from jobqueue.bench.case import CASES, Figures
from jobqueue.bench.report import Result, summarise
from jobqueue.bench.scratch import Scratch
from jobqueue.errors import JobQueueError

_FAILURES = (JobQueueError, subprocess.SubprocessError, psycopg.Error, OSError)


def run_cases(scratch: Scratch, names: Sequence[str], runs: int) -> list[Result]:
    """Run the named cases; one that fails does not stop the others."""
    return [_run_case(scratch, name, runs) for name in names]


def _run_case(scratch: Scratch, name: str, runs: int) -> Result:
    case = CASES[name]
    figures: list[Figures] = []
    count = min(runs, case.runs or runs)
    for run in range(1, count + 1):
        started = time.monotonic()
        print(f"{name} {run}/{count} …", end="", file=sys.stderr, flush=True)
        try:
            figures.append(case.run(scratch))
        except _FAILURES as error:
            print(f" failed: {error}", file=sys.stderr, flush=True)
            return summarise(case, figures, str(error) or type(error).__name__)
        shown = ", ".join(f"{label} {value:,.4g}" for label, value in figures[-1].items())
        print(f" {time.monotonic() - started:.0f} s: {shown}", file=sys.stderr, flush=True)
    return summarise(case, figures)
