"""``enqueue``, ``jobs``, ``migrate``, ``doctor`` and ``worker`` on a real database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue.ids import new_id
from jobqueue.settings import Settings
from tests.cli.conftest import COMMAND, ROOT, Run
from tests.server.conftest import started


def enqueue(run: Run, *arguments: str, **more: str) -> dict[str, Any]:
    """Create a job and return it."""
    done = run("enqueue", *arguments, "--json", **more)
    assert done.code == 0, done.err
    job: dict[str, Any] = json.loads(done.out)
    return job


def test_enqueue_takes_every_field(run_here: Run) -> None:
    done = run_here(
        *("enqueue", "email_send", '{"to": "ann@example.com", "n": 12345678901234567890}', "--priority", "high"),
        *("--queue", "fifo", "--key", "k", "--max-attempts", "2", "--run-at", "2035-01-31T13:00:00+01:00"),
    )

    job = json.loads(done.out)
    assert done.code == 0
    assert done.out.count("\n") > 10, "made for reading"
    assert job["payload"] == {"to": "ann@example.com", "n": 12345678901234567890}
    assert (job["type"], job["priority"], job["queue"], job["max_attempts"]) == ("email_send", "high", "fifo", 2)
    assert (job["idempotency_key"], job["next_run_at"]) == ("k", "2035-01-31T12:00:00Z")


def test_enqueue_reads_the_payload_from_stdin(run_here: Run) -> None:
    assert enqueue(run_here, "email_send", "-", stdin='{"to": "bob@example.com"}\n')["payload"] == {
        "to": "bob@example.com"
    }


async def test_key_means_the_same_here_and_over_http(
    spawn_here: Run, settings: Settings, registry: dict[str, object]
) -> None:
    first = enqueue(spawn_here, "email_send", '{"to": "a"}', "--key", "shared")

    again = spawn_here("enqueue", "email_send", '{"to": "a"}', "--key", "shared", "--json")
    other = spawn_here("enqueue", "email_send", '{"to": "b"}', "--key", "shared", "--json")
    async with started(settings) as client:
        body = {"type": "email_send", "payload": {"to": "a"}, "idempotency_key": "shared"}
        answer = await client.post("/api/v1/jobs", json=body)

    assert json.loads(again.out)["id"] == json.loads(other.out)["id"] == answer.json()["id"] == first["id"]
    assert again.err == "This key was used before, and this is the job that owns it.\n"
    assert other.err == "This key was used before, and this is the job that owns it; it came with another body then.\n"
    assert answer.headers["x-idempotency-replay"] == "true"
    assert "x-idempotency-mismatch" not in answer.headers


def test_enqueue_refuses_what_the_api_refuses(run_here: Run, sql: psycopg.Connection) -> None:
    refusals = {
        ("email",): "There is no type 'email': use one of email_send, payment_retry, report_generate",
        ("email_send", "--queue", "nope"): "There is no queue 'nope': use one of default, fifo",
        ("email_send", "[1]"): "payload is a list: use a JSON object",
        ("email_send", "{to: 1}"): "The payload is not JSON: ",
        ("email_send", '{"n": 1e999}'): "The payload is not JSON: Number out of range",
        ("email_send", "--run-at", "tomorrow"): 'run_at is "tomorrow": use an RFC 3339 time with its offset',
        ("email_send", "--key", ""): 'idempotency_key is "": use 1 to 255 characters',
    }
    for arguments, line in refusals.items():
        done = run_here("enqueue", *arguments)
        assert done.code == 1
        assert len(done.err.splitlines()) == 1
        assert done.err.startswith(line)

    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_own_job_type_is_checked_here_too(spawn_here: Run, tmp_path: Path) -> None:
    (tmp_path / "own_jobs.py").write_text(
        "import msgspec\nfrom jobqueue import executor\n"
        "class Order(msgspec.Struct):\n    qty: int\n"
        "@executor('order')\ndef order(job_id, payload: Order): ...\n"
    )

    fine = enqueue(spawn_here, "order", '{"qty": 1}', JOBQUEUE_EXECUTORS="own_jobs")
    refused = spawn_here("enqueue", "order", '{"qty": "x"}', JOBQUEUE_EXECUTORS="own_jobs")

    assert fine["type"] == "order"
    assert (refused.code, refused.err) == (1, "payload.qty: Expected `int`, got `str`\n")


def test_list_show_logs_and_cancel(run_here: Run) -> None:
    low = enqueue(run_here, "email_send", "--priority", "low")
    report = enqueue(run_here, "report_generate")

    listed = run_here("jobs", "list")
    filtered = run_here("jobs", "list", "--type", "email_send", "--priority", "low", "--status", "queued", "--json")
    cancelled = run_here("jobs", "cancel", low["id"])
    shown = run_here("jobs", "show", low["id"], "--json")
    logs = run_here("jobs", "logs", low["id"])
    logs_json = run_here("jobs", "logs", low["id"], "--json")

    assert [line.split()[0] for line in listed.out.splitlines()] == [report["id"], low["id"]]
    assert listed.out.splitlines()[1].split()[1:4] == ["queued", "low", "0/5"]
    assert listed.err == "2 of 2\n"
    assert [json.loads(line)["id"] for line in filtered.out.splitlines()] == [low["id"]]
    assert json.loads(cancelled.out)["status"] == json.loads(shown.out)["status"] == "cancelled"
    assert logs.out.count("\n") == 1
    assert "warning  Cancelled by " in logs.out
    assert "(command line) while queued" in json.loads(logs_json.out)["message"]


def test_what_cannot_be_done_is_one_line_and_code_1(run_here: Run, sql: psycopg.Connection) -> None:
    row = sql.execute(
        "INSERT INTO jobs (type, status, completed_at) VALUES ('email_send', 'completed', now()) RETURNING id"
    ).fetchone()
    assert row is not None
    unknown = str(new_id())

    for command in ("show", "logs", "cancel"):
        done = run_here("jobs", command, unknown)
        assert (done.code, done.out, done.err) == (1, "", f"There is no job {unknown}.\n")
    done = run_here("jobs", "cancel", str(row[0]))
    assert done.code == 1
    assert done.err.startswith(f"Job {row[0]} cannot be cancelled: it is completed.")
    assert len(done.err.splitlines()) == 1


def test_unknown_type_in_a_listing_lists_the_known_ones(run_here: Run, sql: psycopg.Connection) -> None:
    sql.execute("INSERT INTO job_types (name) VALUES ('email_send')")

    done = run_here("jobs", "list", "--type", "emial_send")

    assert (done.code, done.err) == (1, "There is no type 'emial_send', nor any job of it: use one of email_send\n")


def test_reader_that_goes_away_is_no_error(environ: dict[str, str], database_url: str, sql: psycopg.Connection) -> None:
    sql.execute(
        "INSERT INTO jobs (type, payload) SELECT 'x', jsonb_build_object('n', n) FROM generate_series(1, 999) n"
    )

    command = " ".join(COMMAND)
    script = f"{command} jobs list --page-size 1000 --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout.splitlines()[0])["payload"] == {"n": 999}
    assert done.stdout.splitlines()[1] == "141"
    assert done.stderr == ""


def test_database_url_from_dotenv(run: Run, tmp_path: Path, database_url: str) -> None:
    (tmp_path / ".env").write_text(f"DATABASE_URL='{database_url}'\n")

    assert enqueue(run, "email_send")["status"] == "queued"


def test_migrate_makes_the_schema_and_says_where_it_stands(run: Run, empty_database_url: str) -> None:
    first = run("migrate", DATABASE_URL=empty_database_url)
    second = run("migrate", DATABASE_URL=empty_database_url)
    check = run("migrate", "--check", DATABASE_URL=empty_database_url)

    assert (first.code, first.out) == (0, "The schema went from nothing to 0003.\n")
    assert (second.code, check.code) == (0, 0)
    assert second.out == check.out == "The schema is at 0003; this version needs 0003.\n"


def test_doctor_tells_what_is_right_and_what_is_wrong(spawn_here: Run, empty_database_url: str) -> None:
    well = spawn_here("doctor")
    ill = spawn_here("doctor", "--json", DATABASE_URL=empty_database_url, REDIS_URL="redis://127.0.0.1:9/0")

    assert (well.code, well.err) == (0, "")
    assert "ok      schema is at 0003" in well.out
    assert "ok      job type report_generate: jobqueue.executors.builtin, at most 120 s an attempt" in well.out
    assert "note    no worker is running: start `jobqueue worker`" in well.out
    findings = [json.loads(line) for line in ill.out.splitlines()]
    assert (ill.code, ill.err) == (1, "")
    assert {"verdict": "FAILED", "text": "schema is at nothing, this version needs 0003: run `jobqueue migrate`"} in (
        findings
    )
    assert [entry["verdict"] for entry in findings if "Redis" in entry["text"]] == ["note"]


@pytest.mark.parametrize("command", [["-m", "jobqueue", "worker", "--concurrency", "2"], ["-m", "jobqueue.worker"]])
def test_worker_runs_jobs_and_stops_with_0(
    spawn_here: Run, database_url: str, redis_url: str, sql: psycopg.Connection, tmp_path: Path, command: list[str]
) -> None:
    sql.execute("INSERT INTO jobs (type) VALUES ('report_generate')")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SIMULATE_DELAY_SCALE": "0", "METRICS_PORT": "0"}
    worker = subprocess.Popen(
        [sys.executable, *command],
        env={**environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while sql.execute("SELECT status::text FROM jobs").fetchone() != ("completed",):
            assert time.monotonic() < deadline
            assert worker.poll() is None
            time.sleep(0.02)
        seen = spawn_here("doctor").out
    finally:
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=30)

    assert worker.returncode == 0, err
    assert f":{worker.pid} (0/{'2' if '--concurrency' in command else '4'} running)" in seen
