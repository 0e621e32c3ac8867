"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path

import typer

REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations and allowed_signers lie.")
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


STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    help="How many steps of the target's loss you have seen; default: none, where it has not begun.",
)
