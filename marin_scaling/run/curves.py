"""Loss curves: append, read, find faults; with them the gradient norms and the routing of each step."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.files import read_own_bytes, replace_file
from marin_scaling.laws import Array
from marin_scaling.printable import joined
from marin_scaling.run.column_units import COUNT_UNITS, unit_of_tokens
from marin_scaling.run.columns import COLUMNS, STEP_NAMES, aliases_of, spelled
from marin_scaling.run.import_runs import TrackedRun
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import (
    History,
    HistoryRow,
    Workplace,
    curve_path,
    elsewhere_dir,
    is_finished,
    known_specs,
    read_run,
    run_folder,
    work_dir,
)
from marin_scaling.run.table_io import chart_series, is_empty, number_in, read_table_file


class LossCurve:
    """Rows of a run by step from step 0: the training loss, the gradient norm, and at some steps the routing of a mixture.

    A curve opened on the file of an earlier attempt resumes at the first line that is torn or not a number. The steps from
    there on are trained again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = recorded_rows(path)
        self._file = open(path, "a", encoding="ascii")  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> LossCurve:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    @property
    def steps_done(self) -> int:
        """Number of steps in the curve."""
        return len(self._rows)

    def last_finite(self) -> float | None:
        """Return the newest finite loss, or None."""
        return next((loss for loss in map(_loss_of, reversed(self._rows)) if loss is not None), None)

    def first_finite(self) -> float | None:
        """Return the oldest finite loss, or None."""
        return next((loss for loss in map(_loss_of, self._rows) if loss is not None), None)

    def truncate(self, steps_done: int) -> None:
        """Drop the steps from `steps_done` on, which will be trained again; ValueError if there are fewer."""
        if steps_done > self.steps_done:
            raise ValueError(f"{self._path} holds {self.steps_done} steps, not {steps_done}")
        self._rows = self._rows[:steps_done]
        self._seal()  # before the file is truncated: a digest of the beginning is valid for the longer file too
        self._file.close()
        replace_file(self._path, "".join(map(_line, self._rows)).encode("ascii"))
        self._file = open(self._path, "a", encoding="ascii")  # noqa: SIM115

    def add(
        self,
        loss_nats_per_token: float | None,
        *,
        gradient_norm: float | None = None,
        router_entropy_nats: Sequence[float] = (),
        expert_shares: Sequence[Sequence[float]] = (),
    ) -> int:
        """Append the next step and return its number."""
        row = HistoryRow(
            step=len(self._rows),
            train_loss_nats_per_token=loss_nats_per_token,
            gradient_norm=gradient_norm,
            router_entropy_nats=tuple(router_entropy_nats),
            expert_shares=tuple(map(tuple, expert_shares)),
        )
        self._rows.append(row)
        self._file.write(_line(row))
        self._file.flush()
        return row.step

    def sync(self) -> None:
        """Flush to disk, so that no checkpoint outlives the steps before it."""
        os.fsync(self._file.fileno())
        self._seal()

    def _seal(self) -> None:
        replace_file(_seal_of(self._path), _digest(self._rows))

    def history(self, *, spec_digest: str) -> History:
        """Return the whole curve as the document that the store holds."""
        return History(spec_digest=spec_digest, rows=tuple(self._rows))


def _loss_of(row: HistoryRow) -> float | None:
    return row.train_loss_nats_per_token


def recorded_losses(path: Path) -> list[float | None]:
    """Return a curve's losses by step; empty if the file is missing or a sealed step was changed."""
    return list(map(_loss_of, recorded_rows(path)))


def recorded_rows(path: Path) -> list[HistoryRow]:
    """Return a curve's rows; empty if the file is missing or a sealed step was changed."""
    rows = list(_read_rows(path)) if path.exists() else []
    kept = _seal_of(path)
    if not kept.exists():
        return rows
    sealed = read_own_bytes(kept)
    count = sealed.partition(b" ")[0]
    return rows if count.isdigit() and sealed == _digest(rows[: int(count)]) else []


def forget_seal(path: Path) -> None:
    """Remove the digest next to a curve that is about to be replaced."""
    _seal_of(path).unlink(missing_ok=True)


def _seal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def _digest(rows: Sequence[HistoryRow]) -> bytes:
    return f"{len(rows)} {sha256_hex(''.join(map(_line, rows)).encode())}".encode()


def _line(row: HistoryRow) -> str:
    return row.model_dump_json() + "\n"


