"""``jobqueue up``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from jobqueue.settings import load_settings


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port of the API, 0 for any free one; API_PORT (8000) unless given."
)
@click.option("--host", help="Address of the API; API_HOST (127.0.0.1) unless given.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("~/.jobqueue"),
    show_default=True,
    help="Where the embedded servers keep their data.",
)
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Worker processes.")
@click.option("--demo", is_flag=True, help="Add a steady trickle of sample jobs.")
def up(port: int | None, host: str | None, data_dir: Path, workers: int, demo: bool) -> int:
    """Run everything: PostgreSQL, a Redis-protocol server, the API and workers.

    Uses DATABASE_URL and REDIS_URL instead of its own servers where they are set. Ctrl-C stops everything.
    """
    settings = load_settings(api_port=port, api_host=host)
    from jobqueue.embedded.up import UpOptions, run_up

    return run_up(
        UpOptions(
            port=settings.api_port,
            host=settings.api_host,
            data_dir=data_dir.expanduser(),
            workers=workers,
            demo=demo,
        )
    )
