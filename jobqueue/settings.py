"""Every setting: its variable, type, default, range and meaning. The only module that reads the environment.

A setting's variable is its field name in capitals. Values come from the process environment, else from a
``.env`` file in the working folder, else from the default below. Nothing is read at import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from jobqueue.errors import SettingsError

Seconds = Annotated[float, Meta(ge=0.1, le=86_400)]
Port = Annotated[int, Meta(ge=0, le=65_535)]

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one process. Build it with :func:`load_settings`; tests build it directly."""

    database_url: Annotated[
        str,
        Meta(description="PostgreSQL to use; a postgresql+driver:// form is accepted too."),
    ] = "postgresql://jobqueue:jobqueue@localhost:5432/jobqueue"
    database_direct_url: Annotated[
        str,
        Meta(
            description="Connection for LISTEN when DATABASE_URL goes through a pooler "
            "in transaction mode; empty: DATABASE_URL."
        ),
    ] = ""
    database_timeout_seconds: Annotated[
        Seconds,
        Meta(description="Longest wait for an answer of the database before the connection is given up."),
    ] = 10.0
    database_pool_size: Annotated[
        int, Meta(ge=1, le=200, description="Connections an API process keeps for reading.")
    ] = 4
    redis_url: Annotated[
        str, Meta(description="Redis-protocol server for rate limits and the mirror of the queue depths.")
    ] = "redis://localhost:6379/0"
    redis_timeout_seconds: Annotated[
        Seconds, Meta(description="Longest wait for Redis; past it the process goes on without.")
    ] = 0.2
    log_level: Annotated[str, Meta(description="DEBUG, INFO, WARNING or ERROR.")] = "INFO"

    api_host: Annotated[str, Meta(min_length=1, description="Address the API listens on.")] = "127.0.0.1"
    api_port: Annotated[Port, Meta(description="Port the API listens on.")] = 8000
    cors_origins: Annotated[
        str, Meta(description="Comma-separated origins whose pages may call the API; * for any.")
    ] = "http://localhost:5173,http://localhost:3000"
    rate_limit_per_minute: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Creates a minute that one client address may make.")
    ] = 10
    trusted_proxies: Annotated[
        str,
        Meta(description="Comma-separated addresses or networks whose X-Forwarded-For is believed; empty: none."),
    ] = ""
    idempotency_strict: Annotated[
        bool, Meta(description="Answer 422 when an idempotency key comes again with another body.")
    ] = False
    request_max_bytes: Annotated[
        int, Meta(ge=1_024, le=67_108_864, description="Largest request body; a larger one is answered 413.")
    ] = 262_144

    dashboard_password: Annotated[
        str, Meta(description="Password of the dashboard's operators; empty: everybody who can reach it is one.")
    ] = ""
    dashboard_read_password: Annotated[
        str, Meta(description="Password of those who may look at the dashboard, but not change anything.")
    ] = ""
    dashboard_user_header: Annotated[
        str,
        Meta(
            description="Header in which a proxy of TRUSTED_PROXIES names a user it has logged in, who is an operator."
        ),
    ] = ""

    worker_concurrency: Annotated[int, Meta(ge=1, le=1_000, description="Jobs one worker process runs at once.")] = 4
    job_max_execution_seconds: Annotated[
        Seconds, Meta(description="Time limit of an attempt whose executor does not set its own.")
    ] = 300.0
    result_max_bytes: Annotated[
        int, Meta(ge=1_024, le=67_108_864, description="Largest result; a larger one fails the attempt.")
    ] = 1_048_576
    lease_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=86_400)],
        Meta(description="How long a claimed job stays its worker's without a heartbeat."),
    ] = 30.0
    heartbeat_seconds: Annotated[
        Seconds, Meta(description="How often leases are renewed; at most a third of LEASE_SECONDS.")
    ] = 8.0
    recovery_interval_seconds: Annotated[
        Seconds, Meta(description="How often every worker looks for expired leases.")
    ] = 5.0
    recovery_stuck_threshold_minutes: Annotated[
        Annotated[float, Meta(ge=0.01, le=100_000)],
        Meta(description="Age past which a processing job with no lease on record is taken as stuck."),
    ] = 10.0
    poll_seconds: Annotated[
        Seconds, Meta(description="Longest sleep of an idle worker between two looks at the table.")
    ] = 1.0
    shutdown_grace_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)],
        Meta(description="How long a stopping worker lets running jobs finish before it hands them back."),
    ] = 25.0
    retention_days: Annotated[
        Annotated[float, Meta(ge=0, le=36_500)],
        Meta(description="Finished jobs, their logs and their idempotency keys are removed after this; 0: never."),
    ] = 30.0
    metrics_port: Annotated[Port, Meta(description="Port of the worker's Prometheus metrics; 0: off.")] = 8001

    jobqueue_executors: Annotated[
        str, Meta(description="Comma-separated modules that register your own job types.")
    ] = ""
    simulate_failures: Annotated[
        bool, Meta(description="Let the built-in job types fail at their documented rates.")
    ] = True
    simulate_delay_scale: Annotated[
        Annotated[float, Meta(ge=0, le=100)],
        Meta(description="Multiplies the time the built-in job types take; 0: none."),
    ] = 1.0
    simulate_seed: Annotated[
        str, Meta(description="Seeds the built-in job types' randomness; empty: different each time.")
    ] = ""

    otel_endpoint: Annotated[
        str, Meta(description="OTLP/HTTP endpoint for traces; empty: off. Needs the extra jobqueue[otel].")
    ] = ""
    otel_service_name: Annotated[str, Meta(description="Service name on traces.")] = "job-queue"

    @property
    def direct_url(self) -> str:
        """The connection string for LISTEN."""
        return self.database_direct_url or self.database_url

    @property
    def executor_modules(self) -> list[str]:
        """Module names from JOBQUEUE_EXECUTORS."""
        return split_list(self.jobqueue_executors)


