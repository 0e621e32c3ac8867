"""Runs as their trackers logged them, and a run table made from them: the key of each column, the loss, what is left out."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.printable import joined, quoted
from marin_scaling.run.audit import excluded_by_status
from marin_scaling.run.column_units import COUNT_UNITS, unit_of_tokens
from marin_scaling.run.columns import (
    COLUMNS,
    FORMULAS,
    LOSS_KEYS,
    Cells,
    aliases_of,
    computed,
    formula_of,
    spelled,
    step_column,
    unit_of_name,
)
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.table_io import number_in
from marin_scaling.units import format_number, metric_of_column


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as logged: flat names ("throughput/total_tokens") to last values; `source` is its address or file.

    `id`, `project` and `started_at` (UTC) are the tracker's; "" and None where it does not say. `kind` is wandb, levanter,
    json, csv (any table), megatron or maxtext. `is_named` is False for a run with the name of its file. `last_steps` gives
    the step at which each name was logged last, where the log has steps, and `planned_steps` the number of all steps.
    """

    name: str
    source: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    state: str = ""
    id: str = ""
    project: str = ""
    started_at: datetime | None = None
    last_steps: Mapping[str, float] = field(default_factory=dict)
    kind: str = "levanter"
    is_named: bool = True
    planned_steps: int | None = None
    steps: Sequence[float] = field(default=(), repr=False)
    """All logged steps, rising, where the log has steps."""
    stopped: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Rows of a table after the last number of a name, if it had one more often before."""
    first: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """First value of each name, where the log has steps."""
    twice: Mapping[str, tuple[float, Any, Any]] = field(default_factory=dict, repr=False)
    """Last step of a name with two values, and both, in the order of the rows of a table."""
    history: Sequence[tuple[float, Mapping[str, Any]]] = field(default=(), repr=False)
    """Steps with the values that were logged at them, in the log's order; only where a curve was asked for."""

    @property
    def ended_at(self) -> datetime | None:
        """Time of the last row (UTC); None if the log has none."""
        return max(filter(None, (moment_in(self.metrics.get(key)) for key in _ROW_KEYS)), default=None)


def joined_run(runs: Sequence[TrackedRun]) -> TrackedRun:
    """Return one run of the logs of its restarts."""
    return reduce(_continued, runs)


def start_of(run: TrackedRun) -> float:
    """Return the Unix time at which a run of a tracker began; 0 if that is not known."""
    return run.started_at.timestamp() if run.id and run.started_at else 0.0


def with_restarts(runs: Sequence[TrackedRun]) -> TrackedRun:
    """Return the last of the restarts of a run, in their order, with the values of all and the first start."""
    return replace(
        runs[-1],
        started_at=runs[0].started_at,
        config={key: value for run in runs for key, value in run.config.items()},
        metrics={key: value for run in runs for key, value in run.metrics.items()},
        last_steps={key: step for run in runs for key, step in run.last_steps.items()},
        history=[row for run in runs for row in run.history],
        steps=sorted({step for run in runs for step in run.steps}),
        first={key: value for run in reversed(runs) for key, value in run.first.items()},
    )


def _continued(before: TrackedRun, after: TrackedRun) -> TrackedRun:
    """Return a run with its restart under another id; the earlier log counts up to the first step of the later one."""
    cut = after.steps[0] if after.steps else -math.inf
    kept = {key: step for key, step in before.last_steps.items() if step < cut}
    return replace(
        after,
        started_at=before.started_at,
        project=after.project if before.project else "",
        is_named=before.is_named and after.is_named,
        metrics={**{key: before.metrics[key] for key in kept}, **after.metrics},
        last_steps={**kept, **after.last_steps},
        history=[*(row for row in before.history if row[0] < cut), *after.history],
    )


def is_nan(value: object) -> bool:
    """Return True for NaN and infinity, also as text: what trackers write for the loss of a run that diverged."""
    return str(value).strip().lower() in ("nan", "inf", "-inf", "infinity", "-infinity")