def _read_rows(path: Path) -> Iterator[HistoryRow]:
    """Yield the rows up to the first malformed line."""
    for step, line in enumerate(read_own_bytes(path).splitlines(keepends=True)):
        try:
            row = HistoryRow.model_validate_json(line, strict=True)
        except ValueError:  # torn, not UTF-8, or no row
            return
        if row.step != step or not line.endswith(b"\n"):
            return
        yield row


_SPIKE_SCALES = 8.0  # in units of the scatter about the running median
_SPIKE_LEAST = 1.25  # in units of the median
_LEAST_WINDOW, _WINDOW_SHARE = 16, 0.02  # steps of the running median: a number, or a share of all steps if that is more
_LEAST_SHARE, _LEAST_FALL = 0.15, 0.02  # share of the steps before the test starts, and least power law of the loss in the step


def curve_faults(losses: Sequence[float | None], *, train_steps: int, decay_steps: int, vocab_size: int) -> list[str]:
    """Return a sentence for each fault of the losses of steps 0, 1, ...; the learning rate decays in the last `decay_steps`.

    >>> curve_faults([5.0, 4.0, None], train_steps=10, decay_steps=2, vocab_size=256)
    ['the loss is not finite at step 2']
    """
    broken = [step for step, loss in enumerate(losses) if loss is None or not math.isfinite(loss)]
    if broken:
        return [f"the loss is not finite at step {broken[0]}"]
    values = np.array([loss for loss in losses if loss is not None])
    faults = [_worse_than_guessing(values, train_steps, vocab_size), _spikes(values, train_steps)]
    return [*itertools.chain(*faults), *_flat(values, train_steps, decay_steps)]


def has_diverged(held_out_nats: float, *, first_nats: float, vocab_size: int) -> bool:
    """Return True if a run ended worse than it began in training, and worse than uniform guessing.

    Losses are in nats per token. A short run that has not yet learned to beat guessing has not diverged.

    >>> has_diverged(9.0, first_nats=6.1, vocab_size=256), has_diverged(5.7, first_nats=6.1, vocab_size=256)
    (True, False)
    """
    return not held_out_nats <= max(math.log(vocab_size), first_nats)  # true for NaN


