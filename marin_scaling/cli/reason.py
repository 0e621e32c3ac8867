"""Why something is said of a forecast: asked on the command line, and signed with what is said."""

from __future__ import annotations

import typer

REASON = typer.Option(..., "--reason", help="Why, in a sentence.")


def require_reason(reason: str) -> None:
    """`UsageError` where the reason for what is signed has no words in it, or more than one line."""
    from marin_scaling.errors import UsageError

    if not reason.strip() or len(reason.splitlines()) > 1:
        raise UsageError(
            f"--reason {reason!r} is no sentence.",
            why="It is signed, and stands beside the forecast for ever.",
            fix="Say it in one line: --reason 'two more budgets were trained'",
        )
