"""The plans of the hot statements on a table full of finished jobs, with the planner knowing the parameters and not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from jobqueue.store.claims import _start
from jobqueue.store.db import statement
from jobqueue.store.jobs import Outcome
from tests.conftest import Server

FINISHED, WAITING, RUNNING = 50_000, 2_000, 40

SEED = f"""
INSERT INTO jobs (type, status, completed_at, created_at, idempotency_key, result)
SELECT 'email_send', 'completed', now(), now() - n * interval '1 second', 'key-' || n, '{{}}'
FROM generate_series(1, {FINISHED}) AS n;
INSERT INTO jobs (type, priority, next_run_at, created_at)
SELECT 'email_send', (ARRAY['high','medium','low'])[1 + n % 3]::job_priority,
       now() + CASE WHEN n % 2 = 0 THEN interval '1 h' ELSE interval '-1 s' END, now() - n * interval '1 ms'
FROM generate_series(1, {WAITING}) AS n;
INSERT INTO jobs (type, queue, created_at) SELECT 'email_send', 'fifo', now() FROM generate_series(1, 200);
INSERT INTO jobs (type, status, attempts, started_at, lease_token, lease_expires_at)
SELECT 'email_send', 'processing', 1, now(), gen_random_uuid(), now() + (n - 5) * interval '1 minute'
FROM generate_series(1, {RUNNING}) AS n;
UPDATE jobs SET status = 'cancelled', result = NULL
WHERE id IN (SELECT id FROM jobs WHERE status = 'completed' ORDER BY id LIMIT 30);
INSERT INTO job_logs (job_id, message) SELECT id, 'line' FROM jobs;
"""


@pytest.fixture(scope="module")
def seeded(postgres_server: Server, template_database: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A connection to a database with many finished jobs and a few others, analysed."""
    name = f"{template_database}_plans"
    with (
        postgres_server.janitor(name, template_database),
        psycopg.connect(
            make_conninfo(postgres_server.url(name)), autocommit=True, cursor_factory=psycopg.ClientCursor
        ) as connection,
    ):
        connection.execute(SEED.encode())
        connection.execute("VACUUM (ANALYZE) jobs")
        connection.execute("ANALYZE job_logs")
        yield connection  # type: ignore[misc]


