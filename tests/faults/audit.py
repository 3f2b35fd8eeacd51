"""The verdict over one world: the ten invariants, from the ledger, the clients' own log and the history of the rows.

Nothing here trusts what the queue says of itself: the table is looked at as the thing that is judged.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.ledger import Run
from tests.faults.world import LEASE_SECONDS, RECOVERY_SECONDS, Loss, World

FINAL = {"completed", "failed", "cancelled"}
_TOLERANCE_SECONDS = 2.5
"""How long after an outage a request may still be answered 503: those that waited in it, and the reconnect."""


async def audit(world: World) -> list[str]:
    """Return every violation, each beginning with the invariant's name. Call it when all is drained."""
    jobs = {
        str(row[0]): row[1:]
        for row in world.sql("SELECT id, status::text, attempts, max_attempts, result IS NOT NULL FROM jobs")
    }
    runs = defaultdict(list)
    for run in world.runs():
        runs[run.job_id].append(run)
    history = defaultdict(list)
    for job_id, *change in world.sql(
        "SELECT job_id, before, after, attempts_before, attempts_after FROM audit.history ORDER BY at"
    ):
        history[str(job_id)].append(change)
    return [
        *world.unexpected,
        *_nothing_is_lost(world, jobs, runs),
        *_nothing_is_stolen(world, runs),
        *_final_is_final(history, jobs),
        *_attempts_are_honest(world, jobs, runs, history),
        *_recovery_is_bounded(world, runs),
        *_processes_live(world),
        *await _figures_agree(world),
        *_answers_are_right(world),
        *_indexes_are_sound(world),
    ]


def _nothing_is_lost(world: World, jobs: dict[str, tuple], runs: dict[str, list[Run]]) -> Iterator[str]:
    by_key: dict[str, set[str]] = defaultdict(set)
    for accepted in world.client.accepted:
        if accepted.job_id not in jobs:
            yield f"INV-1: {accepted.job_id} was accepted and is not in the table"
        if accepted.key is not None:
            by_key[accepted.key].add(accepted.job_id)
    for key, ids in by_key.items():
        if len(ids) > 1:
            yield f"INV-1: the key {key} made {len(ids)} jobs"
    made = Counter(accepted.key for accepted in world.client.accepted if accepted.key and accepted.status == 201)
    yield from (f"INV-1: the key {key} was answered 201 {count} times" for key, count in made.items() if count > 1)
    for job_id, (status, *_) in jobs.items():
        if status not in FINAL:
            yield f"INV-1: {job_id} is {status} and not at its end"
        if job_id in world.unwritten:
            continue
        if status == "completed" and not any(run.outcome == "ok" for run in runs[job_id]):
            yield f"INV-1: {job_id} is completed and never came to its end"
        if status == "failed" and not runs[job_id] and not world.losses:
            yield f"INV-1: {job_id} failed and was never started"


def _nothing_is_stolen(world: World, runs: dict[str, list[Run]]) -> Iterator[str]:
    for job_id, own in runs.items():
        for earlier, later in itertools.pairwise(own):
            if _is_lost(earlier, later.started_at, world.losses):
                continue
            if earlier.ended_at is None or earlier.ended_at > later.started_at:
                yield f"INV-2: {job_id} was started by {later.pid} while {earlier.pid} ran it"
            elif earlier.outcome == "ok":
                yield f"INV-3: {job_id} was run again by {later.pid} although {earlier.pid} had done it"
    if not world.losses and not world.outages:
        # An owner that is told in time stops before the second start, so the runs alone would not show it.
        for (job_id,) in world.sql("SELECT DISTINCT job_id FROM job_logs WHERE event = 'recovered'"):
            yield f"INV-2: {job_id} was taken from a worker that lived"


def _is_lost(run: Run, before: float, losses: Iterable[Loss]) -> bool:
    """Tell whether *run*'s owner was taken from it before *before*."""
    return any(
        loss.pid in {None, run.pid} and run.started_at - LEASE_SECONDS <= loss.since <= before for loss in losses
    )


def _final_is_final(history: dict[str, list[list]], jobs: dict[str, tuple]) -> Iterator[str]:
    for job_id, changes in history.items():
        for before, after, *_ in changes:
            if before in FINAL:
                yield f"INV-4: {job_id} went from {before} to {after}"
        if job_id in jobs and changes and changes[-1][1] != jobs[job_id][0]:
            yield f"INV-4: {job_id} is {jobs[job_id][0]}, its last change was to {changes[-1][1]}"


