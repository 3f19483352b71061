"""Help in two columns without frames, as of git and uv, with commands in panels."""

from typing import Final

import click
import typer.core
from typer.core import TyperGroup

# Rich's help has five columns: at 80 characters it leaves sixteen for the text of an option.
typer.core.HAS_RICH = False


ORDER: Final = ("Train", "Predict", "Data", "Deploy", "Analyse")
"""Panels of the first screen; others follow."""


class Panels(TyperGroup):
    """A group whose help lists commands by their panel."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                title = panel if isinstance(panel, str) else "Commands"
                panels.setdefault(title, []).append((name, command.get_short_help_str(80)))
        for title in sorted(panels, key=lambda title: (*ORDER, title).index(title)):
            with formatter.section(title):
                formatter.write_dl(panels[title])
