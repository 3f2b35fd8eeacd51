"""settings: a mistake stops the program with one line per mistake that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, describe_settings, load_settings, read_dotenv, redact

NOWHERE = Path("/nonexistent/.env")


def load(**environ: str) -> Settings:
    return load_settings(environ, NOWHERE)


def problems_of(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(**environ)
    return str(caught.value).splitlines()


def test_without_any_variable_the_defaults_of_the_contract_hold() -> None:
    assert load() == Settings()
    assert load().database_url == "postgresql://jobqueue:jobqueue@localhost:5432/jobqueue"
    assert (load().worker_concurrency, load().job_max_execution_seconds, load().metrics_port) == (4, 300, 8001)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("DATABASE_URL", "mysql://h/db", "postgresql://user:password@host:port/database"),
        ("DATABASE_URL", "postgresql://h:notaport/db", "postgresql://user:password@host:port/database"),
        ("DATABASE_URL", "postgresql://[::1/db", "postgresql://user:password@host:port/database"),
        ("DATABASE_DIRECT_URL", "nowhere", "postgresql://user:password@host:port/database"),
        ("REDIS_URL", "http://h", "redis://host:port/number"),
        ("REDIS_URL", "redis://[::1", "redis://host:port/number"),
        ("REDIS_URL", "redis://h:port/0", "redis://host:port/number"),
        ("LOG_LEVEL", "LOUD", "one of DEBUG, INFO, WARNING, ERROR"),
        ("WORKER_CONCURRENCY", "0", "a whole number from 1 to 1000"),
        ("WORKER_CONCURRENCY", "four", "a whole number from 1 to 1000"),
        ("WORKER_CONCURRENCY", "4.5", "a whole number from 1 to 1000"),
        ("RATE_LIMIT_PER_MINUTE", "-1", "a whole number from 1 to 10000000"),
        ("API_PORT", "65536", "a whole number from 0 to 65535"),
        ("METRICS_PORT", "x", "a whole number from 0 to 65535"),
        ("DATABASE_POOL_SIZE", "201", "a whole number from 1 to 200"),
        ("DATABASE_TIMEOUT_SECONDS", "0", "a number from 0.1 to 86400"),
        ("JOB_MAX_EXECUTION_SECONDS", "nan", "a number from 0.1 to 86400"),
        ("JOB_MAX_EXECUTION_SECONDS", "inf", "a number from 0.1 to 86400"),
        ("LEASE_SECONDS", "0.5", "a number from 1 to 86400"),
        ("HEARTBEAT_SECONDS", "11", "at most a third of LEASE_SECONDS=30"),
        ("RECOVERY_STUCK_THRESHOLD_MINUTES", "0", "a number from 0.01 to 100000"),
        ("SHUTDOWN_GRACE_SECONDS", "-1", "a number from 0 to 86400"),
        ("RETENTION_DAYS", "nan", "a number from 0 to 36500"),
        ("REQUEST_MAX_BYTES", "10", "a whole number from 1024 to 67108864"),
        ("SIMULATE_FAILURES", "perhaps", "true or false"),
        ("IDEMPOTENCY_STRICT", "2", "true or false"),
        ("CORS_ORIGINS", "example.com", "an origin such as https://example.com"),
        ("CORS_ORIGINS", '["https://a"', "a comma-separated list"),
        ("TRUSTED_PROXIES", "10.0.0.0/99", "an address or a network such as 10.0.0.0/8"),
        ("JOBQUEUE_EXECUTORS", "my-package", "a Python module name such as mypackage.jobs"),
    ],
)
def test_a_bad_value_is_one_line_with_variable_value_and_what_is_allowed(
    variable: str, value: str, allowed: str
) -> None:
    (line,) = problems_of(**{variable: value})

    assert line.startswith(f"{variable}=")
    assert value in line
    assert allowed in line


def test_all_mistakes_are_told_at_once() -> None:
    lines = problems_of(WORKER_CONCURRENCY="x", LOG_LEVEL="LOUD", REDIS_URL="z", CORS_ORIGINS="q", API_PORT="-1")

    assert sorted(line.split("=")[0] for line in lines) == [
        "API_PORT",
        "CORS_ORIGINS",
        "LOG_LEVEL",
        "REDIS_URL",
        "WORKER_CONCURRENCY",
    ]


def test_a_heartbeat_too_slow_for_the_lease_is_refused() -> None:
    assert load(LEASE_SECONDS="3", HEARTBEAT_SECONDS="1").lease_seconds == 3
    (line,) = problems_of(LEASE_SECONDS="3", HEARTBEAT_SECONDS="1.1")
    assert line.startswith("HEARTBEAT_SECONDS=1.1")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:top-secret@host/db",
        "user:top-secret@host/db",
        "postgresql//user:top-secret@host/db",
        "mysql://user:p@ss:top-secret@host/db",
        "mysql://user:a/top-secret@host/db",
        "host=h password=top-secret",
        "mysql://h/db?password=top-secret",
        "postgresql://user:top-secret@host:port/db",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    (line,) = problems_of(DATABASE_URL=url)

    assert "top-secret" not in line
    assert "***" in line


def test_a_redacted_url_keeps_everything_but_its_password() -> None:
    assert redact("postgresql://u:p@h:5432/db") == "postgresql://u:***@h:5432/db"
    assert redact("postgresql://u@h/db") == "postgresql://u@h/db"
    assert redact("redis://localhost:6379/0") == "redis://localhost:6379/0"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql+asyncpg://u:p@h/db", "postgresql://u:p@h/db"),
        ("postgres+psycopg2://u:p@h/db", "postgresql://u:p@h/db"),
        ("postgresql+psycopg://h/db", "postgresql://h/db"),
        ("postgres://h/db", "postgres://h/db"),
        ("postgresql://u:p@h1:5432,h2:5433/db", "postgresql://u:p@h1:5432,h2:5433/db"),
        ("postgresql:///db?host=/run/s&port=5", "postgresql:///db?host=/run/s&port=5"),
        ("postgresql://u:p%40@[::1]:5432/db", "postgresql://u:p%40@[::1]:5432/db"),
    ],
)
def test_every_usual_form_of_a_database_url_is_taken(given: str, used: str) -> None:
    assert load(DATABASE_URL=given).database_url == used


def test_blanks_around_a_value_and_an_empty_value_do_no_harm() -> None:
    settings = load(WORKER_CONCURRENCY=" 7 ", API_PORT="", LOG_LEVEL="debug")

    assert (settings.worker_concurrency, settings.api_port, settings.log_level) == (7, 8000, "DEBUG")


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("WORKER_CONCURRENCY=2\nAPI_PORT=2\nMETRICS_PORT=2\n")

    settings = load_settings({"WORKER_CONCURRENCY": "3", "API_PORT": "3"}, file, worker_concurrency=5)

    assert (settings.worker_concurrency, settings.api_port, settings.metrics_port) == (5, 3, 2)


def test_env_files_are_read_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# a comment\n\nexport A=1\nB = 'two words' # why\nC=\"x=y#z\"\nD=plain # comment\nE=a#b\nF=\n")

    assert read_dotenv(file) == {"A": "1", "B": "two words", "C": "x=y#z", "D": "plain", "E": "a#b", "F": ""}


def test_a_broken_env_file_is_named_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1\nthis is not a setting\n")

    with pytest.raises(SettingsError, match=r"\.env line 2: expected NAME=value"):
        read_dotenv(file)


def test_an_env_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"A=\xff\xfe\n")

    with pytest.raises(SettingsError, match="cannot be read"):
        read_dotenv(file)


def test_every_setting_has_a_meaning() -> None:
    rows = describe_settings()

    assert len(rows) == len(Settings.__struct_fields__)
    assert all(meaning for _, _, meaning in rows)
