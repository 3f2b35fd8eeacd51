"""From a fresh clone to a running command: makes a virtual environment, installs, starts again inside it.

Standard library only, and the syntax of Python 3.8: this runs before anything is installed. A stamp inside
the environment says what was installed there; while it matches, nothing but one ``exec`` happens. The stamp
is written last, so an environment whose making was interrupted is recognised and made again. An environment
that somebody else made is used, never removed.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator, NoReturn, Sequence  # noqa: UP035  as Python 3.8 has them

CHECKOUT = Path(__file__).resolve().parent.parent
STAMP = "jobqueue-stamp.json"
# An interpreter option of the second start, since it is not handed on to children as a variable would be:
# an environment that is still incomplete then is an error, not another round.
GUARD = "jobqueue-bootstrapped"


class BootstrapError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def enter_environment(arguments: Sequence[str], missing: Sequence[str], oldest_python: tuple[int, int]) -> NoReturn:
    """Make sure of the environment and replace this process by the same command inside it.

    *missing* are the modules this interpreter lacks, *oldest_python* the version it must have. Leaves with code 1
    and a readable message when the environment cannot be made.
    """
    try:
        _require_python(oldest_python)
        folder = _checked_folder(missing)
        ensure_environment(folder, extras_of(arguments))
    except BootstrapError as error:
        sys.exit(f"jobqueue: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    environ = {name: value for name, value in os.environ.items() if name != "__PYVENV_LAUNCHER__"}
    python = str(python_of(folder))
    os.execve(python, [python, "-X", GUARD, "-m", "jobqueue", *arguments], environ)  # noqa: S606  our own interpreter


def _require_python(oldest: tuple[int, int]) -> None:
    if sys.version_info >= oldest:
        return
    names = [f"python3.{minor}" for minor in range(20, oldest[1] - 1, -1)]
    newer = next((name for name in names if shutil.which(name)), None)
    version = ".".join(str(part) for part in sys.version_info[:3])
    raise BootstrapError(
        f"Python {oldest[0]}.{oldest[1]} or newer is needed, and {sys.executable} is {version}: "
        + (f"run {newer} -m jobqueue" if newer else "install a newer one")
    )


def _checked_folder(missing: Sequence[str]) -> Path:
    names = ", ".join(missing)
    if not (CHECKOUT / "pyproject.toml").is_file():
        raise BootstrapError(f"{names} is not installed: run `pip install 'jobqueue[dev]'`")
    folder = environment_folder()
    if GUARD in sys._xoptions:
        raise BootstrapError(f"{names} cannot be imported from {folder}: remove that folder and start again")
    return folder


def environment_folder() -> Path:
    """Return where the environment belongs: JOBQUEUE_VENV, the checkout's ``.venv``, or the user's cache."""
    named = os.environ.get("JOBQUEUE_VENV")
    if named:
        return Path(named).expanduser().absolute()
    if os.access(CHECKOUT, os.W_OK):
        return CHECKOUT / ".venv"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return cache / "jobqueue" / hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:16]


def python_of(folder: Path) -> Path:
    """Return the interpreter of the environment in *folder*."""
    return folder / "bin" / "python"


def ensure_environment(folder: Path, extras: Sequence[str] = ()) -> None:
    """Make *folder* an environment with this checkout and *extras* installed; do nothing when it is one.

    Raises:
        BootstrapError: a step failed; the message carries the end of its output.
    """
    if is_ready(folder, extras):
        return
    with _lock() as lock:
        if is_ready(folder, extras):
            return
        _make(folder, extras, lock)


def is_ready(folder: Path, extras: Sequence[str]) -> bool:
    """Return whether the stamp in *folder* says that all of this is installed already."""
    stamp = read_stamp(folder)
    return (
        stamp.get("wanted") == fingerprint()
        and set(extras) <= set(stamp.get("extras", []))
        and python_of(folder).exists()
    )


def read_stamp(folder: Path) -> dict:  # type: ignore[type-arg]  # dict[str, Any] is not Python 3.8
    """Return the stamp in *folder*; empty when there is none or it is damaged."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def fingerprint() -> str:
    """Return a hash of everything an environment is made from."""
    parts = ((CHECKOUT / "pyproject.toml").read_bytes(), _interpreter().encode(), str(CHECKOUT).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _make(folder: Path, extras: Sequence[str], lock: int) -> None:
    started = time.monotonic()
    stamp = read_stamp(folder)
    extras = sorted(set(extras) | set(stamp.get("extras", [])))
    try:
        if stamp and (stamp.get("interpreter") != _interpreter() or not stamp.get("wanted")):
            _say(f"removing {_short(folder)}: it is unfinished or of another Python")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not python_of(folder).exists():
            _write_stamp(folder, {"interpreter": _interpreter()})
            _make_venv(folder, lock)
        _install(folder, extras, lock)
        _byte_compile()
        _write_stamp(folder, {"wanted": fingerprint(), "interpreter": _interpreter(), "extras": extras})
    except OSError as error:
        raise BootstrapError(f"{folder} cannot be made ({error}); JOBQUEUE_VENV names another place") from error
    _say(f"ready after {time.monotonic() - started:.0f} s; the next start needs none of this")


def _make_venv(folder: Path, lock: int) -> None:
    uv = shutil.which("uv")
    base = getattr(sys, "_base_executable", sys.executable)
    _say(f"making {_short(folder)} with Python {sys.version_info[0]}.{sys.version_info[1]}")
    if uv and _run([uv, "venv", "--allow-existing", "--python", base, str(folder)], lock) is None:
        return
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        raise BootstrapError(
            f"this Python cannot make virtual environments: install python3-venv "
            f"(Debian and Ubuntu: apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv) or uv"
        )
    failure = _run([base, "-m", "venv", str(folder)], lock)
    if failure is not None:
        raise BootstrapError(f"making {folder} failed\n{failure}")


def _install(folder: Path, extras: Sequence[str], lock: int) -> None:
    target = str(CHECKOUT) + (f"[{','.join(extras)}]" if extras else "")
    python = str(python_of(folder))
    uv = shutil.which("uv")
    if uv:
        _say("installing with uv")
        if _run([uv, "pip", "install", "--python", python, "--compile-bytecode", "-e", target], lock) is None:
            return
        # uv does not read pip's configuration, which may name the only index that can be reached from here.
        _say("uv could not install; trying pip")
    if _run([python, "-m", "pip", "--version"], lock) is not None:
        _run([python, "-m", "ensurepip", "--default-pip"], lock)
    _say("installing with pip; this takes about half a minute")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    failure = _run([*pip, "-e", target], lock)
    if failure is not None:
        raise BootstrapError(f"pip could not install the dependencies; the end of its output:\n{failure}")


def _byte_compile() -> None:
    # Nothing depends on it: a read-only checkout only starts a little slower.
    with contextlib.suppress(OSError):
        compileall.compile_dir(str(CHECKOUT / "jobqueue"), quiet=2)


def _run(command: Sequence[str], lock: int) -> str | None:
    """Run *command* and return None, or the last lines of its output when it failed.

    It keeps *lock* open: should this process be killed, the next start waits until the command has ended too.
    """
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[lock])
        except OSError as error:
            return f"  {command[0]}: {error}"
        if code == 0:
            return None
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-12:]) or f"  {command[0]} ended with code {code}"


@contextlib.contextmanager
def _lock() -> Iterator[int]:
    """Hold the lock between starts in one checkout. It sits on pyproject.toml: no file has to be made."""
    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _say("another start is making the environment; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _write_stamp(folder: Path, stamp: dict) -> None:  # type: ignore[type-arg]  # see read_stamp
    draft = folder / (STAMP + ".new")
    draft.write_text(json.dumps(stamp), encoding="utf-8")
    draft.replace(folder / STAMP)


def _interpreter() -> str:
    base = getattr(sys, "_base_executable", sys.executable)
    return f"{os.path.realpath(base)} {sys.version}"


def extras_of(arguments: Sequence[str]) -> list[str]:
    """Return the extras of the package that the command *arguments* needs."""
    return ["dev"] if arguments and arguments[0] == "test" else []


def _short(folder: Path) -> str:
    return str(folder.relative_to(CHECKOUT)) if CHECKOUT in folder.parents else str(folder)


def _say(text: str) -> None:
    print(f"jobqueue: {text}", file=sys.stderr, flush=True)
