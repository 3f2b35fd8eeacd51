"""What the command says about itself, and about mistakes: one line, no traceback, a sane exit code."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobqueue import __version__
from jobqueue.cli import cli
from jobqueue.settings import describe_settings
from tests.cli.conftest import Run

COMMANDS = ("up", "api", "worker", "migrate", "enqueue", "jobs", "doctor", "test", "version")
NOWHERE = "postgresql://u:hidden@127.0.0.1:9/nowhere"


def test_help_lists_every_command_and_setting(run: Run) -> None:
    done = run("--help")

    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"│ {command} +\w", done.out), command
    text = " ".join(done.out.split())
    for variable, _, meaning in describe_settings():
        assert variable in text
        assert " ".join(meaning.split()) in text


def test_every_command_and_option_says_what_it_is_for(run: Run) -> None:
    paths = [(name,) for name in COMMANDS] + [("jobs", name) for name in ("list", "show", "logs", "cancel")]
    for path in paths:
        done = run(*path, "--help")
        assert done.code == 0
        assert f"Usage: jobqueue {' '.join(path)}" in done.out
    for command in commands(cli):
        assert (command.help or "").rstrip().endswith("."), command.name
        for option in command.params:
            if isinstance(option, click.Option):
                assert (option.help or "").endswith("."), (command.name, option.name)


def commands(group: click.Group) -> Iterator[click.Command]:
    """Return all commands below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


def test_without_a_command_help_is_shown(run: Run) -> None:
    assert "Usage: jobqueue" in run().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frobnicate"], r"There is no command 'frobnicate': use one of up, api, .*\. See `jobqueue --help`\."),
        (["job"], r"There is no command 'job': did you mean jobs\? See `jobqueue --help`\."),
        (["jobs", "cancle"], r"There is no command 'cancle': did you mean cancel\? See `jobqueue jobs --help`\."),
        (["jobs", "show", "nope"], r"Invalid value for 'ID': 'nope' is not a valid UUID\. See `jobqueue jobs show .*"),
        (["jobs", "show"], r"Missing argument 'ID'\. See .*"),
        (["jobs", "list", "--status", "done"], r"Invalid value for '--status': 'done' is not one of 'queued', .*"),
        (["jobs", "list", "--page", "0"], r"Invalid value for '--page': 0 is not in the range .*"),
        (["enqueue"], r"Missing argument 'TYPE'\. See .*"),
        (["enqueue", "email_send", "--max-attempts", "11"], r"Invalid value for '--max-attempts': 11 is not .*"),
        (["worker", "--concurency", "3"], r"No such option:? '?--concurency'?.*--concurrency.*"),
    ],
)
def test_wrong_command_line_is_one_line_and_code_2(run: Run, arguments: list[str], line: str) -> None:
    done = run(*arguments)

    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(line + "\n", done.err), done.err


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"WORKER_CONCURRENCY": "many"}, "WORKER_CONCURRENCY='many' is not allowed: use a whole number from 1 to 1000"),
        ({"LOG_LEVEL": "LOUD"}, "LOG_LEVEL='LOUD' is not allowed: use one of DEBUG, INFO, WARNING, ERROR"),
        (
            {"DATABASE_URL": "mysql://u:hidden@h/d"},
            "DATABASE_URL='mysql://u:***@h/d' is not allowed: use postgresql://user:password@host:port/database",
        ),
    ],
)
@pytest.mark.parametrize("command", [["worker"], ["jobs", "list"], ["api"]])
def test_bad_setting_is_one_line_and_code_1(run: Run, command: list[str], variables: dict[str, str], line: str) -> None:
    done = run(*command, **variables)

    assert (done.code, done.err) == (1, line + "\n")


def test_all_bad_settings_are_told_at_once(run: Run) -> None:
    done = run("migrate", API_PORT="99999", RETENTION_DAYS="soon")

    assert done.code == 1
    assert [line.split("=")[0] for line in done.err.splitlines()] == ["API_PORT", "RETENTION_DAYS"]


def test_bad_dotenv_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# fine\nDATABASE_URL postgresql://x\n")

    done = run("jobs", "list")

    assert (done.code, done.err) == (
        1,
        ".env line 2: expected NAME=value, got 'DATABASE_URL postgresql://x'\n",
    )


@pytest.mark.parametrize("command", [["jobs", "list"], ["enqueue", "email_send"], ["migrate"], ["migrate", "--check"]])
def test_database_that_is_away_is_one_line_without_the_password(run: Run, command: list[str]) -> None:
    done = run(*command, DATABASE_URL=NOWHERE)

    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "Connection refused" in done.err
    assert "hidden" not in done.err


@pytest.mark.parametrize("command", ["jobs list", "doctor", "migrate", "worker"])
def test_connection_string_that_cannot_be_read_is_one_line_without_the_password(spawn: Run, command: str) -> None:
    done = spawn(*command.split(), DATABASE_URL="postgresql://u:hidden@[x/d", REDIS_URL="redis://127.0.0.1:9")

    assert done.code == 1
    assert "hidden" not in done.out + done.err
    assert len(done.err.splitlines()) == (0 if command == "doctor" else 1)


def test_executor_module_that_fails_is_one_line(spawn: Run, tmp_path: Path) -> None:
    (tmp_path / "broken_jobs.py").write_text("import nothing_of_that_name\n")

    done = spawn("worker", JOBQUEUE_EXECUTORS="broken_jobs", DATABASE_URL=NOWHERE)

    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        "JOBQUEUE_EXECUTORS names 'broken_jobs', which cannot be imported: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


def test_database_without_schema_says_what_to_run(run: Run, empty_database_url: str) -> None:
    listed = run("jobs", "list", DATABASE_URL=empty_database_url)
    checked = run("migrate", "--check", DATABASE_URL=empty_database_url)

    assert listed.code == 1
    assert listed.err.endswith("has no schema yet: run `jobqueue migrate`\n")
    assert (checked.code, checked.out) == (1, "The schema is at nothing; this version needs 0003.\n")


def test_version_is_quick(spawn: Run) -> None:
    spawn("version")  # byte-compiles what a first start has to
    times = []
    for _ in range(3):
        began = time.monotonic()
        done = spawn("version")
        times.append(time.monotonic() - began)

    assert done.out.startswith(f"jobqueue {__version__} (Python ")
    assert min(times) < 0.5


def test_help_and_version_load_neither_the_web_framework_nor_migrations() -> None:
    program = (
        "import sys; from jobqueue.cli import main\n"
        "try: main([sys.argv[1]])\n"
        "except SystemExit: print([m for m in ('litestar','alembic','sqlalchemy','uvicorn') if m in sys.modules])"
    )
    for argument in ("--help", "version"):
        done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", argument
