"""The bootstrap, run for real in a small checkout whose ``uv`` is a stand-in that notes how it was called."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobqueue import bootstrap
from jobqueue.embedded.process import wait_until

PACKAGE = Path(bootstrap.__file__).parent
EARLY = ("__init__.py", "__main__.py", "bootstrap.py")

FAKE_UV = """#!/bin/sh
echo "$1 $2" >> "$CALLS"
for folder; do :; done
case "$1" in
venv)
  mkdir -p "$folder/bin"
  printf '#!/bin/sh\\n[ "$2" = pip ] && echo pip is broken && exit 1\\n' > "$folder/bin/python"
  printf 'echo inside "$@"\\n' >> "$folder/bin/python"
  sleep "${PAUSE:-0}"
  chmod +x "$folder/bin/python" ;;
pip)
  exit "${INSTALL_CODE:-0}" ;;
esac
"""


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root / "checkout"
        self.calls_file = root / "calls"
        tools = root / "tools"
        (self.root / "jobqueue").mkdir(parents=True)
        tools.mkdir()
        for name in EARLY:
            shutil.copy(PACKAGE / name, self.root / "jobqueue" / name)
        (self.root / "pyproject.toml").write_text("[project]\n")
        (tools / "uv").write_text(FAKE_UV)
        (tools / "uv").chmod(0o755)
        self.environ = {"PATH": f"{tools}:/usr/bin:/bin", "CALLS": str(self.calls_file), "HOME": str(root)}

    def start(self, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        # -S: whatever is installed for this interpreter stays out of sight.
        command = [sys._base_executable, "-S", "-m", "jobqueue", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.root,
            env={**self.environ, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        process = self.start(*arguments, environ=environ)
        out, err = process.communicate(timeout=15)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("name", EARLY)
def test_old_interpreters_can_read_the_first_modules(name: str) -> None:
    ast.parse((PACKAGE / name).read_text(), feature_version=(3, 8))


def test_old_python_is_told_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))

    with pytest.raises(SystemExit) as stop:
        bootstrap.enter_environment(["up"], [], (3, 11))

    assert "Python 3.11 or newer is needed" in str(stop.value)
    assert "3.9.1" in str(stop.value)
    assert "\n" not in str(stop.value)


def test_first_start_installs_and_starts_again_inside(checkout: Checkout) -> None:
    code, out, err = checkout.run("up", "--port", "9")

    assert code == 0, err
    assert out == "inside -X jobqueue-bootstrapped -m jobqueue up --port 9\n"
    assert checkout.calls() == ["venv --allow-existing", "pip install"]


def test_second_start_installs_nothing(checkout: Checkout) -> None:
    checkout.run("up")
    before = checkout.calls()

    code, out, err = checkout.run("worker")

    assert (code, out, err) == (0, "inside -X jobqueue-bootstrapped -m jobqueue worker\n", "")
    assert checkout.calls() == before


def test_changed_requirements_are_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.run("up")
    (checkout.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")

    code, _, _ = checkout.run("up")

    assert code == 0
    assert checkout.calls() == ["venv --allow-existing", "pip install", "pip install"]


def test_the_tests_need_more_than_up_does(checkout: Checkout) -> None:
    checkout.run("up")

    checkout.run("test")
    checkout.run("up")

    assert checkout.calls() == ["venv --allow-existing", "pip install", "pip install"]
    stamp = json.loads((checkout.root / ".venv" / bootstrap.STAMP).read_text())
    assert stamp["extras"] == ["dev"]


def test_environment_whose_making_was_killed_is_made_again(checkout: Checkout) -> None:
    starting = checkout.start("up", environ={"PAUSE": "30"})
    assert starting.stderr is not None
    starting.stderr.readline()
    python = bootstrap.python_of(checkout.root / ".venv")
    assert wait_until(python.exists, 10)
    # Its uv goes too: the lock is held for as long as that runs.
    os.killpg(starting.pid, signal.SIGKILL)
    starting.communicate()

    code, out, err = checkout.run("up")

    assert code == 0, err
    assert out.startswith("inside")
    assert "unfinished" in err


def test_two_starts_at_once_make_one_environment(checkout: Checkout) -> None:
    starts = [checkout.start("up", environ={"PAUSE": "0.5"}) for _ in range(2)]

    answers = [start.communicate(timeout=15) for start in starts]

    assert [start.returncode for start in starts] == [0, 0], answers
    assert checkout.calls() == ["venv --allow-existing", "pip install"]


def test_failed_install_ends_in_a_readable_message(checkout: Checkout) -> None:
    code, out, err = checkout.run("up", environ={"INSTALL_CODE": "1"})

    assert (code, out) == (1, "")
    assert "Traceback" not in err
    assert "jobqueue: pip could not install the dependencies; the end of its output:\n  pip is broken" in err
    assert checkout.run("up")[0] == 0


def test_environment_of_somebody_else_is_used_and_kept(checkout: Checkout) -> None:
    folder = checkout.root / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\necho theirs\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "precious").touch()

    code, out, _ = checkout.run("up")

    assert (code, out) == (0, "theirs\n")
    assert (folder / "precious").exists()
    assert checkout.calls() == ["pip install"]


def test_environment_goes_where_the_variable_says(checkout: Checkout, tmp_path: Path) -> None:
    code, _, err = checkout.run("up", environ={"JOBQUEUE_VENV": str(tmp_path / "elsewhere")})

    assert code == 0, err
    assert bootstrap.python_of(tmp_path / "elsewhere").exists()
    assert not (checkout.root / ".venv").exists()


def test_read_only_checkout_puts_the_environment_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JOBQUEUE_VENV", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert bootstrap.environment_folder().parent == tmp_path / "jobqueue"


def test_incomplete_environment_is_reported_instead_of_entered_again(checkout: Checkout) -> None:
    command = [sys._base_executable, "-S", "-X", bootstrap.GUARD, "-m", "jobqueue", "up"]

    done = subprocess.run(command, cwd=checkout.root, env=checkout.environ, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "litestar" in done.stderr
    assert "cannot be imported" in done.stderr
    assert checkout.calls() == []
