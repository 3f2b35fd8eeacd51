"""Where the folders beside the code are: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent


@cache
def folder(name: str) -> Path:
    """Return the folder *name* (``sql``, ``migrations`` or ``web``).

    A checkout wins over the wheel's copy: an editable install copies the folder once and never again.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    for candidate in (PACKAGE.parent / name, PACKAGE / name):
        if candidate.is_dir() and (candidate.parent / "pyproject.toml").exists() == (candidate.parent != PACKAGE):
            return candidate
    raise FileNotFoundError(f"the folder {name!r} is missing from this installation of jobqueue")
