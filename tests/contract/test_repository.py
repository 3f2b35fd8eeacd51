"""What holds for the whole repository: sizes, what is in the wheel, and what must be in no file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

from jobqueue import __version__
from tests.contract.readme import ROOT

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
BINARY = {".png", ".ico", ".woff2"}
OTHERS = "web/static/docs/swagger-ui"  # the vendored bundle

MODULES = sorted((ROOT / "jobqueue").rglob("*.py"))


@cache
def tracked(*folders: str) -> list[str]:
    """Return the files that git would commit below *folders*, new ones too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_and_functions_stay_small_and_explain_themselves(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)

    assert text.count("\n") <= MAX_MODULE_LINES
    assert ast.get_docstring(tree), "what does this module own?"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def test_version_is_told_once(tmp_path: Path) -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_names_this_or_that_machine() -> None:
    internal = re.compile(
        r"/(?:work|root|Users)/\w|/home/(?!user\b)\w+/|https?://[\w.-]*(?:pypi|pythonhosted|npmjs)[\w.-]*\."
    )
    found = []
    for name in tracked():
        if Path(name).suffix in BINARY or name.startswith(OTHERS):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if internal.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")

    assert [line for line in found if not line.startswith("tests/contract/test_repository.py:")] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with sdist and wheel, the wheel made from the sdist as it would be for a release."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source")
    # A copy of what git knows, and one ignored file that must not come along.
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    (source / "sql" / ".env").write_text("DATABASE_URL=postgresql://secret\n")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_wheel_holds_exactly_what_git_knows(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    code = set(tracked("jobqueue"))
    beside = {f"jobqueue/{name}" for name in tracked("sql", "migrations", "web")}
    assert packed == code | beside


def test_sdist_has_no_ignored_file(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}

    assert packed - {"PKG-INFO", ""} <= set(tracked())


def test_wheel_works_without_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        "from jobqueue.assets import folder, PACKAGE; from jobqueue.store.db import statement\n"
        "from jobqueue.store.migrate import newest_revision\n"
        "print(PACKAGE.parent, folder('sql').parent, newest_revision(), len(statement('claim_jobs')) > 1000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert done.stdout.split() == [str(tmp_path), str(tmp_path / "jobqueue"), "0003", "True"], done.stderr
