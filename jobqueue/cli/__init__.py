"""The command line: parse, call, exit code. No logic.

Each command lives in a module of its own and is imported only when it is called: a start is mostly imports.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import rich_click as click

from jobqueue import __version__
from jobqueue.errors import JobQueueError
from jobqueue.settings import describe_settings

_COMMANDS = {
    "up": "jobqueue.cli.up",
    "api": "jobqueue.cli.serve",
    "worker": "jobqueue.cli.serve",
    "migrate": "jobqueue.cli.serve",
    "enqueue": "jobqueue.cli.jobs",
    "jobs": "jobqueue.cli.jobs",
    "doctor": "jobqueue.cli.doctor",
    "test": "jobqueue.cli.check",
    "version": "jobqueue.cli.serve",
}


class _LazyGroup(click.RichGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name]), cmd_name)
        return command


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
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except JobQueueError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
