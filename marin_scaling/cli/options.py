"""Options and arguments that several commands share."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path

import typer

REGISTRY = typer.Option(
    Path("preregistrations"), "--registry", metavar="FOLDER", help="Folder of preregistrations and allowed_signers."
)
REASON = typer.Option(..., "--reason", metavar="TEXT", help="Reason, in one sentence.")


def echo_wrapped(text: str, *, indent: int = 2) -> None:
    """Print a line; on a terminal, wrap it and indent its further lines."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    typer.echo(text)


def require_reason(reason: str) -> None:
    """Raise `UsageError` if the signed reason is empty or has more than one line."""
    from marin_scaling.errors import UsageError

    if not reason.strip() or len(reason.splitlines()) > 1:
        raise UsageError(
            f"--reason {reason!r} is not one line of text.",
            why="The reason is signed and published with the forecast.",
            fix="Write one line: --reason 'two more budgets were trained'",
        )


STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    metavar="N",
    help="Steps of the target's loss that you have seen; default: 0 if the run has not started.",
)