class Plan:
    """What a statement did: which indexes it used, how many rows of jobs it read, whether it read the whole table."""

    def __init__(self, root: dict[str, Any]) -> None:
        ran = [node for node in self._walk(root) if node["Actual Loops"]]
        scans = [node for node in ran if node.get("Relation Name") == "jobs" and "Scan" in node["Node Type"]]
        self.indexes = {node["Index Name"] for node in ran if "Index Name" in node}
        self.reads_whole_table = any(node["Node Type"] == "Seq Scan" for node in scans)
        self.rows_read = sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in scans
        )

    def _walk(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield node
        for child in node.get("Plans", []):
            yield from self._walk(child)


def plan_of(connection: psycopg.Connection[Any], name: str, mode: str, params: dict[str, Any]) -> Plan:
    """Run a statement of ours as the server would have it prepared, undo it, and return its plan."""
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(1) not in order:
            order.append(match.group(1))
        return f"${order.index(match.group(1)) + 1}"

    text = re.sub(r"%\((\w+)\)s", number, statement(name).decode()).replace("%%", "%")
    cursor = connection.cursor(row_factory=dict_row)
    cursor.execute(f"SET plan_cache_mode = force_{mode}_plan".encode())
    cursor.execute(f"PREPARE one AS {text}".encode())
    try:
        with connection.transaction(force_rollback=True):
            values = f" ({', '.join(['%s'] * len(order))})" if order else ""
            call = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE one{values}"
            row = cursor.execute(call.encode(), [params[key] for key in order]).fetchone()
    finally:
        cursor.execute("DEALLOCATE one")
    assert row is not None
    return Plan(row["QUERY PLAN"][0]["Plan"])


modes = pytest.mark.parametrize("mode", ["custom", "generic"])


@modes
@pytest.mark.parametrize("max_jobs", [1, 200])
def test_a_claim_reads_its_index_and_about_as_many_rows_as_it_takes(
    seeded: psycopg.Connection, mode: str, max_jobs: int
) -> None:
    params = {
        "types": ["email_send"],
        "max_jobs": max_jobs,
        "worker_id": uuid4(),
        "worker_name": "w",
        "lease_seconds": 30.0,
        **_start({}),
    }

    plan = plan_of(seeded, "claim_jobs", mode, params)

    assert "jobs_claim_idx" in plan.indexes
    assert not plan.reads_whole_table
    assert plan.rows_read <= 4 * max_jobs + 20


@modes
def test_a_claim_of_the_fifo_lane_reads_its_index(seeded: psycopg.Connection, mode: str) -> None:
    params = {
        "types": ["email_send"],
        "max_jobs": WAITING,
        "worker_id": uuid4(),
        "worker_name": "w",
        "lease_seconds": 30.0,
        **_start({}),
    }

    assert {"jobs_fifo_idx", "jobs_claim_idx"} <= plan_of(seeded, "claim_jobs", mode, params).indexes


@modes
def test_looking_for_lost_jobs_reads_the_index_of_leases(seeded: psycopg.Connection, mode: str) -> None:
    params = {"lease_seconds": 0.0, "stuck_seconds": 600.0, "max_jobs": 200}

    plan = plan_of(seeded, "list_lost_jobs", mode, params)

    assert plan.indexes == {"jobs_lease_idx"}
    assert plan.rows_read <= RUNNING


@modes
@pytest.mark.parametrize("number", [1, 200])
def test_looking_up_keys_reads_their_index(seeded: psycopg.Connection, mode: str, number: int) -> None:
    params = {"idempotency_keys": [f"key-{n}" for n in range(1, number + 1)]}

    plan = plan_of(seeded, "get_jobs_by_key", mode, params)

    assert plan.indexes == {"jobs_idempotency_key_idx"}
    assert plan.rows_read == number


@modes
@pytest.mark.parametrize("name", ["extend_leases", "release_jobs", "finish_jobs", "recover_jobs", "list_lost_leases"])
@pytest.mark.parametrize("number", [4, 200])
def test_writes_to_running_jobs_find_them_by_primary_key(
    seeded: psycopg.Connection, mode: str, name: str, number: int
) -> None:
    running = seeded.execute("SELECT id, lease_token FROM jobs WHERE status = 'processing'").fetchall()
    held = (running * number)[:number] if number < RUNNING else running + [(uuid4(), uuid4())] * (number - RUNNING)
    params = {
        "ids": [job_id for job_id, _ in held],
        "lease_tokens": [token for _, token in held],
        "lease_seconds": 30.0,
        "stuck_seconds": 600.0,
        "delays": [1.0] * number,
        "outcomes": msgspec.json.encode(
            [Outcome(id=job_id, lease_token=token, kind="completed") for job_id, token in held]
        ).decode(),
        "is_repeat": False,
    }

    plan = plan_of(seeded, name, mode, params)

    assert plan.indexes == {"jobs_pkey"}
    assert not plan.reads_whole_table
    assert plan.rows_read <= 4 * number + 2 * RUNNING


@modes
@pytest.mark.parametrize("name", ["get_job", "cancel_job", "list_job_logs"])
def test_reading_one_job_reads_one_row(seeded: psycopg.Connection, mode: str, name: str) -> None:
    row = seeded.execute("SELECT id FROM jobs WHERE status = 'queued' LIMIT 1").fetchone()
    assert row is not None
    params = {"id": row[0], "job_id": row[0], "actor": "test"}

    plan = plan_of(seeded, name, mode, params)

    assert not plan.reads_whole_table
    assert plan.rows_read <= 3


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ({}, "jobs_pkey"),
        ({"type": "email_send"}, "jobs_pkey"),
        ({"priority": "medium"}, "jobs_pkey"),
        ({"status": "completed"}, "jobs_status_idx"),
        ({"status": "cancelled"}, "jobs_status_idx"),
        ({"status": "queued"}, "jobs_status_idx"),
        ({"status": "completed", "type": "email_send", "priority": "medium"}, "jobs_status_idx"),
        ({"status": "processing"}, "jobs_lease_idx"),
    ],
)
def test_the_first_page_does_not_read_the_others(
    seeded: psycopg.Connection, wanted: dict[str, str], index: str
) -> None:
    params = {"status": None, "type": None, "priority": None, "page_size": 20, "first": 0, **wanted}

    plan = plan_of(seeded, "list_jobs", "custom", params)

    assert plan.indexes == {index}
    assert plan.rows_read <= 200


def test_a_page_of_nothing_is_not_looked_for(seeded: psycopg.Connection) -> None:
    params = {"status": "completed", "type": "unheard_of", "priority": None, "page_size": 20, "first": 0}

    assert plan_of(seeded, "list_jobs", "custom", params).rows_read == 0


def test_retention_with_nothing_to_remove_reads_no_young_job(seeded: psycopg.Connection) -> None:
    plan = plan_of(seeded, "prune_jobs", "custom", {"retention_seconds": 30 * 86_400.0, "max_jobs": 1000})

    assert not plan.reads_whole_table
    assert plan.rows_read == 0


@modes
def test_figures_read_delayed_jobs_only(seeded: psycopg.Connection, mode: str) -> None:
    plan = plan_of(seeded, "read_figures", mode, {})

    assert plan.indexes == {"jobs_later_idx"}
    assert plan.rows_read == WAITING / 2


@modes
def test_the_nearest_future_job_is_one_look(seeded: psycopg.Connection, mode: str) -> None:
    params = {
        "types": ["unheard_of"],
        "max_jobs": 10,
        "worker_id": uuid4(),
        "worker_name": "w",
        "lease_seconds": 30.0,
        **_start({}),
    }

    plan = plan_of(seeded, "claim_jobs", mode, params)

    assert "jobs_later_idx" in plan.indexes
    assert plan.rows_read <= WAITING / 2 + 201
