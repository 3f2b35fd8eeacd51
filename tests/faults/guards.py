"""Each scenario is seen red: a copy of the code with one guard taken out, and the scenario that must notice.

``patches/<name>.patch`` begins with lines that say which guard it takes out and which scenarios catch its loss.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.faults.processes import ROOT

FOLDER = Path(__file__).with_name("patches")


class Guard(NamedTuple):
    """A guard of the product. *size* is how much of the scenarios it takes to notice its loss."""

    name: str
    what: str
    scenarios: list[str]
    size: str
    patch: Path


def load() -> list[Guard]:
    """Return all guards."""
    found = []
    for patch in sorted(FOLDER.glob("*.patch")):
        head = dict(re.findall(r"^(guard|scenarios|size): (.*)$", patch.read_text(encoding="utf-8"), re.MULTILINE))
        found.append(Guard(patch.stem, head["guard"], head["scenarios"].split(), head.get("size", "0.1"), patch))
    return found


def applies(guard: Guard) -> bool:
    """Tell whether the patch still fits the code."""
    command = ["patch", "-s", "-p1", "--dry-run", "-f", "-i", str(guard.patch)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def main(names: list[str]) -> int:
    """Take out guards (all, when none is named), one at a time. Returns 0 when every loss was noticed."""
    chosen = [guard for guard in load() if not names or guard.name in names]
    missed = [guard for guard in chosen if not is_noticed(guard)]
    print(f"{len(chosen) - len(missed)} losses noticed, {len(missed)} missed")
    return 1 if missed or not chosen else 0


def is_noticed(guard: Guard) -> bool:
    """Run the guard's scenarios on a copy of the code without it, and print what they found."""
    with tempfile.TemporaryDirectory(prefix="jqg-", dir="/tmp") as folder:
        copy = Path(folder) / "code"
        for part in ("jobqueue", "sql", "migrations", "tests", "web"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        subprocess.run(["patch", "-s", "-p1", "-i", str(guard.patch)], cwd=copy, check=True)
        are_red = [_is_red(guard, scenario, copy) for scenario in guard.scenarios]
    return all(are_red)


def _is_red(guard: Guard, scenario: str, copy: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", scenario, "--size", guard.size, "--seed", "1"],
        cwd=copy,
        check=False,
        capture_output=True,
        text=True,
    )
    told = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
    is_red = done.returncode == 1 and bool(told)
    first = (told or [done.stdout[-200:] + done.stderr[-300:]])[0][:120]
    print(f"{'noticed' if is_red else 'MISSED '} {guard.name:24} {scenario:28} {first}", flush=True)
    return is_red
