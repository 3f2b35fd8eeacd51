"""The door for user code: what may be registered, and what is said about the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobqueue import BaseExecutor, executor, register
from jobqueue.errors import ExecutorError
from jobqueue.executors import load_executors
from jobqueue.executors.registry import is_async

Registry = dict[str, BaseExecutor]
Write = Callable[[str, str], str]

pytestmark = pytest.mark.usefixtures("registry")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module that can be imported during the test, and return its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write_module(name: str, source: str) -> str:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(f"import typing\nfrom jobqueue import BaseExecutor, executor\n{source}")
        return name

    return write_module


async def test_class_as_the_readme_of_the_original_prints_it(registry: Registry) -> None:
    @executor("custom")
    class Custom(BaseExecutor):
        max_execution_seconds = 45

        async def execute(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
            return {"id": job_id, **payload}

    assert registry["custom"].max_execution_seconds == 45
    assert is_async(registry["custom"])
    assert await registry["custom"].execute("7", {"a": 1}) == {"id": "7", "a": 1}


def test_decorated_functions_stay_what_they_are(registry: Registry) -> None:
    @executor("plain", max_execution_seconds=2.5)
    def plain(job_id: str, payload: dict[str, Any]) -> str:
        return job_id

    assert plain("1", {}) == "1"
    assert registry["plain"].execute("2", {}) == "2"
    assert registry["plain"].max_execution_seconds == 2.5
    assert not is_async(registry["plain"])


def test_second_executor_of_a_type_is_refused_naming_both(write: Write) -> None:
    write("first_jobs", "@executor('send')\ndef mail(job_id, payload): ...\n")
    write("second_jobs", "@executor('send')\nclass Mail(BaseExecutor):\n  def execute(self, job_id, payload): ...\n")

    with pytest.raises(ExecutorError) as refused:
        load_executors(["first_jobs", "second_jobs"])

    message = str(refused.value)
    assert message.startswith("The job type 'send' is registered twice: by first_jobs.mail (line ")
    assert "second_jobs.Mail (line " in message


def test_second_function_of_the_same_name_in_one_module_is_refused(write: Write) -> None:
    write("twin_jobs", "@executor('twin')\ndef run(job_id, payload): ...\n\n@executor('twin')\ndef run(j, p): ...\n")

    with pytest.raises(ExecutorError, match=r"twin_jobs\.run \(line \d\) and twin_jobs\.run \(line \d\)"):
        load_executors(["twin_jobs"])


def test_module_imported_again_is_no_conflict(write: Write, registry: Registry) -> None:
    name = write("again_jobs", "@executor('again')\ndef run(job_id, payload): ...\n")
    load_executors([name])
    del sys.modules[name]

    assert load_executors([name])["again"] is registry["again"]


def test_class_without_execute_is_refused() -> None:
    with pytest.raises(ExecutorError, match=r"executor of 'half' cannot be made: .*Half.* abstract method .?execute"):

        @executor("half")
        class Half(BaseExecutor):
            max_execution_seconds = 5


def test_class_that_is_no_executor_is_refused() -> None:
    with pytest.raises(ExecutorError, match=r"executor of 'alien', .*Alien, must subclass BaseExecutor"):

        @executor("alien")
        class Alien:
            pass


def test_class_that_needs_arguments_is_refused() -> None:
    with pytest.raises(ExecutorError, match=r"executor of 'greedy' cannot be made: .*client"):

        @executor("greedy")
        class Greedy(BaseExecutor):
            def __init__(self, client: object) -> None:
                self.client = client

            def execute(self, job_id: str, payload: Any) -> None: ...


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), "45"])
def test_time_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ExecutorError, match=r"max_execution_seconds of 'odd' is .*: use a positive number of seconds"):
        executor("odd", max_execution_seconds=limit)(lambda job_id, payload: None)


def test_time_limit_beside_a_class_is_refused_instead_of_ignored() -> None:
    with pytest.raises(ExecutorError, match="Set max_execution_seconds of 'beside' in the class"):

        @executor("beside", max_execution_seconds=5)
        class Beside(BaseExecutor):
            def execute(self, job_id: str, payload: Any) -> None: ...


@pytest.mark.parametrize("name", ["", "x" * 256, "line\nbreak", "nul\0"])
def test_name_that_cannot_be_a_type_is_refused(name: str) -> None:
    with pytest.raises(ExecutorError, match="cannot be a job type: use 1 to 255 printable characters"):
        executor(name)(lambda job_id, payload: None)


def test_registering_a_class_instead_of_an_instance_is_refused() -> None:
    class Fine(BaseExecutor):
        def execute(self, job_id: str, payload: Any) -> None: ...

    with pytest.raises(ExecutorError, match="must be an instance of a subclass of BaseExecutor"):
        register("fine", Fine)  # type: ignore[arg-type]  # the slip under test


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('no key\\nsecond line')", "ValueError: no key"),
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_module_that_fails_on_import_is_named_with_the_reason(write: Write, source: str, reason: str) -> None:
    write("failing_jobs", source)

    with pytest.raises(ExecutorError) as refused:
        load_executors(["failing_jobs"])

    message = str(refused.value)
    assert message.startswith(f"JOBQUEUE_EXECUTORS names 'failing_jobs', which cannot be imported: {reason}")
    assert "\n" not in message
