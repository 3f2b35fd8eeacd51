"""The command line: parse, call, exit code. No logic.

Each command lives in a module of its own and is imported only when it is called: a start is mostly imports.
Exit codes: 0 done, 1 it could not be done, 2 the command line is wrong, 130 Ctrl-C, 141 nobody reads the output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import rich_click as click

from jobqueue import __version__
from jobqueue.cli.group import SuggestingGroup
from jobqueue.errors import JobQueueError
from jobqueue.settings import describe_settings, redact

_NOBODY_READS = 128 + 13  # what a shell reports for a program that SIGPIPE ended
_COMMANDS = {
    "up": "jobqueue.cli.up",
    "api": "jobqueue.cli.serve",
    "worker": "jobqueue.cli.serve",
    "migrate": "jobqueue.cli.serve",
    "enqueue": "jobqueue.cli.enqueue",
    "jobs": "jobqueue.cli.jobs",
    "doctor": "jobqueue.cli.doctor",
    "bench": "jobqueue.cli.bench",
    "test": "jobqueue.cli.check",
    "version": "jobqueue.cli.serve",
}


class _LazyGroup(SuggestingGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(_NOBODY_READS)  # click's own answer would be 1, as if something had failed


def _settings_help() -> str:
    """Return the table of settings for --help, one a line."""
    lines = ["Settings, read from the environment or from .env in the working folder:", ""]
    lines += [f"{variable} ({default or 'empty'}): {meaning}" for variable, default, meaning in describe_settings()]
    return "\n\n".join(lines)


@click.group(cls=_LazyGroup, epilog=_settings_help(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobqueue")
def cli() -> None:
    """A job queue for people who already run PostgreSQL."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. A mistake of the user ends in a line on stderr, never in a traceback."""
    try:
        code = cli.main(args=arguments, prog_name="jobqueue", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        click.echo(_one_line(error), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        _leave_broken_pipe()
    except JobQueueError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except Exception as error:
        if not _is_of_the_driver(error):
            raise
        click.echo(f"PostgreSQL refused: {redact(str(error).strip().splitlines()[0])}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _is_of_the_driver(error: Exception) -> bool:
    """Tell whether psycopg raised it, such as for a connection string that it cannot read."""
    driver = sys.modules.get("psycopg")
    return driver is not None and isinstance(error, driver.Error)


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "jobqueue"
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{command} --help`."


def _leave_broken_pipe() -> NoReturn:
    """End like a program that SIGPIPE killed: whoever read the output has gone, so nothing more can be said."""
    # What is left in the buffer must not be written at exit: that would fail aloud.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_NOBODY_READS)
