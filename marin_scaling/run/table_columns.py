"""Which column of somebody's table is which of ours: names that are recognised, and what to do when two would do.

Names only; cells are not looked at. The mapping that was made is kept, so that it can be printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from marin_scaling.errors import RunTableError

REQUIRED = ("flops", "params", "tokens", "loss")

RECOGNISED: dict[str, tuple[str, ...]] = {
    "flops": ("train_flops", "training_flops", "total_flops", "train_flops_incl_lm_head", "compute", "C"),
    "params": ("total_params", "params_total", "parameters", "num_params", "n_params", "N"),
    "tokens": ("train_tokens", "trained_tokens", "total_tokens", "num_tokens", "n_tokens", "D"),
    "loss": (
        "final_loss",
        "eval_loss",
        "eval/loss",
        "val_loss",
        "validation_loss",
        "bits_per_byte",
        "bpb",
        "eval/bpb",
        "paloma_macro_loss",
        "paloma_macro_loss_nats",
        "eval/paloma/macro_loss",
    ),
    "budget_flops": ("budget_nominal_flops", "nominal_flops", "flops_budget"),
    "active_params": ("params_active", "num_active_params", "active_parameters"),
    "epochs": ("num_epochs",),
    "tokens_per_second": ("tps", "throughput/tokens_per_second"),
    "run": ("run_name", "run_id", "name"),
    "seed": (),
    "status": ("state",),
    "metric": (),
    "suite": (),
    "flops_convention": (),
    "evaluation": (),
    "eval_length": ("eval_seq_len", "eval_sequence_length", "eval_context"),
    "cooldown": ("cooled", "cool_down", "decayed", "annealed"),
}
"""Our column, and the names others give it (Marin's tables and trackers, papers' letters); case matters for letters only."""

METRIC_OF_COLUMN = {
    "bits_per_byte": "bits_per_byte",
    "bpb": "bits_per_byte",
    "eval/bpb": "bits_per_byte",
    "paloma_macro_loss": "paloma_macro_loss_nats",
    "paloma_macro_loss_nats": "paloma_macro_loss_nats",
    "eval/paloma/macro_loss": "paloma_macro_loss_nats",
}
"""The metric that the name of a loss column says by itself."""


def map_columns(
    found: Sequence[str], *, chosen: Mapping[str, str], name: str, required: Sequence[str] = REQUIRED
) -> dict[str, str]:
    """Our column names to those of the table `name`, for all that are there; `chosen` settles what the user settled.

    Our own name wins where it stands; two other candidates for one column, or a required one that is missing, are errors.

    >>> map_columns(["C", "N", "D", "eval/loss", "notes"], chosen={}, name="runs.csv")
    {'flops': 'C', 'params': 'N', 'tokens': 'D', 'loss': 'eval/loss'}
    """
    _check_chosen(found, chosen, name)
    mapping = {}
    for column in RECOGNISED:
        source = chosen.get(column) or _find(column, found, name)
        if source is not None:
            mapping[column] = source
    missing = [column for column in required if column not in mapping]
    if missing:
        _refuse(
            f"{name} has no column {missing[0]!r}, nor one that is known to mean it; it has: {', '.join(found)}.",
            fix=f"Name the column that holds it: --column {missing[0]}=NAME",
        )
    return mapping


def _find(column: str, found: Sequence[str], name: str) -> str | None:
    if column in found:
        return column
    own = [other for other in found if _same_name(other, column)]
    candidates = own or [other for other in found if any(_same_name(other, known) for known in RECOGNISED[column])]
    if len(candidates) > 1:
        _refuse(
            f"{name}: {' and '.join(repr(each) for each in candidates)} could each be the column {column!r}.",
            fix=f"Choose one: --column {column}={candidates[0]}",
        )
    return candidates[0] if candidates else None


def _same_name(found: str, known: str) -> bool:
    return found == known if len(known) == 1 else found.lower() == known.lower()


def _check_chosen(found: Sequence[str], chosen: Mapping[str, str], name: str) -> None:
    for column, source in chosen.items():
        if column not in RECOGNISED:
            _refuse(f"{column!r} is no column of a run table.", fix=f"Choose for one of: {', '.join(RECOGNISED)}.")
        if source not in found:
            _refuse(
                f"{name} has no column {source!r}; it has: {', '.join(found)}.",
                fix=f"Name one of these: --column {column}={found[0]}",
            )
    for source, columns in _taken(chosen).items():
        if len(columns) > 1:
            _refuse(
                f"The column {source!r} is taken for {' and for '.join(columns)}.", fix="Name another column for one of them."
            )


def _taken(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """For every column of the table, which of ours it was chosen for."""
    return {source: [ours for ours in chosen if chosen[ours] == source] for source in chosen.values()}


def _refuse(what: str, *, fix: str) -> NoReturn:
    raise RunTableError(what, why="Nothing is guessed about what a column means.", fix=fix)