def _worse_than_guessing(losses: Array, train_steps: int, vocab_size: int) -> list[str]:
    """Report the latest losses if they are above that of uniform guessing after a part of the run."""
    if len(losses) == 0 or len(losses) < _LEAST_SHARE * train_steps:
        return []
    guessing, latest = math.log(vocab_size), losses[-max(1, len(losses) // 20) :].mean()
    if latest < guessing:
        return []
    return [f"the loss is {latest:.4g} nats per token, above that of uniform guessing ({guessing:.4g})"]


def _spikes(losses: Array, train_steps: int) -> list[str]:
    """Report stretches of steps whose loss is far above the median of the steps before."""
    window = max(_LEAST_WINDOW, round(_WINDOW_SHARE * train_steps))
    if len(losses) <= 2 * window:
        return []
    medians = np.median(sliding_window_view(losses[:-1], window), axis=1)  # of the steps before each one
    above = np.log(losses[window:] / medians)
    bound = max(_SPIKE_SCALES * 1.4826 * float(np.median(np.abs(above))), math.log(_SPIKE_LEAST))
    spiked = np.flatnonzero(above > bound)
    if not spiked.size:
        return []
    stretches = np.split(spiked, np.flatnonzero(np.diff(spiked) > window) + 1)
    worst = int(spiked[np.argmax(above[spiked])])
    times = math.exp(float(above[worst]))
    counted = "a spike" if len(stretches) == 1 else f"{len(stretches)} spikes"
    return [f"{counted} of the loss, the highest at step {window + worst}: {times:.3g} times the steps before"]


def _flat(losses: Array, train_steps: int, decay_steps: int) -> list[str]:
    """Report a loss that stopped falling, at full learning rate, over the second half of the steps so far."""
    done = len(losses)
    if done < _LEAST_SHARE * train_steps or done > train_steps - decay_steps:
        return []
    steps = np.arange(done // 2, done)
    power = float(np.polyfit(np.log(steps + 1), np.log(losses[steps]), 1)[0])
    if power < -_LEAST_FALL:
        return []
    return [f"the loss has not fallen since step {steps[0]}: the learning rate may be too high"]


Losses = list[float | None]
"""Training losses in nats per token from step 0 on; None where the loss was not finite."""

_LOSS_NAMES = ("train_loss_nats_per_token", "train/loss", "train_loss", "loss", "train/CrossEntropyLoss", "train/CE loss")


def losses_so_far(spec: RunSpec, workplace: Workplace) -> Losses:
    """Return the losses of a finished or unfinished run, here or in the local copy of another machine; empty if not begun."""
    return list(map(_loss_of, rows_so_far(spec, workplace)))


def rows_so_far(spec: RunSpec, workplace: Workplace) -> Sequence[HistoryRow]:
    """Return the rows of a finished or unfinished run, here or in the local copy of another machine; empty if not begun."""
    if is_finished(workplace.runs_dir, spec):
        return read_run(run_folder(workplace.runs_dir, spec)).history().rows
    return recorded_rows(curve_path(_furthest(spec, workplace)))


def loss_at_end(spec: RunSpec, workplace: Workplace) -> float | None:
    """Return the metric of a finished run; None if it is unfinished or diverged."""
    return read_run(run_folder(workplace.runs_dir, spec)).record.loss if is_finished(workplace.runs_dir, spec) else None


def _furthest(spec: RunSpec, workplace: Workplace) -> Path:
    """Return the folder with the longer curve: this machine's work, or the local copy of another machine's."""
    return max(
        (work_dir(spec, workplace), elsewhere_dir(spec, workplace)), key=lambda folder: len(recorded_losses(curve_path(folder)))
    )


def find_spec(digits: str, workplace: Workplace) -> RunSpec:
    """Return the spec of the run whose digest begins with `digits`; `UsageError` unless exactly one matches."""
    found = known_specs(workplace, digits=digits) if re.fullmatch("[0-9a-f]+", digits) else []
    if len(found) != 1:
        has = f"{len(found)} runs have" if found else "no run has"
        raise UsageError(
            f"{digits}: {has} a digest that begins with it, and it is neither a preregistration nor a table.",
            fix="Take the first digits of a digest from `ls runs/LADDER` or from `ls .marin-scaling/specs`.",
        )
    return found[0]


def read_curve(path: Path, *, train_steps: int, columns: Mapping[str, str] | None = None) -> Losses:
    """Read losses by step of a run of `train_steps`, from a table or a chart that W&B exported.

    `columns` may name the columns of `step` and `loss`. The last value of a step counts. If only some steps were logged, each
    loss also holds for the steps up to the next one.
    """
    table = read_table_file(path)
    step, loss = (step_or_loss_column(table.column_names(), name, columns or {}, path) for name in ("step", "loss"))
    found: dict[int, float | None] = {}
    for place, at, value in zip(table.places, table.cells[step], table.cells[loss], strict=True):
        if value is None or value == "" or (path.suffix == ".parquet" and math.isnan(value)):
            continue  # a row of other metrics
        found[_step(at, path, place, train_steps)] = _loss(value, path, place)
    if not found:
        raise RunTableError(f"{path}: no row has a loss.", fix=f"Check its column {loss!r}.")
    return _filled(found)


def _filled(found: dict[int, float | None]) -> Losses:
    steps = sorted(found)
    losses: Losses = [found[steps[0]]] * steps[0]
    for at, following in zip(steps, [*steps[1:], steps[-1] + 1], strict=True):
        losses += [found[at]] * (following - at)
    return losses


def step_or_loss_column(found: Sequence[str], name: str, columns: Mapping[str, str], path: Path) -> str:
    """Return the column of `step` or `loss`: the one in `columns`, one of a known name, or the only line of a chart."""
    chosen = columns.get(name, "")
    names: Sequence[str] = [chosen]
    if not chosen and name == "step":
        names = list(each for each in found if spelled(each) in map(spelled, (*STEP_NAMES, "steps")))
    elif not chosen:
        known = [spelled(each) for each in _LOSS_NAMES]
        own = sorted((each for each in found if spelled(each) in known), key=lambda each: known.index(spelled(each)))
        lines = [each.column for each in chart_series(found) if spelled(each.metric) in known]
        names = own[:1] or lines * (len(lines) == 1)
    if names and names[0] in found:
        return names[0]
    has = joined([each.column for each in chart_series(found)] or found, most=12)
    raise RunTableError(
        f"{path} has no column {chosen or name!r}, or several candidates; it has: {has}.",
        fix=f"Name the column: --column {name}=NAME",
    )


def _number(value: object, path: Path, place: str) -> float:
    try:
        return float(str(value))
    except ValueError as error:
        raise RunTableError(f"{path}, {place}: {value!r} is not a number.", fix="Fix the row.") from error


def _step(value: object, path: Path, place: str, train_steps: int) -> int:
    step = _number(value, path, place)
    if not (0 <= step < train_steps and step == int(step)):
        raise RunTableError(
            f"{path}, {place}: {value!r} is not a step from 0 to {train_steps - 1}.",
            fix="Fix the row, or name the preregistration that this run answers.",
        )
    return int(step)


def _loss(value: object, path: Path, place: str) -> float | None:
    loss = _number(value, path, place)
    if loss <= 0:
        raise RunTableError(f"{path}, {place}: the loss {value!r} is not above 0.", fix="Fix the row.")
    return loss if math.isfinite(loss) else None


@dataclass(frozen=True, kw_only=True)
class LoggedCurve:
    """Losses of a run by the share of it that was done, in the order of the shares: (point,) each."""

    fractions: Array
    losses: Array
    broken_at: float | None = None
    """Share of the run since which no loss that is a number was logged; None if the latest one is."""
    tokens_share: float | None = None
    """Tokens at the latest step as a share of the promised ones at this step; None if steps or tokens are not logged."""


_CURVE_NAMES = {
    "run": ("run", "run_id", "name", "run_name"),
    "fraction": ("fraction", "progress"),
    "tokens": aliases_of(COLUMNS["tokens"]),
    "step": (*STEP_NAMES, "steps"),
    "loss": (*_LOSS_NAMES, *aliases_of(COLUMNS["loss"])),
}


def read_curves(path: Path, *, tokens: Mapping[str, float], columns: Mapping[str, str]) -> dict[str, LoggedCurve]:
    """Read the curves of the runs of which `tokens` gives the trained tokens, from a table with a row for each run and step.

    Progress is a column `fraction`, or `tokens` so far, or `step`, whose last one is the end. `columns` may name the table's
    columns. Other runs are left out. `RunTableError` names every bad row.
    """
    table = read_table_file(path)
    names = table.column_names()
    run, loss = (_curve_column(names, each, columns, path) for each in ("run", "loss"))
    kinds = [kind for kind in ("fraction", "tokens", "step") if columns.get(kind) or _known_names(names, kind)]
    progress = _curve_column(names, (kinds or ["step"])[0], columns, path)
    found, faults = defaultdict[str, list[tuple[float, float]]](list), list[str]()
    known = dict[tuple[str, float], float]()
    most = _PAST_END if kinds[:1] == ["fraction"] else math.inf
    cells = (table.cells[each].tolist() for each in (run, progress, loss))
    for place, name, done, value in zip(table.places, *cells, strict=True):
        own = str(name).strip()
        if own not in tokens or is_empty(value):
            continue
        at, number = number_in(done), number_in(value)
        if at is None or number is None or not 0 <= at <= most or number <= 0:
            faults.append(f"{path}, {place}: {_said(progress, done)} and {_said(loss, value)}.")
        elif known.setdefault((own, at), number) != number:
            earlier = f"{known[own, at]:g} in an earlier row of {own}"
            faults.append(f"{path}, {place}: {_said(progress, done)} and {_said(loss, value)}, and {earlier}.")
        else:
            found[own].append((at, number))
    if faults:
        raise RunTableError(
            (*faults[:_FAULTS], *([f"... and {len(faults) - _FAULTS} more rows."] if len(faults) > _FAULTS else [])),
            why="A run has one positive loss at each step, and its share is at most 1.",
            fix="Correct these rows: shares in per cent are divided by 100, and of a resumed run the later losses are kept.",
        )
    ends = {own: _end_of(kinds, points, tokens[own]) for own, points in found.items()}
    if kinds[:1] == ["tokens"]:
        units = [unit_of_tokens(progress, max(points)[0], ends[own]) for own, points in found.items()]
        factor = COUNT_UNITS.get(mode(units or [""]), 1.0)
        ends = {own: end / factor for own, end in ends.items()}
    return {own: curve_of_points([(at / ends[own], value) for at, value in points]) for own, points in found.items()}


def curve_names(path: Path, *, columns: Mapping[str, str]) -> list[str]:
    """Return the names of the runs in a table of curves, each once."""
    table = read_table_file(path)
    run = _curve_column(table.column_names(), "run", columns, path)
    return [*dict.fromkeys(str(each).strip() for each in table.cells[run])]


def _said(column: str, cell: object) -> str:
    return f"{column} is {str(cell)[:40]!r}"


_FAULTS = 10


def _known_names(names: Sequence[str], kind: str) -> list[str]:
    known = [spelled(each) for each in (kind, *_CURVE_NAMES[kind])]
    return sorted((each for each in names if spelled(each) in known), key=lambda each: known.index(spelled(each)))


def _curve_column(names: Sequence[str], kind: str, columns: Mapping[str, str], path: Path) -> str:
    chosen = columns.get(kind, "") or next(iter(_known_names(names, kind)), "")
    if chosen not in names:
        raise RunTableError(
            f"{path} has no column {chosen or kind!r}; it has: {joined(names, most=12)}.",
            why="Curves need the run, its progress (fraction, tokens or step) and its loss in each row.",
            fix=f"Name the column in the target file: curves: {{columns: {{{kind}: NAME}}}}",
        )
    return chosen


def _end_of(kinds: Sequence[str], points: Sequence[tuple[float, float]], tokens: float) -> float:
    """Return the progress at the end of a run."""
    return {"fraction": 1.0, "tokens": tokens}.get(kinds[0]) or max(at for at, _ in points) or 1.0


def curve_of_points(points: Sequence[tuple[float, float]]) -> LoggedCurve:
    """Return the curve of points (share done, loss) up to 1 % past the end; of equal shares the last point counts.

    >>> curve_of_points([(0.5, 3.0), (1.0, 2.5), (0.5, 3.1)]).losses.tolist()
    [3.1, 2.5]
    """
    last = {at: value for at, value in points if 0 < at <= _PAST_END and value > 0 and math.isfinite(value)}
    fractions = np.array(sorted(last), dtype=np.float64)
    return LoggedCurve(fractions=fractions, losses=np.array([last[at] for at in fractions.tolist()], dtype=np.float64))


_PAST_END = 1.01
_MISSED = 1.9  # usual distances of logged losses after which one is missing


def _unit_of_progress(rows: Sequence[Mapping[str, Any]], keys: Collection[str], tokens: float) -> float:
    """Return the factor of the unit in which the rows of a finished or unfinished run count its tokens."""
    cells = ((number_in(value), name) for values in rows for name, value in values.items() if spelled(name) in keys)
    count, name = max(((number, name) for number, name in cells if number is not None), default=(0.0, ""))
    return COUNT_UNITS.get(unit_of_tokens(name, count, tokens), 1.0)


def logged_curve(
    run: TrackedRun, *, key: str, tokens_keys: Sequence[str], tokens: float, train_steps: int | None
) -> LoggedCurve:
    """Return the curve of a run from its history, by its steps where their planned number is known, else by its tokens.

    That number is `train_steps`, or in the log. Where the run went back to an earlier step, the later values count.
    `RunTableError` for a history without loss or progress.
    """
    planned = train_steps or run.planned_steps
    if train_steps and run.planned_steps and train_steps != run.planned_steps:
        raise RunTableError(
            f"{run.source} has {run.planned_steps} planned steps, and the forecast {train_steps}.",
            why="The share of the run that is done follows from the planned steps.",
            fix="Name the log of the promised run: --log PATH. If curves.train_steps was signed wrongly, the run cannot be "
            "followed; its outcome can be recorded.",
        )
    loss, counts = ({spelled(each) for each in keys} for keys in ([key], tokens_keys))
    points, has_loss, latest, is_number, share = list[tuple[float, float]](), False, 0.0, True, None
    rows = run.history or [(0.0, run.metrics)]  # a log of one row has no history
    tokens /= _unit_of_progress([values for _, values in rows], counts, tokens)
    for step, values in rows:
        own = {spelled(name): number for name, value in values.items() if (number := number_in(value)) is not None}
        value = next((own[name] for name in loss if name in own), None)
        by_tokens = next((own[name] / tokens for name in counts if name in own), None)
        done = step / planned if planned else by_tokens
        share = by_tokens / done if planned and by_tokens and done else share
        has_loss |= value is not None
        if done is not None and any(spelled(name) in loss for name in values):
            is_number = value is not None
        latest = latest if done is None else done
        if value is None or done is None:
            continue
        while points and points[-1][0] >= done:
            points.pop()
        points.append((done, value))
    curve = replace(curve_of_points(points), tokens_share=share)
    if len(curve.losses):
        last = float(curve.fractions[-1])
        apart = float(np.median(np.diff(curve.fractions))) if len(curve.fractions) > 1 else 1.0
        return curve if is_number and latest - last < _MISSED * apart else replace(curve, broken_at=last)
    if not has_loss:
        raise RunTableError(
            f"{run.source}: no step has a value of {key!r}; it has {joined([*run.metrics], most=8) or 'no metrics'}.",
            fix="Name the log of the promised run, later if this value is not logged yet: --log PATH",
        )
    raise RunTableError(
        f"{run.source}: {key} was logged, but no tokens with it ({joined(list(tokens_keys), most=3)}).",
        why="A curve is compared at equal shares of the run.",
        fix="Log the tokens with the loss; for the next forecast: curves: {train_steps: N} in the target file.",
    )