def split_list(text: str) -> list[str]:
    """Split a comma-separated setting; a JSON list of strings is understood too."""
    if text.lstrip().startswith("["):
        return msgspec.json.decode(text, type=list[str])
    return [part.strip() for part in text.split(",") if part.strip()]


def load_settings(environ: Mapping[str, str] | None = None, dotenv: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings.

    *environ* defaults to the process environment, *dotenv* to ``.env`` in the working folder. *overrides*
    are field values that win over both (command-line options).

    Raises:
        SettingsError: one line per bad value: the variable, the value and what is allowed.
    """
    given = dict(read_dotenv(dotenv or Path(".env")))
    given.update(os.environ if environ is None else environ)
    given.setdefault("OTEL_ENDPOINT", given.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""))  # the standard's own name
    hints = get_type_hints(Settings, include_extras=True)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in msgspec.structs.fields(Settings):
        variable = field.name.upper()
        if field.name in overrides and overrides[field.name] is not None:
            given[variable] = str(overrides[field.name])
        text = given.get(variable, "").strip()
        if not text:
            continue
        try:
            values[field.name] = msgspec.convert(text, hints[field.name], strict=False)
        except msgspec.ValidationError as error:
            problems.append(f"{variable}={shown(variable, text)} is not allowed: {_allowed(error, hints[field.name])}")
    # What could not be read stands at its default here, so that all mistakes are told at once.
    settings = _normalised(Settings(**values))
    problems += _cross_checks(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def read_dotenv(path: Path) -> dict[str, str]:
    """Read ``NAME=value`` lines. Comments, blank lines, ``export`` and quotes are understood; no expansion.

    Raises:
        SettingsError: a line that is none of these, or a file that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    values = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)", line)
        if match is None:
            raise SettingsError(f"{path} line {number}: expected NAME=value, got {line[:40]!r}")
        name, value = match.groups()
        quoted = re.fullmatch(r"""(["'])(.*)\1\s*(?:#.*)?""", value)
        values[name] = quoted.group(2) if quoted else re.split(r"\s+#", value, maxsplit=1)[0].strip()
    return values


def redact(text: str) -> str:
    """Return a URL, or a message that quotes one, without its password."""
    return re.sub(r"(?i)(password=)[^&\s'\"]*", r"\1***", re.sub(r"(://[^:@/\s]*):.*@", r"\1:***@", text))


def shown(variable: str, text: str) -> str:
    """Return a setting's value as it may appear in a message."""
    # A mistyped URL may hold its password anywhere before the last @.
    if variable.endswith("_PASSWORD"):
        return "'***'"
    return repr(re.sub(r":(?!//).*@", ":***@", redact(text)) if variable.endswith("_URL") else text[:100])


def describe_settings() -> list[tuple[str, str, str]]:
    """Return (variable, default, meaning) of every setting, in the order of :class:`Settings`."""
    hints = get_type_hints(Settings, include_extras=True)
    rows = []
    for field in msgspec.structs.fields(Settings):
        meaning = next(
            meta.description for meta in reversed(getattr(hints[field.name], "__metadata__", ())) if meta.description
        )
        rows.append((field.name.upper(), _default_text(field.default), meaning))
    return rows


