"""``jobqueue test``: everything that must hold before a change is accepted. Works in a checkout only."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import rich_click as click

from jobqueue.assets import PACKAGE
from jobqueue.errors import SetupError

_CHECKS = (
    ("format", ["ruff", "format", "--check", "."]),
    ("lint", ["ruff", "check", "."]),
    ("types", ["mypy"]),
    ("imports", ["importlinter.cli", "lint"]),
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def test(pytest_arguments: tuple[str, ...]) -> int:
    """Run format, lint, type and import checks, audit the dependencies, then run the whole test suite with coverage.

    Needs nothing running: tests start their own PostgreSQL and Redis-protocol server. TEST_DATABASE_URL names a
    server to use instead (PostgreSQL 14 to 18). Arguments go to pytest, and then only pytest runs.
    """
    checkout = PACKAGE.parent
    if not (checkout / "tests").is_dir():
        raise SetupError("`jobqueue test` works in a checkout of the repository only.")
    if find_spec("pytest") is None:
        raise SetupError("The test tools are missing: run `python3 -m jobqueue test` with the system's Python.")
    failed = [] if pytest_arguments else [name for name, command in _CHECKS if not _passes(name, command, checkout)]
    if failed:
        click.echo(f"Failed before the tests: {', '.join(failed)}", err=True)
    if not pytest_arguments and not _audit(checkout):
        failed.append("audit")
    tests = _run_pytest(list(pytest_arguments), checkout)
    return tests or (1 if failed else 0)


def _passes(name: str, command: list[str], checkout: Path) -> bool:
    done = subprocess.run([sys.executable, "-m", *command], cwd=checkout, check=False, capture_output=True, text=True)
    click.echo(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}")
    if done.returncode:
        click.echo(done.stdout + done.stderr)
    return done.returncode == 0


def _audit(checkout: Path) -> bool:
    """Look up the locked dependencies in the database of known vulnerabilities (PyPI's, over the network)."""
    command = ["pip_audit", "-r", "deploy/requirements.lock", "--disable-pip", "--timeout", "5", "-f", "json"]
    done = subprocess.run([sys.executable, "-m", *command], cwd=checkout, check=False, capture_output=True, text=True)
    try:
        dependencies = msgspec.json.decode(done.stdout)["dependencies"]
    except (msgspec.DecodeError, KeyError):
        dependencies = []
    looked_up = [dependency for dependency in dependencies if "vulns" in dependency]
    if not looked_up:
        click.echo("audit: not possible here, the database of known vulnerabilities cannot be reached")
        return True
    affected = [dependency for dependency in looked_up if dependency["vulns"]]
    for dependency in affected:
        names = ", ".join(vulnerability["id"] for vulnerability in dependency["vulns"])
        click.echo(f"audit: {dependency['name']} {dependency['version']} has known vulnerabilities: {names}")
    click.echo(f"audit: {'FAILED' if affected else 'ok'} ({len(looked_up)} of {len(dependencies)} looked up)")
    return not affected


def _run_pytest(arguments: list[str], checkout: Path) -> int:
    everything = ["-n", str(max(2, len(os.sched_getaffinity(0)))), "--cov", "--cov-report=term", "-q"]
    command = [sys.executable, "-m", "pytest", *(arguments or everything)]
    return subprocess.run(command, cwd=checkout, check=False).returncode
