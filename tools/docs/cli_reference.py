"""The command reference of the documentation: what every command prints for `--help`, at one width on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from marin_scaling.cli.app import app

_WIDTH = 100


def command_reference() -> str:
    """Every command's help as Markdown, in the order of `marin-scale --help`."""
    return "\n\n".join(f"## `{name}`\n\n```text\n{text}\n```" for name, text in command_helps())


def command_helps() -> Iterator[tuple[str, str]]:
    """Name and help of the program and of each command, groups before their commands."""
    yield from _helps(typer.main.get_command(app), "marin-scale", parent=None)


def _helps(command: Any, name: str, *, parent: Any) -> Iterator[tuple[str, str]]:
    widths = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = command.context_class(command, info_name=name.split()[-1], parent=parent, **widths, **command.context_settings)
    yield name, command.get_help(context).rstrip()
    for child, found in getattr(command, "commands", {}).items():
        yield from _helps(found, f"{name} {child}", parent=context)