def _default_text(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def _allowed(error: msgspec.ValidationError, hint: Any) -> str:
    bounds = {}
    for meta in getattr(hint, "__metadata__", ()):
        bounds.update({name: value for name in ("ge", "le") if (value := getattr(meta, name)) is not None})
    kind = hint.__origin__
    if kind is bool:
        return "use true or false"
    if bounds:
        number = "whole number" if kind is int else "number"
        return f"use a {number} from {bounds.get('ge')} to {bounds.get('le')}"
    return str(error)


def _normalised(settings: Settings) -> Settings:
    return msgspec.structs.replace(
        settings,
        log_level=settings.log_level.upper(),
        database_url=_without_driver(settings.database_url),
        database_direct_url=_without_driver(settings.database_direct_url),
    )


def _without_driver(url: str) -> str:
    return re.sub(r"^postgres(?:ql)?\+\w+://", "postgresql://", url.strip())


_HOST = r"[^/?@:\[\],]*(\[[0-9a-fA-F:.%]*\])?(:\d*)?"
_HOSTS = rf"([^/?]*@)?{_HOST}(,{_HOST})*"
"""User, password, and one or several hosts with their ports, as libpq reads them."""


def _cross_checks(settings: Settings) -> list[str]:
    """Return what is wrong between settings or with their inner form (failures.md F1, F2)."""
    problems = []
    if settings.log_level not in LOG_LEVELS:
        problems.append(f"LOG_LEVEL={settings.log_level!r} is not allowed: use one of {', '.join(LOG_LEVELS)}")
    if settings.heartbeat_seconds > settings.lease_seconds / 3:
        problems.append(
            f"HEARTBEAT_SECONDS={settings.heartbeat_seconds:g} is not allowed: use at most a third of "
            f"LEASE_SECONDS={settings.lease_seconds:g}, so that a live job's lease cannot run out"
        )
    for variable, url in (
        ("DATABASE_URL", settings.database_url),
        ("DATABASE_DIRECT_URL", settings.database_direct_url),
    ):
        if url and not re.match(rf"postgres(ql)?://{_HOSTS}([/?]|$)", url):
            problems.append(
                f"{variable}={shown(variable, url)} is not allowed: use postgresql://user:password@host:port/database"
            )
    if not re.match(rf"(rediss?://{_HOSTS}([/?]|$)|unix://)", settings.redis_url):
        problems.append(
            f"REDIS_URL={shown('REDIS_URL', settings.redis_url)} is not allowed: use redis://host:port/number, "
            "rediss:// or unix:///path"
        )
    if settings.dashboard_user_header and not settings.trusted_proxies:
        problems.append("DASHBOARD_USER_HEADER is not allowed without TRUSTED_PROXIES: anybody could send that header")
    if settings.dashboard_read_password and settings.dashboard_read_password == settings.dashboard_password:
        problems.append("DASHBOARD_READ_PASSWORD is not allowed to be the same as DASHBOARD_PASSWORD: use another one")
    if settings.dashboard_read_password and not settings.dashboard_password:
        problems.append(
            "DASHBOARD_READ_PASSWORD is not allowed without DASHBOARD_PASSWORD: nobody could be an operator"
        )
    problems += _list_problems(settings)
    return problems


def _list_problems(settings: Settings) -> list[str]:
    problems = []
    for variable in ("cors_origins", "trusted_proxies", "jobqueue_executors"):
        text = getattr(settings, variable)
        try:
            entries = split_list(text)
        except msgspec.DecodeError:
            problems.append(f"{variable.upper()}={text[:100]!r} is not allowed: use a comma-separated list")
            continue
        problems += [
            f"{variable.upper()}={text[:100]!r} is not allowed: {entry!r} is not {wanted}"
            for entry in entries
            if (wanted := _entry_problem(variable, entry))
        ]
    return problems


def _entry_problem(variable: str, entry: str) -> str:
    if variable == "trusted_proxies":
        try:
            ip_network(entry, strict=False)
        except ValueError:
            return "an address or a network such as 10.0.0.0/8"
    if variable == "cors_origins" and entry != "*" and not re.fullmatch(r"https?://[^/\s]+", entry):
        return "an origin such as https://example.com (no path), or *"
    if variable == "jobqueue_executors" and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", entry):
        return "a Python module name such as mypackage.jobs"
    return ""
