"""The command: ``jobqueue …`` and ``python3 -m jobqueue …``.

Only the standard library may be imported here before the dependencies are known to be there, and the syntax
stays that of Python 3.8, so that an old interpreter reaches the sentence that says which one is needed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

OLDEST_PYTHON = (3, 11)
NEEDED = (
    "litestar",
    "uvicorn",
    "msgspec",
    "psycopg",
    "redis",
    "alembic",
    "structlog",
    "prometheus_client",
    "rich_click",
)
NEEDED_BY_TEST = ("pytest", "pytest_postgresql", "hypothesis", "xdist")


def main() -> None:
    """Run the command line; in a checkout without its dependencies, install them first and start again."""
    arguments = sys.argv[1:]
    missing = missing_modules(arguments)
    if missing or sys.version_info < OLDEST_PYTHON:
        from jobqueue.bootstrap import enter_environment

        enter_environment(arguments, missing, OLDEST_PYTHON)
    from jobqueue.cli import main as run

    run()


def missing_modules(arguments: list) -> list:  # type: ignore[type-arg]  # list[str] is not Python 3.8
    """Return the modules that the command *arguments* needs and this interpreter does not find."""
    needed = NEEDED + (NEEDED_BY_TEST if arguments[:1] == ["test"] else ())
    return [name for name in needed if find_spec(name) is None]


if __name__ == "__main__":
    main()
