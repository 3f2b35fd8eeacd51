"""The short form of the fault harness. ``python -m tests.faults`` runs all of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import guards
from tests.faults.scenario import Scenario, load, run
from tests.faults.world import prepare_template

SCENARIOS = load()
SHORT = [which for which in SCENARIOS.values() if which.is_short]


@pytest.fixture(scope="session")
def fault_template(short_tmp: Path) -> Path:
    """A migrated cluster to copy."""
    folder = short_tmp / "fault-template"
    folder.mkdir()
    short_tmp.chmod(0o755)
    prepare_template(folder)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", SHORT, ids=lambda which: which.name)
async def test_short(which: Scenario, fault_template: Path) -> None:
    verdict = await run(which, fault_template, random.randrange(10**6), 0.1, patience=4.0)
    if verdict.cannot:
        pytest.skip(f"{which.name}: {verdict.cannot}")
    assert not verdict.violations, f"seed {verdict.seed}: " + "\n".join(verdict.violations)


def test_every_row_of_the_plan_has_a_scenario() -> None:
    rows = {row for which in SCENARIOS.values() for row in which.rows}
    assert rows == set(range(1, 43)) - {40}  # the index check follows every scenario


def test_every_guard_names_a_scenario_and_still_stands_where_its_patch_says() -> None:
    found = guards.load()
    assert len(found) > 20
    for guard in found:
        assert set(guard.scenarios) <= set(SCENARIOS), guard.name
        assert guards.applies(guard), f"{guard.patch.name} does not fit the code any more"
