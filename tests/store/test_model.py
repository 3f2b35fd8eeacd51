"""The life of jobs against a model: any order of the real statements, compared with an oracle after every step.

MODEL_EXAMPLES is the number of histories (30 by default), each of up to 40 steps.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.conninfo import make_conninfo

from jobqueue.errors import Conflict
from jobqueue.ids import new_id
from jobqueue.job import Claim, NewJob, Priority
from jobqueue.settings import Settings
from jobqueue.store import jobs, stats, workers
from jobqueue.store.db import Connection, connect
from jobqueue.store.workers import LostJob
from tests.jobs import claim, outcome

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "30"))
FINAL = {"completed", "failed", "cancelled"}


class Expected:
    """What the oracle knows of one job."""

    def __init__(self, max_attempts: int) -> None:
        self.status = "queued"
        self.attempts = 0
        self.max_attempts = max_attempts
        self.owner: Claim | None = None
        self.is_expired = False

    def as_row(self) -> tuple[str, int, str | None]:
        """Return the columns that are compared."""
        return self.status, self.attempts, self.owner and self.owner.lease_token

    def queue_again(self) -> None:
        """A failed or lost attempt: once more, or failed for good."""
        self.status = "failed" if self.attempts >= self.max_attempts else "queued"
        self.owner, self.is_expired = None, False


class JobLives(RuleBasedStateMachine):
    """Rules are what clients, workers, operators and time can do. Claims that were lost are kept and used again."""

    url = ""

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.connection: Connection = self.run(connect(self.url, Settings(database_url=self.url), "model"))
        self.sql = psycopg.connect(make_conninfo(self.url), autocommit=True)
        self.sql.execute("TRUNCATE jobs, job_logs")
        self.expected: dict[UUID, Expected] = {}
        self.keys: dict[str, UUID] = {}
        self.claims: list[Claim] = []
        self.seen_lost: list[LostJob] = []

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "connection"):
            self.run(self.connection.close())
            self.sql.close()
            self.runner.close()

    @rule(
        attempts=st.integers(1, 3),
        priority=st.sampled_from(list(Priority)),
        queue=st.sampled_from(["default", "fifo"]),
        key=st.one_of(st.none(), st.sampled_from("abc")),
    )
    def enqueue(self, attempts: int, priority: Priority, queue: str, key: str | None) -> None:
        new = NewJob(
            id=new_id(),
            type="email_send",
            payload=b"{}",
            priority=priority,
            queue=queue,
            max_attempts=attempts,
            idempotency_key=key,
        )
        [created] = self.run(jobs.create_jobs(self.connection, [new]))
        if key in self.keys:
            assert (created.is_replay, created.job.id) == (True, self.keys[key])
            return
        assert not created.is_replay
        self.expected[created.job.id] = Expected(attempts)
        if key is not None:
            self.keys[key] = created.job.id

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        rows = self.sql.execute(
            "SELECT id FROM jobs WHERE status = 'queued' AND next_run_at <= now() ORDER BY"
            " lane = 'fifo', CASE WHEN lane = 'priority' THEN priority END,"
            " CASE WHEN lane = 'priority' THEN next_run_at END, created_at, id LIMIT %s",
            (count,),
        ).fetchall()
        taken: list[Claim] = self.run(claim(self.connection, count))
        assert [each.id for each in taken] == [row[0] for row in rows], "not the first ones, or not in order"
        for each in taken:
            job = self.expected[each.id]
            assert job.status == "queued"
            job.status, job.owner = "processing", each
            job.attempts += 1
            assert each.attempt == job.attempts
        self.claims += taken

    def some_claim(self, data: st.DataObject) -> tuple[Claim, Expected | None, bool]:
        """Return a claim that was made some time, its job if there still is one, and whether it still is the owner."""
        made = data.draw(st.sampled_from(self.claims))
        job = self.expected.get(made.id)
        return made, job, job is not None and job.owner is made

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), kind=st.sampled_from(["completed", "failed", "gave_up"]), twice=st.booleans())
    def end(self, data: st.DataObject, kind: str, twice: bool) -> None:
        made, job, is_owner = self.some_claim(data)
        for _ in range(1 + twice):  # an outcome whose answer was lost is written again
            told = self.run(jobs.finish_jobs(self.connection, [outcome(made, kind)]))
            assert bool(told) == is_owner
            if is_owner and job is not None:
                if kind == "failed":
                    job.queue_again()
                else:
                    job.status, job.owner, job.is_expired = (
                        ("completed" if kind == "completed" else "failed"),
                        None,
                        False,
                    )
            is_owner = False

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        made, job, is_owner = self.some_claim(data)
        held = [(made.id, made.lease_token)]
        self.run(workers.extend_leases(self.connection, held, lease_seconds=60))
        if is_owner and job is not None:
            job.is_expired = False
        lost = self.run(workers.list_lost_leases(self.connection, held))
        assert bool(lost) == (not is_owner)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        made, job, is_owner = self.some_claim(data)
        self.run(jobs.release_jobs(self.connection, [(made.id, made.lease_token)]))
        if is_owner and job is not None:
            job.status, job.owner, job.is_expired = "queued", None, False
            job.attempts -= 1

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.expected)))
        job = self.expected[job_id]
        try:
            told = self.run(jobs.cancel_job(self.connection, job_id, actor="model"))
        except Conflict:
            assert job.status in {"completed", "failed"}
            return
        assert job.status not in {"completed", "failed"}
        assert told.status.value == "cancelled"
        job.status, job.owner, job.is_expired = "cancelled", None, False

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        made, job, is_owner = self.some_claim(data)
        self.sql.execute(
            "UPDATE jobs SET lease_expires_at = now() - interval '1 min' WHERE lease_token = %s", (made.lease_token,)
        )
        if is_owner and job is not None:
            job.is_expired = True

    @rule()
    def look_for_lost(self) -> None:
        self.seen_lost = self.run(
            workers.list_lost_jobs(self.connection, lease_seconds=0, stuck_seconds=600, max_jobs=100)
        )
        assert {lost.id for lost in self.seen_lost} == {i for i, job in self.expected.items() if job.is_expired}

    @rule()
    def recover(self) -> None:
        """Recover what was lost when somebody looked, however long ago that was."""
        done = self.run(
            workers.recover_jobs(self.connection, self.seen_lost, [1.0] * len(self.seen_lost), stuck_seconds=600)
        )
        for lost in self.seen_lost:
            job = self.expected.get(lost.id)
            owner = job and job.owner
            if job is not None and owner is not None and owner.lease_token == lost.lease_token and job.is_expired:
                job.queue_again()
                assert done.pop(lost.id).value == job.status
        assert not done, "a live or finished job was recovered"

    @rule()
    def time_passes(self) -> None:
        self.sql.execute("UPDATE jobs SET next_run_at = now() WHERE status = 'queued' AND next_run_at > now()")

    @precondition(lambda self: any(job.status == "failed" for job in self.expected.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """As an operator does by hand."""
        failed = sorted(job_id for job_id, job in self.expected.items() if job.status == "failed")
        job_id = data.draw(st.sampled_from(failed))
        self.sql.execute(
            "UPDATE jobs SET status = 'queued', attempts = 0, completed_at = NULL, error = NULL, next_run_at = now()"
            " WHERE id = %s AND status = 'failed'",
            (job_id,),
        )
        self.expected[job_id] = Expected(self.expected[job_id].max_attempts)

    @rule()
    def prune(self) -> None:
        """Remove what is finished, as if a second had passed: ids and ends carry milliseconds."""
        self.run(jobs.prune_jobs(self.connection, retention_seconds=-1))
        self.expected = {job_id: job for job_id, job in self.expected.items() if job.status not in FINAL}
        self.keys = {key: job_id for key, job_id in self.keys.items() if job_id in self.expected}

    @rule()
    def fold(self) -> None:
        self.run(stats.fold_job_counts(self.connection))

    @invariant()
    def table_is_as_expected(self) -> None:
        rows = self.sql.execute("SELECT id, status::text, attempts, lease_token::text FROM jobs").fetchall()
        assert {row[0]: row[1:] for row in rows} == {job_id: job.as_row() for job_id, job in self.expected.items()}

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert all(job.attempts <= job.max_attempts for job in self.expected.values())

    @invariant()
    def counts_are_right(self) -> None:
        told = self.sql.execute("SELECT status::text, sum(jobs)::int FROM job_counts GROUP BY 1").fetchall()
        counted = self.sql.execute("SELECT status::text, count(*)::int FROM jobs GROUP BY 1").fetchall()
        assert {status: count for status, count in told if count} == dict(counted)


@pytest.fixture
def model(database_url: str) -> type[JobLives]:
    JobLives.url = database_url
    return JobLives


@pytest.mark.timeout(120 + EXAMPLES)
def test_jobs_live_as_the_model_says(model: type[JobLives]) -> None:
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
