"""The command as a user has it: a process of its own, with this test's servers in its environment."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from jobqueue.cli import main

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "jobqueue"]


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has set nothing, in an empty working folder."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PWD": str(tmp_path)}


@pytest.fixture
def spawn(environ: dict[str, str], tmp_path: Path) -> Run:
    """Run ``jobqueue`` with arguments; keyword arguments are environment variables, *stdin* apart."""

    def run_command(*arguments: str, stdin: str = "", **variables: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**environ, **variables},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run_command


@pytest.fixture
def run(
    registry: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """As ``spawn``, inside this process: a new one for each of many commands would take most of the time."""
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: str, stdin: str = "", **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        printed = capsys.readouterr()
        return Done(int(ended.value.code or 0), printed.out, printed.err)

    return run_command


@pytest.fixture
def run_here(run: Run, database_url: str, redis_url: str) -> Run:
    """As ``run``, with this test's own servers."""
    return partial(run, DATABASE_URL=database_url, REDIS_URL=redis_url)


@pytest.fixture
def spawn_here(spawn: Run, database_url: str, redis_url: str) -> Run:
    """As ``spawn``, with this test's own servers."""
    return partial(spawn, DATABASE_URL=database_url, REDIS_URL=redis_url)
