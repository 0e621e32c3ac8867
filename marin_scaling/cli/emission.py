"""What `marin-scale ladder --emit` does: write files with which Levanter's own command trains the rungs. Trains nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.errors import UsageError, missing_extra

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder import Ladder

_EMITTED = Path("emitted")  # a folder `levanter` would be taken for the package where Python looks into the current folder


def emit_files(ladder_path: Path, *, trainer: str, only: list[str]) -> None:
    """Write them, and say how one is used."""
    from marin_scaling.cli.training import bind, chosen, expand

    expanded = expand(ladder_path)
    _require_emittable(expanded, ladder_path, trainer=trainer)
    planned = bind(expanded, ladder_path)
    specs, folder = chosen(planned.specs, only), _EMITTED / expanded.file.name
    from marin_scaling.run.emit_levanter import emit_levanter
    from marin_scaling.run.train_lm_yaml import COMMAND, file_name

    is_new = emit_levanter(specs, corpus=planned.corpus, folder=folder)
    runs = f"{len(specs)} runs" if len(specs) > 1 else "one run"
    typer.echo(f"Files for {runs}, and their tokens, are in {folder}{'' if is_new else ' already'}. For example:")
    typer.echo(f"  cd {folder} && {COMMAND} {file_name(specs[0])}")


def _require_emittable(ladder: Ladder, ladder_path: Path, *, trainer: str) -> None:
    """`UsageError` where `--emit` names another trainer than Levanter's, or one that does not know the ladder's models."""
    from marin_scaling.recipe.moe_shape import MoeShape

    if trainer != "levanter":
        raise UsageError(
            f"--emit {trainer}: files are written for Levanter's train_lm.",
            why="No other is known.",
            fix="Use --emit levanter.",
        )
    if any(isinstance(rung.plan.shape, MoeShape) for rung in ladder.rungs):
        raise UsageError(
            f"{ladder_path}: --emit levanter: its recipe {ladder.file.recipe!r} makes mixtures of experts.",
            why="Levanter's own command knows neither this model nor the training of its routers.",
            fix=f"Train it here: marin-scale ladder {ladder_path}, or with --on ray; or emit a ladder of dense models.",
        )
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing files for Levanter")
