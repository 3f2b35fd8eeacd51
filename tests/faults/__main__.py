"""``python -m tests.faults``: break a real system in every way of the plan, and judge it from outside."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults import guards
from tests.faults.scenario import Scenario, Verdict, load, run
from tests.faults.world import prepare_template


def main() -> int:
    """Run what the command line says. Returns 0 when nothing was violated."""
    scenarios = load()
    arguments = parse(scenarios)
    if arguments.list:
        for which in scenarios.values():
            rows = ", ".join(map(str, which.rows))
            print(f"{'short' if which.is_short else '     '}  {which.name:34} row {rows:8} {which.purpose}")
        return 0
    if arguments.guards is not None:
        return guards.main(arguments.guards)
    unknown = [name for name in arguments.names if name not in scenarios]
    if unknown:
        print(f"There is no scenario {unknown[0]}; see --list", file=sys.stderr)
        return 2
    chosen = [scenarios[name] for name in arguments.names] or [
        which for which in scenarios.values() if which.is_short or not arguments.short
    ]
    size = arguments.size if arguments.size is not None else (0.1 if arguments.short else 1.0)
    return asyncio.run(run_all(chosen, arguments.seed, size, arguments.keep))


def parse(scenarios: dict[str, Scenario]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="scenario", help="only these (see --list)")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument("--short", action="store_true", help="only those of the short form, and less of each")
    parser.add_argument("--size", type=float, help="how much of each: 1 is the full form (default), 0.1 the short one")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeat a run's random choices")
    parser.add_argument("--keep", type=Path, help="copy the logs and the ledger of each scenario into this folder")
    parser.add_argument(
        "--guards", nargs="*", metavar="guard", help="take guards out, one at a time, and want their scenarios red"
    )
    return parser.parse_args()


async def run_all(chosen: list[Scenario], seed: int, size: float, keep: Path | None) -> int:
    """Run scenarios one after the other and print a line for each."""
    print(f"seed {seed}, size {size:g}", flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="jqf-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        prepare_template(Path(folder))
        for which in chosen:
            verdict = await run(which, Path(folder), seed, size, keep=keep and keep / which.name)
            verdicts.append(verdict)
            print(line(verdict), flush=True)
            for violation in verdict.violations[:20]:
                print(f"    {violation}", flush=True)
    red = [verdict for verdict in verdicts if verdict.violations]
    skipped = [verdict for verdict in verdicts if verdict.cannot]
    print(f"{len(verdicts) - len(red) - len(skipped)} held, {len(red)} violated, {len(skipped)} not possible here")
    if red:
        print(f"repeat with --seed {seed}: {' '.join(verdict.scenario.name for verdict in red)}")
    return 1 if red else 0


def line(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    word = "SKIPPED " if verdict.cannot else "VIOLATED" if verdict.violations else "held    "
    rows = ", ".join(map(str, verdict.scenario.rows))
    return f"{word} {verdict.scenario.name:34} row {rows:8} {verdict.seconds:6.1f} s  {verdict.cannot}"


if __name__ == "__main__":
    sys.exit(main())
