"""Loss curves from where they lie: a run in the store or under way here, or a table of steps and losses from elsewhere.

Reads only. What a curve says is in `curve_faults` and `forecast.tracking`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.run.expert_shares import read_shares
from marin_scaling.run.loss_curve import recorded_losses
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.run_store import is_finished, read_run, run_folder
from marin_scaling.run.table_files import read_table_file
from marin_scaling.run.workplace import Workplace, curve_path, elsewhere_dir, known_specs, work_dir

Losses = list[float | None]
"""Training losses in nats per token from step 0 on; None where one was no number."""

_STEP_NAMES = ("step", "_step", "global_step", "steps")
_LOSS_NAMES = ("train_loss_nats_per_token", "train/loss", "train_loss", "loss")


def losses_so_far(spec: RunSpec, workplace: Workplace) -> Losses:
    """Of a run that is finished or under way, here or, as far as was brought, elsewhere; empty where it has not begun."""
    if is_finished(workplace.runs_dir, spec):
        rows = read_run(run_folder(workplace.runs_dir, spec)).history().rows
        return [row.train_loss_nats_per_token for row in rows]
    return recorded_losses(curve_path(_furthest(spec, workplace)))


def loss_at_end(spec: RunSpec, workplace: Workplace) -> float | None:
    """The metric of a run that is finished; None of one that is not, or that diverged."""
    return read_run(run_folder(workplace.runs_dir, spec)).record.loss if is_finished(workplace.runs_dir, spec) else None


def _furthest(spec: RunSpec, workplace: Workplace) -> Path:
    """The folder with the longer curve: of the work here, or of what was brought from another machine."""
    return max(
        (work_dir(spec, workplace), elsewhere_dir(spec, workplace)), key=lambda folder: len(recorded_losses(curve_path(folder)))
    )


def shares_so_far(spec: RunSpec, workplace: Workplace) -> list[list[float]]:
    """Of a mixture under way here the experts' shares of tokens, by layer, when its state was saved last; else nothing."""
    return read_shares(_furthest(spec, workplace))


def find_spec(digits: str, workplace: Workplace) -> RunSpec:
    """The spec of the run whose digest begins with `digits`; `UsageError` where there is none, or more than one."""
    found = known_specs(workplace, digits=digits) if re.fullmatch("[0-9a-f]+", digits) else []
    if len(found) != 1:
        has = f"{len(found)} runs here have" if found else "no run here has"
        raise UsageError(
            f"{digits}: {has} a digest that begins so, and it is no preregistration and no table.",
            why="A run is named by the first digits of its digest, as its folder in runs/ is.",
            fix="Take the digits from `ls runs/LADDER` or from `ls .marin-scaling/specs`.",
        )
    return found[0]


def read_curve(path: Path, *, train_steps: int) -> Losses:
    """Losses by step of a run of `train_steps`, from CSV, Parquet or JSON lines; of a step that stands twice the last.

    Where only some steps were logged, each stands for those up to the next.
    """
    table = read_table_file(path)
    step, loss = (_column(table.column_names(), names, path) for names in (_STEP_NAMES, _LOSS_NAMES))
    found: dict[int, float | None] = {}
    for place, at, value in zip(table.places, table.cells[step], table.cells[loss], strict=True):
        if value is None or value == "" or (path.suffix == ".parquet" and math.isnan(value)):
            continue  # a row of other metrics, as loggers write them
        found[_step(at, path, place, train_steps)] = _loss(value, path, place)
    if not found:
        raise RunTableError(f"{path}: no row has a loss.", why="There is no curve in it.", fix=f"Check its column {loss!r}.")
    return _filled(found)


def _filled(found: dict[int, float | None]) -> Losses:
    steps = sorted(found)
    losses: Losses = [found[steps[0]]] * steps[0]
    for at, following in zip(steps, [*steps[1:], steps[-1] + 1], strict=True):
        losses += [found[at]] * (following - at)
    return losses


def _column(columns: Sequence[str], names: Sequence[str], path: Path) -> str:
    for name in names:
        if name in columns:
            return name
    raise RunTableError(
        f"{path}: it has no column {' or '.join(map(repr, names))}; it has {', '.join(map(str, columns))}.",
        why="A curve is a loss for each step.",
        fix="Rename the column.",
    )


def _number(value: object, path: Path, place: str) -> float:
    try:
        return float(str(value))
    except ValueError as error:
        raise RunTableError(
            f"{path}, {place}: {value!r} is no number.", why="A curve is a loss for each step.", fix="Correct the row."
        ) from error


def _step(value: object, path: Path, place: str, train_steps: int) -> int:
    step = _number(value, path, place)
    if not (0 <= step < train_steps and step == int(step)):
        raise RunTableError(
            f"{path}, {place}: {value!r} is no step of a run of {train_steps}.",
            why="Steps are counted from 0.",
            fix="Correct the row, or name the preregistration that this run answers.",
        )
    return int(step)


def _loss(value: object, path: Path, place: str) -> float | None:
    loss = _number(value, path, place)
    if loss <= 0:
        raise RunTableError(f"{path}, {place}: {value!r} is no loss.", why="It has to be above 0.", fix="Correct the row.")
    return loss if math.isfinite(loss) else None