Keep = Collection[str]
"""Keys (as `spelled`) whose history is read, too."""


def kept_values(values: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """Return the values of the keys whose history is kept."""
    return {key: value for key, value in values.items() if spelled(key) in keep}


class LoggedValues:
    """The values of a run by the spelling of their keys; metrics go before settings."""

    def __init__(self, run: TrackedRun) -> None:
        self.run = run
        self.exact: dict[str, Any] = {**run.config, **run.metrics}
        self._spelled = {spelled(key): key for key in (*run.config, *run.metrics)}

    def key(self, keys: Sequence[str]) -> str | None:
        """Return the run's own spelling of the first key that has a number."""
        return next((own for key in keys if (own := self.spelling(key)) and self.number(own) is not None), None)

    def spelling(self, key: str) -> str | None:
        """Return the key as the run has it, or the key of its last value in a tracker's summary."""
        for each in (key, f"{key}/last", f"summary/{key}"):
            own = each if each in self.exact else self._spelled.get(spelled(each))
            if own is not None:
                return own
        return None

    def number(self, key: str | None) -> float | None:
        """Return the number under a key, also where it is text; None if there is none."""
        value = self.exact.get(key or "")
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else number_in(value)
        return number if number is not None and abs(number) < float("inf") else None

    def tokens(self, keys: Sequence[str], unit: str) -> float | None:
        """Return the tokens under the first key that has a number, which are logged in this unit; None if there are none."""
        count = self.number(self.key(keys))
        return count * COUNT_UNITS[unit] if count is not None and unit else count

    def unit_of_tokens(self, keys: Sequence[str], whole: float) -> str:
        """Return the unit in which the tokens of a run with this `whole` number are logged; "" for one by one, or none."""
        key = self.key(keys)
        return unit_of_tokens(key or "", self.number(key) or 0.0, whole)


_ROW_KEYS = ("timestamp", "_timestamp")
"""Columns that tell when a row was logged."""
START_KEYS = ("started_at", "start_time", "created_at", *_ROW_KEYS)
"""Columns that tell when a row was logged, or its run began; a run began at the earliest one or before."""
_MILLISECONDS = 1e11  # of Unix times: as seconds this is in the year 5138


def moment_in(value: object) -> datetime | None:
    """Return a time in ISO's format (UTC where it names no zone) or in Unix seconds or milliseconds; None for anything else."""
    try:
        if (number := number_in(value)) is not None:
            return datetime.fromtimestamp(number / (1000 if number > _MILLISECONDS else 1), UTC)
        found = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


_MOST_SHARE = 0.5
"""Share of the finished runs that need a value of a loss for it to be chosen."""

_ALWAYS = ("run", "flops", "params", "active_params", "tokens", "loss", "metric", "seed", "status", "source")
_NEEDED = ("flops", "params", "tokens", "loss")


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """Rows of a run table (`run`, `flops`, `params`, `tokens`, `loss`, `metric`, `seed`, `status`, `source` and what else runs
    have), runs left out with the reason, the key of the loss, and notes on keys and units."""

    rows: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...]
    loss_key: str
    notes: tuple[str, ...] = ()

    @property
    def skipped(self) -> list[str]:
        """Runs left out, those with one reason together."""
        reasons = defaultdict[str, list[tuple[str, str]]](list)
        for name, why in self.left_out:
            reasons[why.partition(": ")[2]].append((name, why))
        return [
            f"{runs[0][0]}: {runs[0][1]}" if len(runs) == 1 else f"{len(runs)} runs: {reason}: {_names(runs)}"
            for reason, runs in reasons.items()
        ]


def _names(runs: Sequence[tuple[str, str]]) -> str:
    return joined([name for name, _ in runs], most=12)