def _attempts_are_honest(
    world: World, jobs: dict[str, tuple], runs: dict[str, list[Run]], history: dict[str, list[list]]
) -> Iterator[str]:
    unstarted = 0
    for job_id, (_, attempts, max_attempts, _) in jobs.items():
        claims = sum(1 for before, after, *_ in history[job_id] if (before, after) == ("queued", "processing"))
        released = sum(
            1
            for before, after, was, now in history[job_id]
            if (before, after) == ("processing", "queued") and now < was
        )
        if attempts > max_attempts:
            yield f"INV-5: {job_id} has {attempts} of {max_attempts} attempts"
        if attempts != claims - released:
            yield f"INV-5: {job_id} counts {attempts} attempts after {claims} claims, {released} of them handed back"
        if len(runs[job_id]) > claims:
            yield f"INV-5: {job_id} ran {len(runs[job_id])} times after {claims} claims"
        if job_id in world.unwritten:
            continue
        unstarted += claims - len(runs[job_id]) - released
    if unstarted > 0 and not world.losses and not world.outages:
        yield f"INV-5: {unstarted} claims were never started although nothing was taken from anybody"


def _recovery_is_bounded(world: World, runs: dict[str, list[Run]]) -> Iterator[str]:
    if not world.is_recovery_bounded:
        return
    bound = (LEASE_SECONDS + RECOVERY_SECONDS + 2) * world.patience
    for job_id, own in runs.items():
        for earlier, later in itertools.pairwise(own):
            since = [
                loss.since for loss in world.losses if loss.pid == earlier.pid and loss.since >= earlier.started_at
            ]
            if any(began <= later.started_at and ended >= earlier.started_at for began, ended in world.outages):
                continue  # while the database was away nobody could recover, and afterwards the owners get their time
            if since and earlier.ended_at is None and later.started_at - min(since) > bound:
                took = later.started_at - min(since)
                yield f"INV-6: {job_id} started again {took:.1f} s after its worker was lost, {bound:g} s are allowed"


def _processes_live(world: World) -> Iterator[str]:
    expected = {loss.pid for loss in world.losses}
    for process in world.processes:
        code = process.exit_code()
        if process.is_wanted and code is not None and process.pid not in expected:
            yield f"INV-8: {process.name} ended by itself with {code}: {process.text()[-400:]}"
        if "Traceback (most recent call last)" in process.text() and not process.may_trace:
            at = process.text().index("Traceback (most recent call last)")
            yield f"INV-8: {process.name} logged a traceback: {process.text()[at : at + 1500]}"


async def _figures_agree(world: World) -> list[str]:
    if not any(process.name.startswith("api") and process.exit_code() is None for process in world.processes):
        return []
    until = time.monotonic() + 10
    while True:
        response = await world.client.request("GET", "/api/v1/metrics")
        told = response.json()["counts_by_status"] if response is not None and response.status_code == 200 else None
        counted = dict.fromkeys(("queued", "processing", "completed", "failed", "cancelled"), 0)
        counted |= dict(world.sql("SELECT status::text, count(*) FROM jobs GROUP BY 1"))
        if told == counted:
            return []
        if time.monotonic() > until:
            return [f"INV-9: the figures say {told}, the table {counted}"]


def _answers_are_right(world: World) -> Iterator[str]:
    away = [(since, until + _TOLERANCE_SECONDS * world.patience) for since, until in world.outages]
    for answer in world.client.answers:
        if answer.route in {"pulse"}:
            if answer.status not in {0, 200} or answer.seconds > world.patience:
                yield f"INV-10: /health answered {answer.status} after {answer.seconds:.2f} s"
        elif answer.status == 503:
            if not any(since <= answer.at and answer.at - answer.seconds <= until for since, until in away):
                yield f"INV-10: {answer.route} answered 503 while the database was there"
        elif answer.status >= 500:
            yield f"INV-10: {answer.route} answered {answer.status}"


def _indexes_are_sound(world: World) -> Iterator[str]:
    indexes = world.sql(
        "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_am a ON a.oid = c.relam"
        " WHERE i.indrelid IN ('jobs'::regclass, 'job_logs'::regclass) AND a.amname = 'btree'"
    )
    for (name,) in indexes:
        try:
            world.sql("SELECT bt_index_check(%s::regclass, true)", name)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
            yield f"row 40: {name} is broken: {error}"
