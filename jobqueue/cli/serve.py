"""``jobqueue api``, ``worker``, ``migrate`` and ``version``."""

from __future__ import annotations

import platform

import rich_click as click

from jobqueue import __version__
from jobqueue.settings import load_settings


@click.command()
@click.option("--host", help="Address to listen on (API_HOST).")
@click.option("--port", type=int, help="Port to listen on (API_PORT).")
def api(host: str | None, port: int | None) -> int:
    """Serve the dashboard, the REST API and its documentation at /docs."""
    settings = load_settings(api_host=host, api_port=port)
    from jobqueue.app import run_api

    return run_api(settings)


@click.command()
@click.option("--concurrency", type=int, help="Jobs to run at once (WORKER_CONCURRENCY).")
def worker(concurrency: int | None) -> None:
    """Run jobs until stopped.

    SIGTERM or Ctrl-C: claim nothing more, let running jobs finish within SHUTDOWN_GRACE_SECONDS, hand the rest
    back, exit 0. A second signal five seconds later ends the grace period.
    """
    settings = load_settings(worker_concurrency=concurrency)
    from jobqueue.app import run_worker

    run_worker(settings)


@click.command()
@click.option("--check", is_flag=True, help="Only tell whether the schema is current; exit 1 when it is not.")
def migrate(check: bool) -> int:
    """Bring the database schema up to date. Safe to run from several machines at once."""
    settings = load_settings()
    from jobqueue.store.migrate import current_revision, newest_revision, upgrade

    before = current_revision(settings.database_url)
    if check or (before is not None and before >= newest_revision()):
        click.echo(f"The schema is at {before or 'nothing'}; this version needs {newest_revision()}.")
        return 0 if before is not None and before >= newest_revision() else 1
    click.echo(f"The schema went from {before or 'nothing'} to {upgrade(settings.database_url)}.")
    return 0


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"jobqueue {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")
