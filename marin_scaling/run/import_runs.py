"""From runs as trackers have them to a table of runs that `fit` reads; a run that lacks a number is listed, not dropped.

FLOPs, parameters and tokens by the names that Levanter's trainer logs; of runs of our own mirrors from their spec. Reads no
file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.table_columns import METRIC_OF_COLUMN
from marin_scaling.run.tracker_logs import TrackedRun

KEYS = {
    "flops": ("throughput/total_gflops",),
    "params": ("parameter_count", "num_parameters"),
    "tokens": ("throughput/total_tokens",),
    "seed": ("trainer/seed", "seed"),
}
"""Where each column stands in metrics or configuration; FLOPs of `total_gflops` times a billion."""
LOSSES = ("eval/paloma/macro_loss", "eval/macro_bpb", "eval/bpb", "eval/macro_loss", "eval/loss", "bits_per_byte")
"""Taken for the loss, the first that every run has, where nobody says which."""


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """Rows of `run`, `flops`, `params`, `tokens`, `loss`, `metric`, `seed`, `status`, `source`; and runs left out, with why."""

    rows: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...]
    loss_key: str


def import_runs(runs: Sequence[TrackedRun], *, keys: Mapping[str, str] | None = None) -> ImportedRuns:
    """The table of `runs`; `keys` says where `loss`, `flops`, `params` or `tokens` stand, if not where they usually do.

    `RunTableError` when no run has a loss of a known name, or none has all numbers.
    """
    chosen = dict(keys or {})
    if unknown := chosen.keys() - {"loss", "flops", "params", "tokens"}:
        raise UsageError(
            f"--column {min(unknown)}: loss, flops, params and tokens can be chosen.",
            why="The other columns are taken as they are.",
            fix="Leave it out.",
        )
    loss_key = chosen.pop("loss", "") or _loss_key(runs)
    rows, left_out = list[dict[str, Any]](), list[tuple[str, str]]()
    for run in runs:
        row = _row(run, loss_key, chosen)
        missing = [name for name, value in row.items() if value is None and name != "seed"]
        if missing:
            left_out.append((run.name, f"{run.source}: it has no {', '.join(missing)}"))
        else:
            rows.append(row)
    if not rows:
        raise RunTableError(
            f"None of {len(runs)} runs has all that a table needs. {left_out[0][1]}." if left_out else "There are no runs.",
            why="A fit needs FLOPs, parameters, tokens and loss of each run.",
            fix="Say where they stand: --column flops=KEY, --column loss=KEY, and so on.",
        )
    return ImportedRuns(rows=tuple(rows), left_out=tuple(left_out), loss_key=loss_key)


def _loss_key(runs: Sequence[TrackedRun]) -> str:
    for key in LOSSES:
        if runs and all(_number(run.metrics.get(key)) is not None for run in runs):
            return key
    for key in LOSSES:
        if any(_number(run.metrics.get(key)) is not None for run in runs):
            return key
    names = sorted({name for run in runs for name in run.metrics if "loss" in name or "bpb" in name})
    if known := [key for key in LOSSES if key in names]:
        raise RunTableError(
            f"{known[0]} is no number in any run: {runs[0].name} has {runs[0].metrics.get(known[0])}.",
            why="A run without a loss is no row of a fit.",
            fix="Name another metric, if one of them is the loss: --column loss=KEY.",
        )
    raise RunTableError(
        f"No run has a loss of a known name ({', '.join(LOSSES)}).",
        why="Which metric is the loss decides what is forecast.",
        fix=f"Name it: --column loss=KEY. There are: {', '.join(names[:12]) or 'none that is named for a loss'}.",
    )


def _row(run: TrackedRun, loss_key: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    numbers = {name: _value(run, (chosen[name],) if name in chosen else keys) for name, keys in KEYS.items()}
    if "flops" not in chosen and numbers["flops"] is not None:
        numbers["flops"] *= 1e9
    spec = _our_spec(run)
    ours = {} if spec is None else _from_spec(spec)
    return {
        "run": run.name,
        **numbers,
        **{name: value for name, value in ours.items() if name not in chosen},
        "loss": _number(run.metrics.get(loss_key)),
        "metric": METRIC_OF_COLUMN.get(loss_key, loss_key),
        "status": run.state or "finished",
        "source": run.source,
    }


def _our_spec(run: TrackedRun) -> RunSpec | None:
    """The spec of a run that this tool has mirrored to a tracker; None for other runs."""
    if "recipe" not in run.config or "budget_flops" not in run.config:
        return None
    try:
        return RunSpec.model_validate(_nested(run.config))
    except ValidationError:
        return None


def _from_spec(spec: RunSpec) -> dict[str, Any]:
    shape = spec.model.shape()
    is_sparse = shape.params_active != shape.params_total
    return {
        "flops": spec.flops,
        "params": shape.params_total,
        **({"active_params": shape.params_active} if is_sparse else {}),
        "tokens": spec.trained_tokens,
        "seed": spec.seed,
        "flops_convention": spec.flops_convention,
        "budget_flops": spec.budget_flops,
        "evaluation": spec.measured_on,
    }


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith("_wandb"):
            continue
        *parts, last = name.split("/")
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def _value(run: TrackedRun, keys: Sequence[str]) -> float | None:
    places = [place.get(key) for key in keys for place in (run.metrics, run.config)]
    return next((number for value in places if (number := _number(value)) is not None), None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
