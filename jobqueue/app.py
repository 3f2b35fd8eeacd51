"""The composition root: settings → parts. Imported by the command line and by tests; nothing else imports it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from jobqueue.errors import Unavailable
from jobqueue.executors import BaseExecutor, load_executors
from jobqueue.executors.builtin import Simulation
from jobqueue.settings import Settings, load_settings, split_list
from jobqueue.telemetry import configure_logging
from jobqueue.tracing import configure_tracing, flush_tracing

if TYPE_CHECKING:
    from litestar.types import ASGIApp

SECOND_SIGNAL_AFTER_SECONDS = 5.0
"""Deployment tools send SIGTERM twice by mistake; only a later one means 'at once' (failures.md J6)."""

log = structlog.get_logger("jobqueue")


def prepare(settings: Settings) -> dict[str, BaseExecutor]:
    """Set up logging and tracing, and import the executors.

    Raises:
        SetupError: tracing is asked for but not installed, or a module with executors cannot be used.
    """
    configure_logging(settings.log_level)
    configure_tracing(settings)
    Simulation.configure(settings)
    return load_executors(settings.executor_modules)


def asgi() -> ASGIApp:
    """Return the API for a server of your own: ``uvicorn --factory jobqueue.app:asgi --reload``.

    Raises:
        SetupError: it cannot start like this.
    """
    from jobqueue.server import create_api

    settings = load_settings()
    prepare(settings)
    return create_api(settings)


def run_api(settings: Settings) -> int:
    """Serve the API until stopped. Returns the exit code.

    Raises:
        SetupError: it cannot start like this.
    """
    import uvicorn

    from jobqueue.server import create_api
    from jobqueue.server.protocol import BoundedProtocol, max_connections

    prepare(settings)
    BoundedProtocol.limit = max_connections()
    proxies = split_list(settings.trusted_proxies)
    config = uvicorn.Config(
        create_api(settings),
        host=settings.api_host,
        port=settings.api_port,
        loop="uvloop",
        http=BoundedProtocol,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=8,
    )
    server = uvicorn.Server(config)
    # uvicorn raises the signal again after its graceful stop. Without a handler of ours that would end the process
    # by the signal: with spans unsent, and with 143 instead of 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    if not _is_private(settings.api_host) and not (settings.dashboard_password or settings.dashboard_user_header):
        log.warning(
            "dashboard_open_to_everybody",
            host=settings.api_host,
            detail="Whoever reaches this address can cancel and retry any job. Set DASHBOARD_PASSWORD, put a proxy "
            "with a login in front (DASHBOARD_USER_HEADER), or listen on 127.0.0.1.",
        )
    log.info("api_starting", host=settings.api_host, port=settings.api_port)
    try:
        server.run()
    finally:
        flush_tracing()
    return 0 if server.started else 1


def _is_private(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run_worker(settings: Settings) -> NoReturn:
    """Run a worker until stopped, and end the process: 0 when everything was finished or handed back.

    Raises:
        SetupError: it cannot start like this.
    """
    stop = _StopSignals()
    executors = prepare(settings)
    _wait_for_schema(settings, stop)
    _serve_metrics(settings.metrics_port)
    code = _run_loop(_work(settings, executors, stop))
    flush_tracing()
    logging.shutdown()
    sys.stdout.flush()
    # Executors that ignore cancellation, and threads they left, must not keep the process.
    os._exit(code)


class _StopSignals:
    """SIGTERM and SIGINT, from the first moment of the process. They arrive also while a handler blocks the loop."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self._worker: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def attach(self, worker: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Pass signals on to *worker*; one that came before is passed on now."""
        self._worker, self._loop = worker, loop
        if self.first_at is not None:
            worker.request_stop()

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        is_first = self.first_at is None
        self.first_at = now if self.first_at is None else self.first_at
        if self._worker is None or self._loop is None:
            return
        if is_first:
            self._worker.announce_stop()
            self._loop.call_soon_threadsafe(self._worker.request_stop)
        elif now - self.first_at >= SECOND_SIGNAL_AFTER_SECONDS:
            self._loop.call_soon_threadsafe(self._worker.request_hurry)


async def _work(settings: Settings, executors: dict[str, BaseExecutor], stop: _StopSignals) -> int:
    from jobqueue.worker.loop import Worker

    worker = Worker(settings, executors)
    stop.attach(worker, asyncio.get_running_loop())
    return await worker.run()


def _run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run *main* on uvloop. Unlike ``asyncio.run`` it does not wait for tasks that ignore their cancellation."""
    import uvloop

    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(main)


def _wait_for_schema(settings: Settings, stop: _StopSignals) -> None:
    """Wait until the database answers. A schema that is too old is an error, a database that is away is not."""
    from jobqueue.store.migrate import require_current

    pause = 0.2
    while stop.first_at is None:
        try:
            return require_current(settings.database_url)
        except Unavailable as error:
            log.warning("waiting_for_database", error=str(error), seconds=pause)
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
    sys.exit(0)


def _serve_metrics(port: int) -> None:
    from prometheus_client import start_http_server

    if not port:
        return
    try:
        start_http_server(port)
    except OSError as error:
        log.warning("metrics_port_unavailable", port=port, error=error.strerror)
