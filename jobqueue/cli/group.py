"""Groups of commands that suggest a name for one that does not exist."""

from __future__ import annotations

from difflib import get_close_matches

import rich_click as click


class SuggestingGroup(click.RichGroup):
    """Answers an unknown command with the nearest known ones, else with all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* begin with."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}"
            raise click.UsageError(f"There is no command {name!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)