def import_runs(runs: Sequence[TrackedRun], *, keys: Mapping[str, str] | None = None) -> ImportedRuns:
    """Return the table of `runs`; `keys` gives the key of a column, or a formula, if it is not a usual one.

    `RunTableError` if no run has a loss of a known name, or none has all numbers.
    """
    chosen = _checked(keys or {}, runs)
    values = [LoggedValues(run) for run in runs]
    loss_key, notes = (chosen["loss"], []) if "loss" in chosen else _loss_key(runs, values)
    rows, left_out = list[dict[str, Any]](), list[tuple[str, str]]()
    used = dict[str, str]()
    for each in values:
        row = _row(each, {**chosen, "loss": loss_key}, used)
        missing = [name for name in _NEEDED if row[name] is None]
        if missing:
            left_out.append((each.run.name, f"{each.run.source}: {_lacks(each, missing, {**chosen, 'loss': loss_key})}"))
        elif twin := next((other for other in rows if all(row[key] == other[key] for key in ("run", *_NEEDED, "seed"))), None):
            left_out.append((each.run.name, f"{each.run.source}: the same run as in {twin['source']}"))
        else:
            rows.append(row)
    if not rows:
        raise _nothing_whole(runs, left_out)
    if len(runs) > 1 and not any(run.is_named for run in runs) and (step := step_column([*runs[0].metrics])):
        notes.append(f"each row is a run of its own; if rows are steps ({step}) of runs, name these: --column run=COLUMN")
    notes += [
        f"{name} is {key} times {format_number(factor)}"
        for name, key in used.items()
        if (factor := unit_of_name(name, key)) != 1
    ]
    notes += [
        f"{name} is computed as {formula_of(name, source)}" for name, source in chosen.items() if formula_of(name, source)
    ]
    notes += _contradictions(values, {**used, "loss": loss_key})
    return ImportedRuns(rows=_even(rows), left_out=tuple(left_out), loss_key=loss_key, notes=tuple(notes))


def _contradictions(values: Sequence[LoggedValues], used: Mapping[str, str]) -> list[str]:
    """Return a note for each run that has two values of a used key at its last step."""
    found = [
        (each.run, key, *each.run.twice[key])
        for each in values
        for key in dict.fromkeys(each.key((name,)) or "" for name in used.values())
        if key in each.run.twice
    ]
    return [
        f"{run.name} has two values of {key} at step {step:g}: {first} and {last}; the last row counts"
        for run, key, step, first, last in found
    ]


def _checked(keys: Mapping[str, str], runs: Sequence[TrackedRun]) -> dict[str, str]:
    """Return the user's choices; `UsageError` for a column that there is not, or a key that no run has."""
    known = {key for run in runs for key in (*run.metrics, *run.config)}
    for name, key in keys.items():
        if name not in COLUMNS:
            raise UsageError(
                f"--column {quoted(name)}: unknown column.",
                fix=f"Choose one of: {', '.join(COLUMNS)}.",
            )
        if not formula_of(name, key) and spelled(key) not in map(spelled, known):
            near = difflib.get_close_matches(key, [each for each in known if step_column([each]) is None], n=3, cutoff=0.5)
            raise UsageError(
                f"--column {name}={quoted(key)}: no run has this key.",
                fix=f"Did you mean {joined(near)}?" if near else "Name a key that the tracker's files hold.",
            )
    return dict(keys)


def _loss_key(runs: Sequence[TrackedRun], values: Sequence[LoggedValues]) -> tuple[str, list[str]]:
    """Return the first known loss that at least half of the finished runs have, and what was passed over."""
    finished = [each for each in values if not excluded_by_status(each.run.state)] or list(values)
    known = dict.fromkeys((*LOSS_KEYS, *aliases_of(COLUMNS["loss"]), "loss"))
    counts = {key: sum(each.key((key,)) is not None for each in finished) for key in known}
    common = [key for key, count in counts.items() if count >= max(1, _MOST_SHARE * len(finished))]
    key = common[0] if common else max(counts, key=lambda each: counts[each])
    if not counts[key]:
        raise _no_loss(runs)
    own = {each: next(filter(None, (run.key((each,)) for run in finished)), each) for each, count in counts.items() if count}
    others = {name: counts[each] for each, name in own.items() if name != own[key]}
    passed = joined([f"{name} ({count})" for name, count in others.items()], most=6)
    chosen = f"loss is {own[key]}, which {counts[key]} of {len(finished)} finished runs have"
    return key, [f"{chosen}; passed over: {passed}"] if others else []


