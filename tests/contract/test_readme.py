"""Every example of the README is run as printed, and what it prints is what the README shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobqueue.embedded.binaries import postgres_bin
from tests.contract.readme import ROOT, Block, blocks
from tests.contract.system import System, until

# The built-in types without their dice and their pauses, so that there is one outcome to compare with.
CALM = {"SIMULATE_FAILURES": "false", "SIMULATE_DELAY_SCALE": "0"}
VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "<time>"),
    (r"msg_[0-9a-f]{8}", "<message id>"),
    (r"worker \S+:\d+:", "worker <name>:"),
    (r"in \d+(\.\d+)? s", "in <seconds> s"),
)


def masked(value: Any) -> Any:
    """Return *value* with everything that differs from run to run replaced."""
    if isinstance(value, dict):
        return {
            key: "<varies>" if key == "request_id" or (key.startswith("avg_") and part is not None) else masked(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [masked(part) for part in value]
    if isinstance(value, str):
        for pattern, name in VARYING:
            value = re.sub(pattern, name, value)
    return value


def compare(printed: str, expected: Block) -> None:
    """Check what a command printed against the block that follows it."""
    where = f"README line {expected.line}"
    printed = printed.replace("\r", "")
    if expected.language == "json":
        assert masked(json.loads(printed)) == masked(json.loads(expected.text)), where
    elif expected.language == "http":
        head, body = printed.split("\n\n", 1)
        expected_head, expected_body = expected.text.split("\n\n", 1)
        assert {masked(line) for line in expected_head.splitlines()} <= {masked(line) for line in head.splitlines()}, (
            where
        )
        assert head.splitlines()[0] == expected_head.splitlines()[0], where
        assert masked(json.loads(body)) == masked(json.loads(expected_body)), where
    else:
        assert printed.strip() == expected.text.strip(), where


def run_examples(system: System, title: str) -> None:
    """Run a section's bash blocks in order, each with whatever still runs finished first."""
    found = blocks(title)
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language == "bash":
            system.settle()
            printed = system.shell(block.text)
            if following is not None and following.language in {"json", "http", "text"}:
                compare(printed, following)


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    kinds = {
        "Start": ["sh", "sh"],
        "Use": ["bash", "http", "bash", "text", *["bash", "json"] * 5],
        "Your own job types": ["python", "sh", "toml", "bash", "json"],
        "Command line": ["bash"],
        "From Python": ["python"],
        "From SQL": ["sql"],
        "States": ["mermaid"],
    }

    for title, languages in kinds.items():
        assert [block.language for block in blocks(title)] == languages, title
    fences = len(re.findall(r"^```\w+$", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert fences == sum(len(languages) for languages in kinds.values())


def test_start_use_command_line_and_sql(short_tmp: Path) -> None:
    system = System(short_tmp / "reader", ROOT, CALM)
    up, test = blocks("Start")
    assert test.text.startswith("python3 -m jobqueue test ")  # running it here would never end

    with system.started(up.text):
        assert (system.home / ".jobqueue").is_dir()
        assert "API docs    http://localhost:" in system.printed
        run_examples(system, "Use")
        run_examples(system, "Command line")
        assert system.query("SELECT status, priority FROM jobs WHERE idempotency_key = 'welcome-bob'")
        printed = run_python(system, blocks("From Python")[0].text)
        assert re.fullmatch(r"[0-9a-f-]{36} False", printed.strip())
        assert system.query("SELECT count(*) FROM jobs WHERE payload ? 'page'") == [(1000,)]
        run_sql(system, blocks("From SQL")[0].text)
        system.settle()
        done = system.query("SELECT status FROM jobs WHERE payload ->> 'to' = 'carl@example.com'")
        assert done == [("completed",)]
        assert "The latest failure; null once completed." in run_sql(system, r"\d+ jobs")


def run_python(system: System, text: str) -> str:
    """Run a program beside the started system and return what it printed."""
    environment = {**os.environ, "DATABASE_URL": system.database_url}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_sql(system: System, text: str) -> str:
    """Feed *text* to psql; any error is a failure."""
    command = [str(postgres_bin() / "psql"), "-X", "-v", "ON_ERROR_STOP=1", system.database_url]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_job_types(short_tmp: Path) -> None:
    source, up, _, _, _ = blocks("Your own job types")
    folder = short_tmp / "own"
    package = folder / "mypackage"
    package.mkdir(parents=True)
    (package / "jobs.py").write_text(source.text)
    system = System(short_tmp / "writer", folder, CALM)

    with system.started(up.text):
        run_examples(system, "Your own job types")
        resized = create(system, "image_resize", {"url": "https://example.com/a.png"})
        hopeless = create(system, "image_resize", {"url": "https://example.com/a.txt"})
        slow = create(system, "image_resize", {"url": "ftp://example.com/a.png"})
        webhook = create(system, "webhook", {"b": 1, "a": 2})
        checksum = create(system, "checksum", {"text": "abc"})
        system.settle()

        job = read(system, resized)
        assert (job["status"], job["result"]) == ("completed", {"url": "https://example.com/a.png", "width": 800})
        assert "resizing https://example.com/a.png" in [line["message"] for line in job["logs"]]
        job = read(system, hopeless)
        assert (job["status"], job["attempts"], job["error"]) == ("failed", 1, "not a picture")
        job = read(system, slow)
        assert (job["status"], job["error"]) == ("queued", "the mirror is slow")
        assert "next attempt in 60.0 s" in job["logs"][-1]["message"]
        assert read(system, webhook)["result"] == {"job": webhook, "seen": ["a", "b"]}
        assert read(system, checksum)["result"]["sha256"].startswith("ba7816bf")


def create(system: System, job_type: str, payload: dict[str, Any]) -> str:
    """Create a job over HTTP and return its id."""
    body = json.dumps({"type": job_type, "payload": payload})
    url = "localhost:8000/api/v1/jobs"
    job = json.loads(system.shell(f"curl -sf {url} -H 'Content-Type: application/json' -d '{body}'"))
    return str(job["id"])


def read(system: System, job_id: str) -> dict[str, Any]:
    """Read a job over HTTP."""
    found: dict[str, Any] = json.loads(system.shell(f"curl -sf localhost:8000/api/v1/jobs/{job_id}"))
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that holds ``mypackage`` as an installer would leave it: code and metadata with the entry point."""
    source, _, entry, _, _ = blocks("Your own job types")
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "jobs.py").write_text(source.text)
    groups = tomllib.loads(entry.text)["project"]["entry-points"]
    metadata = tmp_path / "mypackage-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_own_job_types_by_entry_point(
    installed: Path, database_url: str, redis_url: str, sql: psycopg.Connection
) -> None:
    environ = {
        **os.environ,
        **CALM,
        "PYTHONPATH": f"{installed}:{ROOT}",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "METRICS_PORT": "0",
    }
    command = [sys.executable, "-m", "jobqueue"]
    enqueue = [*command, "enqueue", "checksum", '{"text": "abc"}']
    subprocess.run(enqueue, env=environ, check=True, capture_output=True, cwd="/")

    worker = subprocess.Popen([*command, "worker"], env=environ, cwd="/", stderr=subprocess.DEVNULL)
    try:
        until(
            lambda: sql.execute("SELECT 1 FROM jobs WHERE status = 'completed' AND result ? 'sha256'").fetchone(),
            lambda: str(sql.execute("SELECT status, error FROM jobs").fetchall()),
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(20)

    assert code == 0
