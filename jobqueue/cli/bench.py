"""``jobqueue bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from jobqueue.errors import SetupError


@click.command()
@click.argument("cases", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Tell which cases there are, and run nothing.")
@click.option("--runs", type=click.IntRange(1, 20), default=3, show_default=True, help="Runs of each case.")
@click.option("--quick", is_flag=True, help="A hundredth of the work: shows that everything runs, measures little.")
@click.option("--peers", is_flag=True, help="Measure PgQueuer and Procrastinate too (pip install 'jobqueue[bench]').")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=400, show_default=True, help="Slots of a worker.")
@click.option("--database-url", help="A PostgreSQL whose user may create databases; its own server unless given.")
@click.option("--redis-url", help="The Redis-protocol server to use with --database-url.")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Also write everything to this file."
)
def bench(
    cases: tuple[str, ...],
    only_list: bool,
    runs: int,
    quick: bool,
    peers: bool,
    concurrency: int,
    database_url: str | None,
    redis_url: str | None,
    json_path: Path | None,
) -> int:
    """Measure jobqueue beside yardsticks, each in databases of its own that are dropped again.

    Runs all CASES unless some are named; a name may be the beginning of several (`drain`).
    """
    from jobqueue.bench.case import CASES
    from jobqueue.bench.machine import facts
    from jobqueue.bench.report import document, table
    from jobqueue.bench.runner import run_cases
    from jobqueue.bench.scratch import Scratch, embedded_scratch

    if only_list:
        for case in CASES.values():
            click.echo(f"{case.name:<16} {case.title}")
        return 0
    names = _chosen(cases, list(CASES))
    options: dict[str, Any] = {"size": 0.01 if quick else 1.0, "with_peers": peers, "concurrency": concurrency}

    def measure(scratch: Scratch) -> int:
        results = run_cases(scratch, names, 1 if quick else runs)
        click.echo(table(results))
        if json_path is not None:
            json_path.write_bytes(document(facts(scratch), results))
        return 1 if any(result.error for result in results) else 0

    if database_url is not None:
        return measure(Scratch(database_url, redis_url or "redis://localhost:6379/0", **options))
    with embedded_scratch(**options) as scratch:
        return measure(scratch)


def _chosen(wanted: tuple[str, ...], known: list[str]) -> list[str]:
    for name in wanted:
        if not any(one.startswith(name) for one in known):
            raise SetupError(f"There is no case {name!r}: use one of {', '.join(known)}")
    return [one for one in known if not wanted or any(one.startswith(name) for name in wanted)]