def _no_loss(runs: Sequence[TrackedRun]) -> RunTableError:
    hints = ("loss", "bpb", "entropy")
    names = sorted({name for run in runs for name in run.metrics if any(hint in name.lower() for hint in hints)})
    if known := [key for key in LOSS_KEYS if key in names]:
        return RunTableError(
            f"{known[0]} is not a number in any run: {runs[0].name} has {runs[0].metrics.get(known[0])}.",
            fix="Name another metric, if one of them is the loss: --column loss=KEY.",
        )
    return RunTableError(
        f"No run has a loss of a known name ({', '.join(LOSS_KEYS)}).",
        fix=f"Name it: --column loss=KEY. Keys: {joined(names, most=12) or 'none with loss in its name'}.",
    )


def _row(values: LoggedValues, chosen: Mapping[str, str], used: dict[str, str]) -> dict[str, Any]:
    """Return a run's row, None for what it lacks; `used` gets the key of each column that was found."""
    run, numbers = values.run, dict[str, float | None]()
    for name, column in COLUMNS.items():
        if column.cells is Cells.TEXTS and name != "seed":
            continue
        key = values.key((chosen[name],) if name in chosen else (name, *aliases_of(column)) if name != "loss" else ())
        number = values.number(key)
        if key is not None and number is not None and (number > 0 or name == "seed"):
            numbers[name] = number * factor if (factor := unit_of_name(name, key)) != 1 else number
            used[name] = key
    spec = _our_spec(run)
    ours = {name: value for name, value in _from_spec(spec).items() if name not in chosen} if spec else {}
    row = {"run": run.name, **dict.fromkeys(("flops", "params", "tokens", "loss")), **numbers, **ours}
    for name in [each for each in FORMULAS if each in chosen and formula_of(each, chosen[each])]:
        row[name] = computed(name, row)
    return row | {
        "metric": metric_of_column(chosen["loss"]) or chosen["loss"],
        "seed": row.get("seed"),
        "status": run.state or "finished",
        "source": run.source,
    }


def _even(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the rows with the same columns in the same order; a column that only some runs have is empty in the others."""
    names = {name for row in rows for name in row}
    order = [name for name in (*_ALWAYS, *COLUMNS) if name in names]
    return tuple({name: row.get(name) for name in dict.fromkeys(order)} for row in rows)


def _lacks(values: LoggedValues, missing: Sequence[str], chosen: Mapping[str, str]) -> str:
    """Return what a run lacks; a key that is there without a number is named with what it holds."""
    words = list[str]()
    for name in missing:
        keys = (chosen[name],) if name in chosen else (name, *aliases_of(COLUMNS[name]))
        key = next((own for each in keys if (own := values.spelling(each))), None)
        held = f" ({key} is {quoted(values.exact[key])!r})" if key else f" ({chosen[name]})" if name in chosen else ""
        words.append(f"{name}{held}")
    return f"it has no {', '.join(words)}"


def _nothing_whole(runs: Sequence[TrackedRun], left_out: Sequence[tuple[str, str]]) -> RunTableError:
    reasons = tuple(why for _, why in left_out[:3])
    return RunTableError(
        (f"None of {len(runs)} runs has all that a table needs.", *reasons) if runs else "There are no runs.",
        why="A fit needs FLOPs, parameters, tokens and loss of each run.",
        fix="Name the keys: --column flops=KEY, --column loss=KEY, and so on; or compute one of three: --column flops=6ND, "
        "--column params=flops/6D, --column tokens=flops/6N.",
    )


def _our_spec(run: TrackedRun) -> RunSpec | None:
    """Return the spec of a run that this tool has mirrored to a tracker; None for other runs."""
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
